"""Plain data of a final evaluation: tickets and answers between judge and players, and the judge's record."""

from collections.abc import Sequence
from enum import IntEnum

from penstock.metrics.episode_metrics import METRIC_FIELD
from penstock.types import ArraySpec

__all__ = ["ALWAYS_PLAYED", "TICKET", "Ending", "answer_specs", "found_specs"]

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


def answer_specs(metrics: Sequence[str]) -> tuple[ArraySpec, ...]:
    """A slot of stream ``episodes``: the answer to one ticket.

    Args:
        metrics: names of the episode metrics.
    """
    return (ArraySpec("number", (), "int64"), *_outcome(metrics))


def found_specs(episodes: int, metrics: Sequence[str]) -> tuple[ArraySpec, ...]:
    """The judge's record: the answers by episode number, and the time until which episodes may begin."""
    return (*(spec.within(episodes) for spec in _outcome(metrics)), ArraySpec("until", (), "float64"))


def _outcome(metrics: Sequence[str]) -> tuple[ArraySpec, ...]:
    """The arrays of one episode's outcome."""
    return (
        ArraySpec("ending", (), "int8"),
        ArraySpec("episode_return", (), "float64"),
        ArraySpec("length", (), "int64"),
        *(ArraySpec(f"{METRIC_FIELD}{name}", (), "float64") for name in metrics),
    )
