"""Plain data of a final evaluation: tickets and answers between judge and players, and the judge's record."""

from enum import IntEnum

from penstock.types import ArraySpec

__all__ = ["ALWAYS_PLAYED", "EPISODE", "TICKET", "Ending", "found_specs"]

ALWAYS_PLAYED = 5
"""So many episodes of an evaluation begin even after its time is over."""


class Ending(IntEnum):
    """How an episode ended."""

    UNKNOWN = 0
    """No player has answered its ticket yet."""
    PLAYED = 1
    SPOILT = 2
    """It held NaN or infinity."""
    TOO_LATE = 3
    """It did not begin: the time was over."""


TICKET = (
    ArraySpec("number", (), "int64"),
    # Time of the monotonic clock, which all processes of a machine share. After it the episode may not begin.
    ArraySpec("until", (), "float64"),
    # A player has begun the episode. If that player dies, its successor plays it even after the time is over.
    ArraySpec("begun", (), "bool"),
)
"""A slot of stream ``tickets``: one episode to play."""

EPISODE = (
    ArraySpec("number", (), "int64"),
    ArraySpec("ending", (), "int8"),
    ArraySpec("episode_return", (), "float64"),
    ArraySpec("length", (), "int64"),
)
"""A slot of stream ``episodes``: the answer to one ticket."""


def found_specs(episodes: int) -> tuple[ArraySpec, ...]:
    """The judge's record: the answers by episode number, and the time until which episodes may begin."""
    return (
        ArraySpec("ending", (episodes,), "int8"),
        ArraySpec("episode_return", (episodes,), "float64"),
        ArraySpec("length", (episodes,), "int64"),
        ArraySpec("until", (), "float64"),
    )
