"""Deep deterministic policy gradient, DDPG (Lillicrap et al. 2016, https://arxiv.org/abs/1509.02971).

    y        = r + gamma Q'(s', mu'(s'))
    L(theta) = E[ (Q(s, a) - y)^2 ]                                                                    (equation 4)
    J(phi)   = E[ -Q(s, mu(s)) ],   then both targets move by tau                                      (algorithm 1)

It is TD3 with one critic, no delay and no smoothing.

Deviations:

- The noise on actions is normal, and independent from step to step. Fujimoto et al. 2018 found it as good as the
  process of the paper.
- The critic takes the action in its first layer.
- There is no batch normalisation and no weight decay.

Functions here know no process, environment, loop or device.
"""

from penstock.algorithm import Algorithm
from penstock.algorithms.ddpg.spec import NAME, DDPGConfig, as_td3
from penstock.algorithms.td3 import learn as td3
from penstock.types import Spaces

__all__ = ["build"]


def build(spaces: Spaces, config: DDPGConfig) -> Algorithm:
    """DDPG on ``spaces`` as pure functions."""
    return td3.build(spaces, as_td3(config), NAME)
