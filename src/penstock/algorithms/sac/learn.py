"""Soft actor-critic with a learned temperature (Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905).

    J_Q(theta_i) = E[ 1/2 (Q_i(s, a) - y)^2 ],   y = r + gamma (min_j Q'_j(s', a') - alpha log pi(a' | s'))    (eq. 5)
    J_pi(phi)    = E[ alpha log pi(a~ | s) - min_j Q_j(s, a~) ],   a~ = tanh(mu + sigma noise)                 (eq. 9)
    J(alpha)     = E[ -alpha (log pi(a~ | s) + H) ],   H = -(elements of an action)                           (eq. 18)
    Q'_i         = (1 - tau) Q'_i + tau Q_i

Deviations:

- The number of critics is a setting.
- The logarithm of the temperature is learned. Its gradient leaves out the factor alpha, as in the authors' code.
- The temperature's step uses the actions that the actor's step sampled. This saves a pass through the actor.
- A time limit bootstraps from the last observation.

With a memory (``model`` lstm or gru) the update is that of ``recurrent.py``.

Functions here know no process, environment, loop or device.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.algorithm import Algorithm, Gradients, Phase, Tensors
from penstock.algorithms.off_policy.critics import critic_network
from penstock.algorithms.off_policy.learn import (
    Networks,
    algorithm_of,
    imitation,
    move_target,
    networks_of,
    next_obs,
    step_vector,
)
from penstock.algorithms.optimizer.loss_scale import scale_of, scaled
from penstock.algorithms.optimizer.spec import Layout
from penstock.algorithms.sac import recurrent
from penstock.algorithms.sac.spec import EntropyConfig, SACConfig, actor_graph
from penstock.algorithms.sac.steps import actor_update, temperature_gradient
from penstock.ops.losses import share_of
from penstock.policies import SquashedGaussian
from penstock.torch_networks.gradients import gradients_of
from penstock.torch_networks.policy import Policy, squashed
from penstock.types import Spaces

__all__ = [
    "Sample",
    "actor_gradients",
    "actor_loss",
    "actor_update",
    "build",
    "critic_loss",
    "critic_target",
    "sampled",
]


class Sample(NamedTuple):
    """Actions that were sampled from the policy, and their log-probabilities."""

    action: Tensor
    """``[n, size]``."""
    log_prob: Tensor
    """``[n]``."""


def build(spaces: Spaces, config: SACConfig) -> Algorithm:
    """SAC on ``spaces`` as pure functions."""
    graph = actor_graph(spaces, config)
    if graph.carry:
        return recurrent.build(spaces, config, graph)
    networks = networks_of(graph, config, critic_network(graph, config), config.critics)
    noise, layouts = graph.head.noise, networks.layouts()
    critic = Phase(
        "critic",
        partial(critic_gradients, networks),
        partial(critic_update, layouts, config),
        noise=(("next_action", noise), *networks.dropout("next_value"), *networks.dropout("value")),
    )
    actor = Phase(
        "actor",
        partial(actor_gradients, networks, config),
        partial(actor_update, layouts, config),
        every=config.policy_delay,
        noise=(("action", noise), *networks.dropout("value")),
    )
    return algorithm_of(networks.policy, spaces, scaled(critic, "critic"), scaled(actor, "actor"))


def sampled(policy: Policy, state: Tensors, obs: Tensors, noise: Tensor) -> Sample:
    """``a ~ pi(. | s)`` and ``log pi(a | s)``, differentiable in the actor."""
    head = policy.graph.head
    if not isinstance(head, SquashedGaussian):
        raise TypeError(f"the policy's head is {head}, not a SquashedGaussian")
    return Sample(*squashed(head, policy.output(state, obs)).sample_with_log_prob(noise))


def critic_target(
    networks: Networks, state: Tensors, minibatch: Tensors, noise: Tensor, dropped: Sequence[Tensor] = ()
) -> Tensor:
    """``y`` of equation 5: ``[m]``."""
    obs = next_obs(networks.policy, minibatch)
    action, log_prob = sampled(networks.policy, state, obs, noise)
    values = networks.values(state, "target.critic", obs, action, dropped).squeeze(2)
    soft = values.amin(0) - state["log_alpha"].exp() * log_prob
    target: Tensor = minibatch["reward"] + minibatch["discount"] * soft
    return target


def critic_loss(
    networks: Networks, state: Tensors, minibatch: Tensors, target: Tensor, dropped: Sequence[Tensor] = ()
) -> tuple[Tensor, dict[str, Tensor]]:
    """``sum_i J_Q(theta_i)`` over the rows of a minibatch, and its metrics."""
    share = share_of(minibatch["weight"])
    values = networks.values(state, "critic", minibatch, minibatch["action"], dropped).squeeze(2)
    loss = 0.5 * ((values - target).square() @ share).sum()
    return loss, {"value_loss": loss.detach(), "mean_value": (values.detach() @ share).mean()}


def critic_gradients(networks: Networks, state: Tensors, minibatch: Tensors, noise: Tensors) -> Gradients:
    """The gradient of ``J_Q`` with respect to all critics."""
    with torch.no_grad():
        target = critic_target(networks, state, minibatch, noise["next_action"], networks.dropped(noise, "next_value"))
    dropped = networks.dropped(noise, "value")
    gradients, metrics = gradients_of(
        lambda leaves: critic_loss(networks, leaves, minibatch, target, dropped),
        state,
        ["critic"],
        scale_of(state, "critic"),
    )
    return Gradients(gradients, metrics, {})


def critic_update(layouts: Mapping[str, Layout], config: SACConfig, state: Tensors, gradients: Tensors) -> Tensors:
    """One step for all critics; then their targets move by tau."""
    changed = step_vector(layouts, config, state, "critic", gradients["critic"], config.critic_lr)
    return changed | move_target(state, "critic", changed["critic"], config.tau)


def actor_loss(  # noqa: PLR0917 - as the mathematics reads
    networks: Networks,
    config: EntropyConfig,
    state: Tensors,
    minibatch: Tensors,
    noise: Tensor,
    dropped: Sequence[Tensor] = (),
) -> tuple[Tensor, dict[str, Tensor]]:
    """``J_pi`` of equation 9 over the rows of a minibatch, with ``imitation`` of demonstrations, and its metrics.

    The entropy is that of the samples.
    """
    share = share_of(minibatch["weight"])
    action, log_prob = sampled(networks.policy, state, minibatch, noise)
    # The first output is the value. DSAC's critics have a second output.
    values = networks.values(state, "critic", minibatch, action, dropped)[:, :, 0].amin(0)
    soft = state["log_alpha"].exp() * log_prob - values
    loss = torch.dot(share, soft + imitation(config, minibatch, action, values))
    return loss, {"policy_loss": loss.detach(), "entropy": -torch.dot(share, log_prob.detach())}


def actor_gradients(
    networks: Networks, config: EntropyConfig, state: Tensors, minibatch: Tensors, noise: Tensors
) -> Gradients:
    """The gradients of ``J_pi`` and, where the temperature is learned, of ``J(alpha)``."""
    dropped = networks.dropped(noise, "value")

    def loss(leaves: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return actor_loss(networks, config, leaves, minibatch, noise["action"], dropped)

    gradients, metrics = gradients_of(loss, state, ["actor"], scale_of(state, "actor"))
    gradients |= temperature_gradient(config, metrics["entropy"], noise["action"].shape[1])
    metrics["temperature"] = state["log_alpha"].exp().squeeze(0)
    return Gradients(gradients, metrics, {})
