"""Twin delayed deep deterministic policy gradient, TD3 (Fujimoto et al. 2018, https://arxiv.org/abs/1802.09477).

    a' = clip(mu'(s') + clip(smoothing * noise, -c, c), -1, 1)                                       (equation 14)
    y  = r + gamma min_j Q'_j(s', a')                                                                (equation 10)
    L(theta_i) = E[ (Q_i(s, a) - y)^2 ],   every step
    J(phi)     = E[ -Q_1(s, mu(s)) ],      every d-th step, then all targets move by tau             (algorithm 1)

Deviations: the number of critics is a setting. A time limit bootstraps from the last observation.

Functions here know no process, environment, loop or device.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from penstock.algorithm import Algorithm, Gradients, Phase, Tensors
from penstock.algorithms.off_policy.critics import critic_network
from penstock.algorithms.off_policy.learn import (
    Networks,
    algorithm_of,
    critic_input,
    imitation,
    move_target,
    networks_of,
    next_obs,
    step_vector,
)
from penstock.algorithms.off_policy.spec import ContinuousConfig
from penstock.algorithms.optimizer.loss_scale import scale_of, scaled
from penstock.algorithms.optimizer.spec import Layout
from penstock.algorithms.td3.spec import TD3Config, policy_graph
from penstock.ops.losses import share_of
from penstock.torch_networks.gradients import gradients_of
from penstock.types import Spaces

__all__ = ["actor_loss", "actor_update", "build", "critic_loss", "critic_target", "critic_update"]


def build(spaces: Spaces, config: TD3Config, algorithm: str = "td3") -> Algorithm:
    """TD3 on ``spaces`` as pure functions. Error texts name ``algorithm``."""
    graph = policy_graph(spaces, config, algorithm)
    networks = networks_of(graph, config, critic_network(graph, config), config.critics)
    critic = Phase(
        "critic",
        partial(critic_gradients, networks, config),
        partial(critic_update, networks.layouts(), config),
        noise=(("smoothing", graph.head.noise), *networks.dropout("next_value"), *networks.dropout("value")),
    )
    actor = Phase(
        "actor",
        partial(actor_gradients, networks, config),
        partial(actor_update, networks.layouts(), config),
        every=config.policy_delay,
        noise=networks.dropout("value"),
    )
    return algorithm_of(networks.policy, spaces, scaled(critic, "critic"), scaled(actor, "actor"))


def critic_target(  # noqa: PLR0917 - as the mathematics reads
    networks: Networks,
    config: TD3Config,
    state: Tensors,
    minibatch: Tensors,
    noise: Tensor,
    dropped: Sequence[Tensor] = (),
) -> Tensor:
    """``y`` of equation 10, with the smoothed action of equation 14: ``[m]``."""
    obs = next_obs(networks.policy, minibatch)
    clip = config.smoothing_clip
    action = torch.tanh(networks.policy.output({**state, "actor": state["target.actor"]}, obs))
    action = (action + (config.smoothing * noise).clamp(-clip, clip)).clamp(-1.0, 1.0)
    values = networks.values(state, "target.critic", obs, action, dropped).squeeze(2)
    target: Tensor = minibatch["reward"] + minibatch["discount"] * values.amin(0)
    return target


def critic_loss(
    networks: Networks, state: Tensors, minibatch: Tensors, target: Tensor, dropped: Sequence[Tensor] = ()
) -> tuple[Tensor, dict[str, Tensor]]:
    """``sum_i L(theta_i)`` over the rows of a minibatch, and its metrics."""
    share = share_of(minibatch["weight"])
    values = networks.values(state, "critic", minibatch, minibatch["action"], dropped).squeeze(2)
    loss = ((values - target).square() @ share).sum()
    return loss, {"value_loss": loss.detach(), "mean_value": (values.detach() @ share).mean()}


def critic_gradients(
    networks: Networks, config: TD3Config, state: Tensors, minibatch: Tensors, noise: Tensors
) -> Gradients:
    """The gradient of the critics' loss with respect to all critics."""
    with torch.no_grad():
        target = critic_target(
            networks, config, state, minibatch, noise["smoothing"], networks.dropped(noise, "next_value")
        )
    dropped = networks.dropped(noise, "value")
    gradients, metrics = gradients_of(
        lambda leaves: critic_loss(networks, leaves, minibatch, target, dropped),
        state,
        ["critic"],
        scale_of(state, "critic"),
    )
    return Gradients(gradients, metrics, {})


def critic_update(layouts: Mapping[str, Layout], config: TD3Config, state: Tensors, gradients: Tensors) -> Tensors:
    """One step for all critics."""
    return step_vector(layouts, config, state, "critic", gradients["critic"], config.critic_lr)


def actor_loss(
    networks: Networks, config: ContinuousConfig, state: Tensors, minibatch: Tensors, dropped: Sequence[Tensor] = ()
) -> tuple[Tensor, dict[str, Tensor]]:
    """``J(phi)`` over the rows of a minibatch, with ``imitation`` of demonstrations, and its metrics."""
    action = torch.tanh(networks.policy.output(state, minibatch))
    values = networks.critics.first(state["critic"], critic_input(networks, state, minibatch, action), dropped).squeeze(
        1
    )
    loss = torch.dot(share_of(minibatch["weight"]), imitation(config, minibatch, action, values) - values)
    return loss, {"policy_loss": loss.detach()}


def actor_gradients(
    networks: Networks, config: ContinuousConfig, state: Tensors, minibatch: Tensors, noise: Tensors
) -> Gradients:
    """The deterministic policy gradient."""
    dropped = networks.dropped(noise, "value")
    gradients, metrics = gradients_of(
        lambda leaves: actor_loss(networks, config, leaves, minibatch, dropped),
        state,
        ["actor"],
        scale_of(state, "actor"),
    )
    return Gradients(gradients, metrics, {})


def actor_update(layouts: Mapping[str, Layout], config: TD3Config, state: Tensors, gradients: Tensors) -> Tensors:
    """One step for the actor; then all targets move by tau."""
    changed = step_vector(layouts, config, state, "actor", gradients["actor"], config.lr)
    changed |= move_target(state, "actor", changed["actor"], config.tau)
    return changed | move_target(state, "critic", state["critic"], config.tau)
