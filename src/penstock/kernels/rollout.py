"""The writer of a rollout's rows: what a source gave in one vector step, stored by one call.

It does not know of episodes: the lanes that ended or were reset are only counted, and the loop sees to them.
"""

from collections.abc import Sequence

from penstock.kernels import _native
from penstock.types import Array, Arrays

__all__ = ["RolloutWriter", "rollout_writer"]

RolloutWriter = _native.RolloutWriter
"""A slot's rows, ready to be written: ``store(t, result)``. See `rollout_writer`."""


def rollout_writer(slot: Arrays, fields: Sequence[str], episode_return: Array, episode_length: Array) -> RolloutWriter:
    """Check a slot's arrays once, for a loop that stores one vector step at a time.

    Args:
        slot: arrays ``[T + 1, lanes, ...]``: ``reward`` float32, ``terminated``, ``truncated`` and ``valid`` bool, and
            the observation fields.
        fields: names of the observation fields.
        episode_return: ``[lanes]`` float64, of each lane's episode so far; several slots may share it.
        episode_length: ``[lanes]`` int64, likewise.

    Returns:
        ``store(t, result)`` writes a `penstock.types.StepResult` into row t of reward, flags and validity and row t + 1
        of the observations, adds rewards and steps to the episodes, and returns how many lanes ended or were reset. It
        raises ``IndexError`` for a step that is not there, ``KeyError`` for a missing field, and ``ValueError`` for an
        array of another shape or dtype. A result that is the very object of the last call is not checked again.
    """
    return RolloutWriter(
        slot["reward"],
        slot["terminated"],
        slot["truncated"],
        slot["valid"],
        list(fields),
        [slot[name] for name in fields],
        episode_return,
        episode_length,
    )
