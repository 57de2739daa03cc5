"""Goals, and board ``goals``: how far learners with replicas of one state are to learn next. Takes no gradient step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.types import Array, Arrays, ArraySpec

__all__ = [
    "JOINING",
    "BatchGoal",
    "TurnGoal",
    "batch_goal_specs",
    "batch_goal_values",
    "turn_goal_specs",
    "turn_goal_values",
]

JOINING = (ArraySpec("update", (), "int64"), ArraySpec("goal", (), "int64"))
"""What a newcomer gets besides the algorithm's state: updates so far, and the version of its first `BatchGoal`."""


@dataclass(frozen=True)
class TurnGoal:
    """The goal of a turn: the last gradient step to take, and the slots to sample from."""

    last: int
    """Gradient steps of the whole run at the end of the turn."""
    taken: tuple[int, ...]
    """Rows are sampled from slots below these sequences, one for each writer."""
    progress: float
    """In [0, 1]."""


class BatchGoal(NamedTuple):
    """A batch to learn from."""

    slots: tuple[int, ...]
    """Of the stream, in lane order or in the order of arrival."""
    update: int
    """Updates before this one."""
    progress: float
    """In [0, 1]."""


def turn_goal_specs(writers: int, statistics: Sequence[ArraySpec]) -> tuple[ArraySpec, ...]:
    """The arrays of board ``goals``: the fields of a `TurnGoal`, and the running statistics to reach it with."""
    return (
        *statistics,
        ArraySpec("last", (), "int64"),
        ArraySpec("taken", (writers,), "int64"),
        ArraySpec("progress", (), "float64"),
        ArraySpec("meeting", (), "int64"),
    )


def turn_goal_values(goal: TurnGoal, meeting: int) -> Arrays:
    """A goal as arrays of board ``goals``. It is for the learners of this ``meeting``."""
    numbers = {"last": np.array(goal.last), "progress": np.array(goal.progress), "meeting": np.array(meeting)}
    return {**numbers, "taken": np.array(goal.taken, np.int64)}


def batch_goal_specs(rollouts_per_batch: int) -> tuple[ArraySpec, ...]:
    """The arrays of board ``goals``: the fields of a `BatchGoal`."""
    return (
        ArraySpec("slots", (rollouts_per_batch,), "int64"),
        ArraySpec("update", (), "int64"),
        ArraySpec("progress", (), "float64"),
    )


def batch_goal_values(batch: BatchGoal) -> Mapping[str, Array]:
    """A batch as arrays of board ``goals``."""
    return {
        "slots": np.array(batch.slots, np.int64),
        "update": np.array(batch.update),
        "progress": np.array(batch.progress),
    }
