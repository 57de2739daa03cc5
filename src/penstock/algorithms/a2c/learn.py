"""Synchronous advantage actor-critic over parallel environments, PAAC (Clemente et al. 2017).

Source: https://arxiv.org/abs/1705.04862. It is the synchronous form of A3C (Mnih et al. 2016,
https://arxiv.org/abs/1602.01783).

    gradient of  E[ -A log pi(a | s) + c1 (R - V(s))^2 - c2 S[pi(. | s)] ]                    (equations 4 and 5)
    A = R - V(s),   R = sum_i gamma^i r_i + gamma^n V(s_n)

It is PPO with one epoch, no clip and by default RMSprop. All other code is PPO's.

Deviations:

- Actor and critic share layers only if the observation is an image.
- With ``gae_lambda`` below 1 the advantage is a generalised estimate.
- A time limit bootstraps from the value of the last observation.
- A batch with more rows than ``mini_batch_size`` takes several steps. From the second step on, the policy is no longer
  the one that collected the rows.

Functions here know no process, environment, loop or device.
"""

import torch
from torch import Tensor

from penstock.algorithm import Algorithm, Tensors
from penstock.algorithms.a2c.spec import A2CConfig
from penstock.algorithms.ppo.learn import Loss, actor_critic, actor_critic_loss
from penstock.torch_networks.policy import Policy
from penstock.types import Spaces

__all__ = ["build", "loss"]


def build(spaces: Spaces, config: A2CConfig) -> Algorithm:
    """A2C on ``spaces`` as pure functions."""
    return actor_critic(spaces, config, loss, normalize_advantage=config.normalize_advantage)


def loss(policy: Policy, config: A2CConfig, state: Tensors, minibatch: Tensors) -> Loss:
    """The loss over the rows of a minibatch, and its metrics."""

    def policy_loss(log_prob: Tensor, advantage: Tensor, share: Tensor) -> Loss:
        return -torch.dot(share, log_prob * advantage), {}

    return actor_critic_loss(policy, config, policy_loss, state, minibatch)
