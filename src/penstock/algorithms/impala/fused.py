"""IMPALA as one native update: V-trace and the plain policy gradient in ``kernels``. The schedule is PPO's.

Imports no torch. Does not run images, shared trunks, policies with memory and devices: those run ``learn.py``.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from penstock.algorithm import Fused, StreamShape, Tensors
from penstock.algorithms.impala.rollouts import targets
from penstock.algorithms.impala.spec import IMPALAConfig
from penstock.algorithms.ppo.fused import ScheduledUpdate, loss_of, parameters_of, supports
from penstock.algorithms.ppo.rollouts import statistics
from penstock.algorithms.ppo.spec import policy_graph
from penstock.kernels.pace import Pace
from penstock.kernels.update import ActorCriticLoss, CorrectedUpdate, LaneCorrection, Moments
from penstock.policies.native import layout_of
from penstock.types import Array, Spaces

__all__ = ["LaneUpdate", "build", "objective", "supports"]


def build(spaces: Spaces, config: IMPALAConfig) -> Fused:
    """IMPALA on ``spaces`` without torch. Check with `supports` first that the native update can train the policy."""
    graph = policy_graph(spaces, config)

    def update(shape: StreamShape, threads: int) -> "LaneUpdate":
        kernel = CorrectedUpdate(layout_of(graph), objective(config), _lanes(config, shape), shape.rows)
        return LaneUpdate(kernel, config, Pace(threads), shape.steps * parameters_of(graph), shape)

    return Fused(partial(targets, config), partial(statistics, graph), update)


def objective(config: IMPALAConfig) -> ActorCriticLoss:
    """The plain policy gradient with its value and entropy terms, and the optimizer."""
    return loss_of(config, clip_param=None, normalize_advantage=config.normalize_advantage)


class LaneUpdate(ScheduledUpdate):
    """IMPALA's native update, which knows the size of the advantages of a minibatch of lanes.

    Args:
        kernel: the native update.
        config: gives the learning rate and its schedule.
        pace: gives the number of threads. The results are the same bit for bit.
        work: rows times parameters of one lane.
        shape: of the stream.
    """

    def __init__(
        self, kernel: CorrectedUpdate, config: IMPALAConfig, pace: Pace, work: int, shape: StreamShape
    ) -> None:
        super().__init__(kernel, config, pace, work, normalizes=config.normalize_advantage)
        self._behind = np.arange(shape.steps) * shape.lanes
        self._rows: Tensors = {}

    def pack(self, state: Tensors, rows: Tensors, first: int, count: int) -> None:
        """Take flat rows ``first .. first + count - 1`` of a batch."""
        self._rows = rows
        self._kernel.pack(state, rows, first, count)

    def across_minibatch(self, indices: Array, mean: Callable[[Array], float]) -> Moments | None:
        """The size of a minibatch's advantages as a deviation from 0, if the loss normalises them."""
        if not self._normalizes:
            return None
        through = indices[:, None] + self._behind
        valid = self._rows["valid"][through]
        squares = np.where(valid, self._rows["size"][through].astype(np.float64), 0.0) ** 2
        # A lane counts by its valid rows: the mean over rows is the quotient of two means over lanes.
        count = mean(valid.sum(1).astype(np.float64))
        return Moments(0.0, math.sqrt(mean(squares.sum(1)) / max(count, 1e-8)))


def _lanes(config: IMPALAConfig, shape: StreamShape) -> LaneCorrection:
    return LaneCorrection(
        shape.steps,
        shape.lanes,
        config.gamma,
        config.gae_lambda,
        config.rho_bar,
        config.c_bar,
        reward_limit=1.0 if config.clip_reward else math.inf,
    )
