"""What stands on board ``goals``: how far the learners that share a state are to learn next. Takes no gradient step."""

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.nodes.learner.epochs import BatchGoal
from penstock.nodes.learner.steps import Goal
from penstock.types import Array, Arrays, ArraySpec

__all__ = ["JOINING", "batch_specs", "batch_values", "goal_specs", "goal_values"]

JOINING = (ArraySpec("update", (), "int64"), ArraySpec("goal", (), "int64"))
"""What a newcomer gets besides the algorithm's state: updates so far, and the version of its first `BatchGoal`."""


def goal_specs(writers: int, statistics: Sequence[ArraySpec]) -> tuple[ArraySpec, ...]:
    """The arrays of board ``goals``: the fields of a `Goal`, and the running statistics to reach it with."""
    return (
        *statistics,
        ArraySpec("last", (), "int64"),
        ArraySpec("taken", (writers,), "int64"),
        ArraySpec("progress", (), "float64"),
        ArraySpec("meeting", (), "int64"),
    )


def goal_values(goal: Goal, meeting: int) -> Arrays:
    """A goal as arrays of board ``goals``. It is for the learners of this ``meeting``."""
    numbers = {"last": np.array(goal.last), "progress": np.array(goal.progress), "meeting": np.array(meeting)}
    return {**numbers, "taken": np.array(goal.taken, np.int64)}


def batch_specs(rollouts_per_batch: int) -> tuple[ArraySpec, ...]:
    """The arrays of board ``goals``: the fields of a `BatchGoal`."""
    return (
        ArraySpec("slots", (rollouts_per_batch,), "int64"),
        ArraySpec("update", (), "int64"),
        ArraySpec("progress", (), "float64"),
    )


def batch_values(batch: BatchGoal) -> Mapping[str, Array]:
    """A batch as arrays of board ``goals``."""
    return {
        "slots": np.array(batch.slots, np.int64),
        "update": np.array(batch.update),
        "progress": np.array(batch.progress),
    }
