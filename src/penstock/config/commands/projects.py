"""The options of the command that begins a project."""

from dataclasses import dataclass, field
from typing import Literal

from penstock.config.commands.option import option

__all__ = ["NewOptions"]


@dataclass(frozen=True, kw_only=True)
class NewOptions:
    """Options of ``penstock new``."""

    folder: str = field(
        metadata={
            "help": "folder of the project; it is made, unless it is there and empty",
            "positional": True,
            "pattern": r"(?s).+",
            "form": "a folder",
        }
    )
    template: Literal["rl", "imitation", "game"] = option(
        "rl",
        "what the project begins with. rl: an environment of your own; imitation: recordings that are imitated, "
        "alone or with rewards; game: a game that connects over TCP, and its agent",
    )
