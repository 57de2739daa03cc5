"""Position: where a lane is in its episode."""

from typing import NamedTuple

__all__ = ["Position"]


class Position(NamedTuple):
    """Position of a lane: four int64, so an array of positions is ``[lanes, 4]``."""

    episode: int
    """Number of the episode."""
    first_step: int
    """Number of its first action among all of the lane's actions."""
    steps: int
    """Actions since its reset."""
    hash: int
    """Rolling hash of its observations, the first included."""
