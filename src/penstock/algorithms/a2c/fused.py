"""A2C as one native update: the plain policy gradient in ``kernels``. All other code is PPO's.

Imports no torch. Does not run images, shared trunks and devices: those run ``learn.py``.
"""

from penstock.algorithm import Fused
from penstock.algorithms.a2c.spec import A2CConfig
from penstock.algorithms.ppo.fused import fused, loss_of, supports
from penstock.algorithms.ppo.spec import policy_graph
from penstock.types import Spaces

__all__ = ["build", "supports"]


def build(spaces: Spaces, config: A2CConfig) -> Fused:
    """A2C on ``spaces`` without torch. Check with `supports` first that the native update can train the policy."""
    loss = loss_of(config, clip_param=None, normalize_advantage=config.normalize_advantage)
    return fused(policy_graph(spaces, config), config, loss)
