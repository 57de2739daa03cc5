"""Synchronous advantage actor-critic over parallel environments, PAAC (Clemente et al. 2017).

https://arxiv.org/abs/1705.04862, the synchronous form of A3C (Mnih et al. 2016, https://arxiv.org/abs/1602.01783).

    gradient of  E[ -A log pi(a | s) + c1 (R - V(s))^2 - c2 S[pi(. | s)] ]                    (equations 4 and 5)
    A = R - V(s),   R = sum_i gamma^i r_i + gamma^n V(s_n)

It is PPO with one epoch and no clip; what does not differ is PPO's.

Deviations: actor and critic share no layers unless the observation is an image; with ``gae_lambda`` below 1 the
advantage is a generalised estimate; a time limit bootstraps from the value of the last observation; a batch of more
rows than ``mini_batch_size`` takes several steps, the later ones with a policy that is a step ahead of its data.

Functions here know no process, environment, loop or device.
"""

from functools import partial

import torch
from torch import Tensor

from penstock.algorithm import Algorithm, Gradients, Phase, Tensors
from penstock.algorithms.a2c.spec import A2CConfig, init_state
from penstock.algorithms.ppo.learn import act, learning_rate
from penstock.algorithms.ppo.rollouts import statistics, targets
from penstock.algorithms.ppo.spec import policy_graph
from penstock.models.gradients import gradients_of
from penstock.models.policy import Policy, normalised_target
from penstock.network import PolicyGraph
from penstock.ops.losses import normalised, share_of, squared_error
from penstock.ops.optimizers import clip_scale, global_norm, rmsprop
from penstock.types import Spaces

__all__ = ["build", "gradients", "loss", "update"]


def build(spaces: Spaces, config: A2CConfig) -> Algorithm:
    """A2C on ``spaces`` as pure functions."""
    graph = policy_graph(spaces, config)
    policy = Policy(graph, config.precision)
    phase = Phase("actor_critic", partial(gradients, policy, config), partial(update, graph, config))
    return Algorithm(
        init_state=partial(init_state, spaces, config),
        act=partial(act, policy, spaces),
        targets=partial(targets, config),
        statistics=partial(statistics, graph),
        phases=(phase,),
    )


def gradients(policy: Policy, config: A2CConfig, state: Tensors, minibatch: Tensors, noise: Tensors) -> Gradients:
    """The gradient of the loss with respect to each network's flat vector, and the minibatch's metrics."""
    del noise
    names = [network.name for network in policy.graph.networks]
    found, metrics = gradients_of(lambda leaves: loss(policy, config, leaves, minibatch), state, names)
    metrics["grad_norm"] = global_norm(found.values())
    metrics["lr"] = learning_rate(config, state)
    return Gradients(found, metrics, {})


def loss(policy: Policy, config: A2CConfig, state: Tensors, minibatch: Tensors) -> tuple[Tensor, dict[str, Tensor]]:
    """What the gradient descends, over the rows of a minibatch, and what it is made of."""
    share = share_of(minibatch["weight"])
    distribution, value = policy(state, minibatch)
    advantage = minibatch["advantage"]
    if config.normalize_advantage:
        advantage = normalised(advantage, share)
    log_prob = distribution.log_prob(minibatch["action"])
    policy_loss = -torch.dot(share, log_prob * advantage)
    target = minibatch["target"]
    if policy.graph.normalize_value:
        target = normalised_target(target, state)
    value_loss = squared_error(value, target, share)
    entropy = torch.dot(share, distribution.entropy())
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
    return total, {name: metric.detach() for name, metric in metrics.items()}


def update(graph: PolicyGraph, config: A2CConfig, state: Tensors, found: Tensors) -> Tensors:
    """One step of RMSprop down the gradient, clipped by its norm over all networks."""
    scale = clip_scale(found.values(), config.max_grad_norm)
    lr = learning_rate(config, state)
    changed: dict[str, Tensor] = {}
    for network in graph.networks:
        name = network.name
        stepped = rmsprop(state[name], scale * found[name], state[f"rmsprop_v.{name}"], lr, config.rmsprop_eps)
        changed[name], changed[f"rmsprop_v.{name}"] = stepped
    return changed
