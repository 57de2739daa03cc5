"""First priorities of new rows, from the values that the policy gave while acting. Imports no torch."""

from collections.abc import Mapping

import numpy as np

from penstock.algorithms.dqn.spec import LEAST_PRIORITY, QConfig
from penstock.envs.masks import mask_in
from penstock.types import Array

__all__ = ["initial_priority"]


def initial_priority(rollout: Mapping[str, Array], config: QConfig) -> Array:
    """``|R + gamma^k max_a q(s', a) - q(s, a)|`` of every row of a slot: float32 ``[T, B]``, 0 where not valid.

    ``R`` sums the rewards of k steps:

    - k is at most n.
    - The row behind the k steps must have a ``q`` in the slot; these are rows 0 to T - 1.
    - A terminated row ends the sum.

    Rows for which there is no such k get the largest priority of the slot: the last row and truncated rows. If the slot
    has none, they get NaN: not known.

    Args:
        rollout: ``q`` ``[T + 1, B, n]``, ``action``, ``reward``, ``terminated``, ``truncated`` and ``valid``
            ``[T + 1, B]``. With action masks also their field ``[T + 1, B, n]``: the maximum is over the possible
            actions.
        config: gives gamma, n and whether rewards are cut to -1 .. 1.

    Source: Horgan et al. 2018, algorithm 1, https://arxiv.org/abs/1803.00933.
    """
    rows = len(rollout["reward"]) - 1
    reward, terminated, truncated, valid = (
        rollout[name][:rows] for name in ("reward", "terminated", "truncated", "valid")
    )
    if config.clip_reward:
        reward = reward.clip(-1.0, 1.0)
    q = rollout["q"][:rows]
    best = _best(q, rollout)
    target, known = np.zeros(reward.shape, np.float64), np.zeros(reward.shape, bool)
    total, going = np.zeros(reward.shape, np.float64), valid.copy()
    for step in range(min(config.n_step, rows)):
        # Row t uses row t + step and the row behind that one.
        begun, here = slice(0, rows - step), slice(step, rows)
        total[begun] += going[begun] * config.gamma**step * reward[here]
        ends = going[begun] & terminated[here]
        target[begun] = np.where(ends, total[begun], target[begun])
        known[begun] |= ends
        going[begun] &= ~(terminated[here] | truncated[here])
        going[rows - step - 1 :] = False
        begun, behind = slice(0, rows - step - 1), slice(step + 1, rows)
        value = total[begun] + config.gamma ** (step + 1) * best[behind]
        target[begun] = np.where(going[begun], value, target[begun])
        known[begun] |= going[begun]
        # A row that is not valid carries the last observation of the row before. No sum goes on behind it.
        going[begun] &= valid[behind]
    taken = np.take_along_axis(q, rollout["action"][:rows, :, None], 2)[:, :, 0]
    priority = np.abs(target - taken) + LEAST_PRIORITY
    seen = priority[known & valid]
    priority = np.where(known, priority, seen.max() if seen.size else np.nan)
    found: Array = np.where(valid, priority, 0.0).astype(np.float32)
    return found


def _best(q: Array, rollout: Mapping[str, Array]) -> Array:
    """The largest value of a possible action: ``[T, B]`` for ``q`` ``[T, B, n]``."""
    mask = mask_in(rollout)
    if mask is None:
        largest: Array = q.max(2)
        return largest
    possible = mask[: len(q)] != 0
    # Nobody acts on a row in which nothing is possible. It counts as one in which everything is.
    possible |= ~possible.any(2, keepdims=True)
    best: Array = np.where(possible, q, -np.inf).max(2)
    return best
