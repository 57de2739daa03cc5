"""Distributional soft actor-critic with three refinements, DSAC-T (Duan et al. 2025, https://arxiv.org/abs/2310.05858).

    y_q = r + gamma (min_i Q'_i(s', a') - alpha log pi'(a' | s'))      the mean moves to this expected value
    y_z = r + gamma (Z'_j(s', a') - alpha log pi'(a' | s'))            j is the critic with the smallest mean
    b_i = xi E[sigma_i],   w_i = E[sigma_i^2]                          both are moving averages
    gradient  -(w_i + eps) E[ (y_q - Q_i) / (sigma_i^2 + eps) grad Q_i
                            + ((clip(y_z, Q_i - b_i, Q_i + b_i) - Q_i)^2 - sigma_i^2) / (sigma_i^3 + eps) grad sigma_i ]

Every d-th step, actor and temperature take SAC's step on the smallest Q. Then the targets of actor and critics move by
tau.

Deviations:

- All deviations of SAC.
- A step is scaled by the averages from before the step. So the step is the same for one learner with a whole minibatch
  and for several learners with a part each.

Functions here know no process, environment, loop or device.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.algorithm import Algorithm, Gradients, Phase, Tensors
from penstock.algorithms.dsac.learn import (
    EPSILON,
    Returns,
    actor_phase,
    critic_noise,
    metrics_of,
    return_terms,
    returns_of,
    sampled_return,
)
from penstock.algorithms.dsac.spec import return_network
from penstock.algorithms.dsact.spec import DSACTConfig
from penstock.algorithms.off_policy.learn import Networks, algorithm_of, networks_of, next_obs, step_vector
from penstock.algorithms.optimizer.loss_scale import scale_of, scaled
from penstock.algorithms.optimizer.spec import Layout
from penstock.algorithms.sac.learn import sampled
from penstock.algorithms.sac.spec import policy_graph
from penstock.ops.losses import share_of
from penstock.ops.optimizers import polyak
from penstock.torch_networks.gradients import gradients_of
from penstock.types import Spaces

__all__ = ["Targets", "build", "critic_targets"]


class Targets(NamedTuple):
    """Returns that the critics learn from, ``[m]`` each."""

    expected: Tensor
    """``y_q``: the mean learns from it."""
    sampled: Tensor
    """``y_z``: the deviation learns from it."""


def build(spaces: Spaces, config: DSACTConfig) -> Algorithm:
    """DSAC-T on ``spaces`` as pure functions."""
    graph = policy_graph(spaces, config, "dsact")
    networks = networks_of(graph, config, return_network(graph, config), config.critics)
    critic = Phase(
        "critic",
        partial(critic_gradients, networks, config),
        partial(critic_update, networks.layouts(), config),
        noise=critic_noise(networks),
    )
    return algorithm_of(networks.policy, spaces, scaled(critic, "critic"), actor_phase(networks, config))


def critic_targets(networks: Networks, state: Tensors, minibatch: Tensors, noise: Tensors) -> Targets:
    """``y_q`` and ``y_z``, both from the critic with the smallest mean."""
    obs = next_obs(networks.policy, minibatch)
    action, log_prob = sampled(networks.policy, {**state, "actor": state["target.actor"]}, obs, noise["next_action"])
    returns = returns_of(networks, state, "target.critic", obs, action, networks.dropped(noise, "next_value"))
    smallest = returns.mean.argmin(0, keepdim=True)
    least = Returns(*(part.gather(0, smallest) for part in returns))
    bonus = state["log_alpha"].exp() * log_prob
    reward, discount = minibatch["reward"], minibatch["discount"]
    found = (least.mean, sampled_return(least, noise["next_return"]))
    return Targets(*(reward + discount * (part.squeeze(0) - bonus) for part in found))


def critic_gradients(
    networks: Networks, config: DSACTConfig, state: Tensors, minibatch: Tensors, noise: Tensors
) -> Gradients:
    """The critics' gradient, and the values that their averages move to.

    Both are returned as gradients, because several learners must average both.
    """
    share = share_of(minibatch["weight"])
    with torch.no_grad():
        target = critic_targets(networks, state, minibatch, noise)
    bound = (config.bound_scale * state["mean_deviation"]).unsqueeze(1)

    def loss(leaves: dict[str, Tensor]) -> tuple[Tensor, Returns]:
        returns = returns_of(
            networks, leaves, "critic", minibatch, minibatch["action"], networks.dropped(noise, "value")
        )
        mean = returns.mean.detach()
        bounded = mean + torch.minimum(torch.maximum(target.sampled - mean, -bound), bound)
        terms = return_terms(returns, target.expected, bounded) @ share
        return torch.dot(state["mean_variance"] + EPSILON, terms), returns

    gradients, returns = gradients_of(loss, state, ["critic"], scale_of(state, "critic"))
    deviation = returns.deviation.detach()
    gradients |= {"mean_deviation": deviation @ share, "mean_variance": deviation.square() @ share}
    return Gradients(gradients, metrics_of(returns, target.expected, share), {})


def critic_update(layouts: Mapping[str, Layout], config: DSACTConfig, state: Tensors, gradients: Tensors) -> Tensors:
    """One step for all critics; then their averages move by tau."""
    changed = step_vector(layouts, config, state, "critic", gradients["critic"], config.critic_lr)
    averages = ("mean_deviation", "mean_variance")
    return changed | {name: polyak(state[name], gradients[name], config.tau) for name in averages}
