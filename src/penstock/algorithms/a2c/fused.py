"""A2C as one native update: the plain policy gradient and RMSprop in ``kernels``. All other code is PPO's.

Imports no torch. Does not run images, shared trunks and devices: those run ``learn.py``.
"""

from functools import partial

from penstock.algorithm import Fused
from penstock.algorithms.a2c.spec import A2CConfig, init_state
from penstock.algorithms.ppo.fused import fused
from penstock.algorithms.ppo.spec import policy_graph
from penstock.kernels.update import MIN_EPSILON, ActorCriticLoss
from penstock.policies import PolicyGraph
from penstock.policies.native import supports_update
from penstock.types import Spaces

__all__ = ["build", "supports"]


def supports(graph: PolicyGraph, config: A2CConfig) -> bool:
    """True if the native update can train ``graph`` with ``config``."""
    return supports_update(graph) and config.rmsprop_eps >= MIN_EPSILON


def build(spaces: Spaces, config: A2CConfig) -> Fused:
    """A2C on ``spaces`` without torch. Check with `supports` first that the native update can train the policy."""
    loss = ActorCriticLoss(
        clip_param=None,
        value_coef=config.value_coef,
        entropy_coef=config.entropy_coef,
        max_grad_norm=config.max_grad_norm,
        normalize_advantage=config.normalize_advantage,
        optimizer="rmsprop",
        epsilon=config.rmsprop_eps,
    )
    return fused(partial(init_state, spaces, config), policy_graph(spaces, config), config, loss)
