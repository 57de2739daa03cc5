"""IMPALA as one native update: V-trace and the plain policy gradient in ``kernels``. All other code is PPO's.

Imports no torch. Does not run images, shared trunks, policies with memory and devices: those run ``learn.py``.
"""

import math
from functools import partial

from penstock.algorithm import Fused, StreamShape
from penstock.algorithms.impala.rollouts import targets
from penstock.algorithms.impala.spec import IMPALAConfig, init_state
from penstock.algorithms.optimizer.fused import native_optimizer
from penstock.algorithms.ppo.fused import ScheduledUpdate, parameters_of, supports
from penstock.algorithms.ppo.rollouts import statistics
from penstock.algorithms.ppo.spec import policy_graph
from penstock.kernels.pace import Pace
from penstock.kernels.update import ActorCriticLoss, CorrectedUpdate, LaneCorrection
from penstock.policies.native import layout_of
from penstock.types import Spaces

__all__ = ["build", "objective", "supports"]


def build(spaces: Spaces, config: IMPALAConfig) -> Fused:
    """IMPALA on ``spaces`` without torch. Check with `supports` first that the native update can train the policy."""
    graph = policy_graph(spaces, config)

    def update(shape: StreamShape, threads: int) -> ScheduledUpdate:
        kernel = CorrectedUpdate(layout_of(graph), objective(config), _lanes(config, shape), shape.rows)
        return ScheduledUpdate(kernel, config, Pace(threads), shape.steps * parameters_of(graph), normalizes=False)

    return Fused(partial(init_state, spaces, config), partial(targets, config), partial(statistics, graph), update)


def objective(config: IMPALAConfig) -> ActorCriticLoss:
    """The plain policy gradient with its value and entropy terms, and the optimizer."""
    return ActorCriticLoss(
        clip_param=None,
        value_coef=config.value_coef,
        entropy_coef=config.entropy_coef,
        max_grad_norm=config.max_grad_norm,
        clip_apart=config.clip_apart,
        normalize_advantage=False,
        optimizer=native_optimizer(config),
    )


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
