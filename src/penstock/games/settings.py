"""The settings of the nodes that games play with, as plain data."""

from dataclasses import dataclass
from pathlib import Path

from penstock.types import EnvReference, Spaces

__all__ = ["PORT_FLAGS", "GamesSettings"]

PORT_FLAGS = {"http": "--port", "tcp": "--tcp_port"}
"""Scheme of an address -> the flag for its port."""


@dataclass(frozen=True)
class GamesSettings:
    """Where a `GamesNode` listens, and what its sessions play."""

    env: EnvReference
    """``gamecore://module:Agent``, or a recipe with the agent's arguments."""
    spaces: Spaces
    host: str
    http: int | None
    """``None``: no HTTP."""
    tcp: int | None
    """``None``: no TCP."""
    token_file: str | None
    idle_seconds: float
    """A session without a request for so long has vanished."""
    episodes: Path
    """The folder for kept episodes."""
    keep_episodes: int
    """How many of the latest episodes are kept as files."""
    patience: float
    """Seconds without a request of any game after which the run ends."""
