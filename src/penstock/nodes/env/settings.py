"""What one EnvNode steps, as plain data."""

from dataclasses import dataclass
from typing import Literal

from penstock.nodes.contract import LaneStart
from penstock.types import EnvReference, Spaces

__all__ = ["EnvSettings"]


@dataclass(frozen=True)
class EnvSettings:
    """What one EnvNode steps."""

    env: EnvReference
    vector: bool
    """Ask Gymnasium for its own vector environment of this id."""
    ignore_obs: tuple[str, ...]
    """Fields of the observation that are left out."""
    spaces: Spaces
    worker: int
    num_workers: int
    """This is worker ``worker`` of so many; each steps as many lanes."""
    first_lane: int
    lanes: int
    num_steps: int
    """T: steps a rollout."""
    seed: int
    starts: tuple[LaneStart, ...]
    """One for each lane."""
    bad_numbers: Literal["stop", "skip"]
    """What becomes of a rollout with NaN or infinity: an error, or it is dropped."""
    open_limit_s: float
    """How long making and resetting the environments may take, in seconds."""
    reward: str | bytes | None = None
    """The user's own reward, in place of the environment's."""
