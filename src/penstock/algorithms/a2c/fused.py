"""A2C as one native update: the plain policy gradient in ``kernels``. All other code is PPO's.

Imports no torch. Does not run images, shared trunks and devices: those run ``learn.py``.
"""

from functools import partial

from penstock.algorithm import Fused
from penstock.algorithms.a2c.spec import A2CConfig, init_state
from penstock.algorithms.optimizer.fused import native_optimizer
from penstock.algorithms.ppo.fused import fused, supports
from penstock.algorithms.ppo.spec import policy_graph
from penstock.kernels.update import ActorCriticLoss
from penstock.types import Spaces

__all__ = ["build", "supports"]


def build(spaces: Spaces, config: A2CConfig) -> Fused:
    """A2C on ``spaces`` without torch. Check with `supports` first that the native update can train the policy."""
    loss = ActorCriticLoss(
        clip_param=None,
        value_coef=config.value_coef,
        entropy_coef=config.entropy_coef,
        max_grad_norm=config.max_grad_norm,
        clip_apart=config.clip_apart,
        normalize_advantage=config.normalize_advantage,
        optimizer=native_optimizer(config),
    )
    return fused(partial(init_state, spaces, config), policy_graph(spaces, config), config, loss)
