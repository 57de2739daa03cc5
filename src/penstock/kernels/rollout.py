"""The writer of a rollout: what a source gave in one vector step, and what ended in it, stored by one call.

It steps nothing, and does not number episodes.
"""

from collections.abc import Sequence

from penstock.kernels import _native
from penstock.types import Array, Arrays

__all__ = ["RolloutWriter", "rollout_writer"]

RolloutWriter = _native.RolloutWriter
"""A slot's arrays, ready to be written: ``store(t, result)``. See `rollout_writer`."""


def rollout_writer(
    slot: Arrays, fields: Sequence[str], *, same_step: bool, running_return: Array, running_length: Array
) -> RolloutWriter:
    """Check a slot's arrays once, for a loop that stores one vector step at a time.

    Args:
        slot: the arrays of one slot, as `penstock.program.rollout.rollout_specs` has them.
        fields: names of the observation fields.
        same_step: whether the source is one that resets in the same step.
        running_return: ``[lanes]`` float64, of each lane's episode so far; all slots share it.
        running_length: ``[lanes]`` int64, likewise.

    Returns:
        ``store(t, result)`` writes a `penstock.types.StepResult` into row t of reward, flags and validity and row t + 1
        of the observations, and adds rewards and steps to the running episodes. Those that ended go to the side area of
        episodes, and the last observation of a truncated one to that of finals (same-step sources only), behind what
        ``episode_count`` and ``final_count`` say is there. It returns the lanes whose next episode begins with row
        t + 1, its return and length from 0.

        It raises ``IndexError`` for a step that is not there or a side area that is full, ``KeyError`` for a missing
        field, and ``ValueError`` for an array of another shape or dtype. A result that is the very object of the last
        call is not checked again.
    """
    return RolloutWriter(slot, list(fields), same_step, running_return, running_length)
