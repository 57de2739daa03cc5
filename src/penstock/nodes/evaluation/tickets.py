"""What travels between the judge of a final evaluation and its players, and what the judge commits. Plain data."""

from enum import IntEnum

from penstock.types import ArraySpec

__all__ = ["ALWAYS_PLAYED", "EPISODE", "TICKET", "Ending", "found_specs"]

ALWAYS_PLAYED = 5
"""So many episodes of an evaluation are begun however late it is."""


class Ending(IntEnum):
    """What became of an episode."""

    UNKNOWN = 0
    """No player has answered its ticket yet."""
    PLAYED = 1
    SPOILT = 2
    """It held NaN or infinity."""
    TOO_LATE = 3
    """It was not begun: the time was over."""


TICKET = (
    ArraySpec("number", (), "int64"),
    # Seconds of the monotonic clock, which all processes of a machine share. After it the episode is not begun.
    ArraySpec("until", (), "float64"),
    # A player has begun the episode. The successor of a player that died plays it whatever the time is.
    ArraySpec("begun", (), "bool"),
)
"""A slot of stream ``tickets``: one episode to be played."""

EPISODE = (
    ArraySpec("number", (), "int64"),
    ArraySpec("ending", (), "int8"),
    ArraySpec("episode_return", (), "float64"),
    ArraySpec("length", (), "int64"),
)
"""A slot of stream ``episodes``: the answer to one ticket."""


def found_specs(episodes: int) -> tuple[ArraySpec, ...]:
    """The record of an evaluation of so many episodes: the answers by episode number, and until when any may begin."""
    return (
        ArraySpec("ending", (episodes,), "int8"),
        ArraySpec("episode_return", (episodes,), "float64"),
        ArraySpec("length", (episodes,), "int64"),
        ArraySpec("until", (), "float64"),
    )
