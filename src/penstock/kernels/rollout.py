"""Writes a rollout: one call stores the result of one vector step and the episodes that ended in it.

Does not step environments and does not number episodes.
"""

from collections.abc import Sequence

from penstock.kernels import _native
from penstock.types import Array, Arrays

__all__ = ["RolloutWriter", "rollout_writer"]

RolloutWriter = _native.RolloutWriter
"""Writes the arrays of one slot: ``store(t, result)``. See `rollout_writer`."""


def rollout_writer(
    slot: Arrays, fields: Sequence[str], *, same_step: bool, running_return: Array, running_length: Array
) -> RolloutWriter:
    """Check a slot's arrays once, for a loop that stores one vector step at a time.

    Args:
        slot: the arrays of one slot, as `penstock.program.rollout.rollout_specs` describes them.
        fields: names of the observation fields.
        same_step: whether the source resets in the same step.
        running_return: ``[lanes]`` float64, return of each lane's episode so far; all slots share it.
        running_length: ``[lanes]`` int64, length of each lane's episode so far; all slots share it.

    Returns:
        ``store(t, result)`` takes a `penstock.types.StepResult` and does this:

        1. Writes row t of reward, flags and validity, and row t + 1 of the observations.
        2. Adds rewards and steps to the running returns and lengths.
        3. Appends each episode that ended to the side area of episodes, at ``episode_count``.
        4. Appends the last observation of each truncated episode to the side area of finals, at ``final_count``
           (same-step sources only).
        5. Returns the lanes whose next episode begins with row t + 1. Their running return and length are 0.

        It raises ``IndexError`` for a step outside the slot or a full side area, ``KeyError`` for a missing field, and
        ``ValueError`` for an array of another shape or dtype. It does not check the same object twice in a row.
    """
    return RolloutWriter(slot, list(fields), same_step, running_return, running_length)
