"""Soft actor-critic with a memory, on sequences from a table.

    h_t      = the critics' memory of o_0 .. o_t;   Q_i(h_t, a_t)
    y_t      = r_t + gamma (min_j Q'_j(h'_t+1, a') - alpha log pi(a' | o_0 .. o_t+1))
    J_Q, J_pi, J(alpha) as without a memory, over the rows of sequences behind their burn-in

The actor has a memory, and all critics share another. Each memory is trained by the loss of its own side. In one memory
for both, the critics' loss drowns the actor's (Ni et al. 2022, https://arxiv.org/abs/2110.05038).

The actor's memory begins a sequence with the carry that was stored when the sequence was collected. The critics do not
act, so no carry of theirs is stored. Their memory begins at zero; the burn-in is all it knows of earlier steps.

Functions here know no process, environment, loop or device.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.algorithm import Algorithm, Gradients, Phase, Tensors
from penstock.algorithms.off_policy.critics import critic_encoding, critic_of_features, memory_network
from penstock.algorithms.off_policy.learn import algorithm_of, move_target, step_vector
from penstock.algorithms.off_policy.sequences import behind_burn_in, learned_rows
from penstock.algorithms.optimizer.loss_scale import scale_of, scaled
from penstock.algorithms.optimizer.spec import NUMBERS, Layout, layout_of
from penstock.algorithms.sac.spec import SACConfig
from penstock.algorithms.sac.steps import actor_update, temperature_gradient
from penstock.ops.n_step import n_step_returns
from penstock.policies import Encoding, PolicyGraph, SquashedGaussian
from penstock.torch_networks.forward import Ensemble, Forward, Memory
from penstock.torch_networks.gradients import gradients_of
from penstock.torch_networks.policy import Policy, squashed
from penstock.types import NoiseSpec, Spaces

__all__ = ["Networks", "build", "networks_of", "remembered", "sampled", "values"]


class Networks(NamedTuple):
    """An actor with a memory, the critics' memory, and critics of what it remembers."""

    policy: Policy
    memory: Forward
    critics: Ensemble
    encoding: Sequence[Encoding]
    """How the critics see observations."""
    carry: dict[str, int]
    """Width of each array of the critics' carry."""
    config: SACConfig

    def dropout(self, use: str) -> tuple[tuple[str, NoiseSpec], ...]:
        """Names and specs of the noise of the critics' dropout, for one use of them in a phase; empty without it."""
        shape = (self.config.learned_steps + 1, self.critics.count)
        sizes = (part.shape for part in self.critics.network.dropout)
        return tuple((f"{use}.{number}", NoiseSpec("uniform", (*shape, *size))) for number, size in enumerate(sizes))

    def dropped(self, noise: Tensors, use: str) -> list[Tensor]:
        """The noise of dropout for this use among the noise of a phase: ``[m n, critics, size]`` each."""
        return [noise[name].flatten(0, 1) for name, _ in self.dropout(use)]


def build(spaces: Spaces, config: SACConfig, graph: PolicyGraph) -> Algorithm:
    """SAC on ``spaces`` as pure functions, for a policy with memory."""
    networks = networks_of(graph, config)
    noise = NoiseSpec("normal", (config.learned_steps + 1, *graph.head.noise.shape))
    layouts = {
        "actor": layout_of(graph.actor),
        "memory": layout_of(memory_network(graph, config)),
        "critic": layout_of(networks.critics.network, networks.critics.count),
        "log_alpha": NUMBERS,
    }
    critic = Phase(
        "critic",
        partial(critic_gradients, networks),
        partial(critic_update, layouts, config),
        noise=(("action", noise), *networks.dropout("next_value"), *networks.dropout("value")),
    )
    actor = Phase(
        "actor",
        partial(actor_gradients, networks),
        partial(actor_update, layouts, config),
        every=config.policy_delay,
        noise=(("action", noise), *networks.dropout("value")),
    )
    return algorithm_of(networks.policy, spaces, scaled(critic, "critic"), scaled(actor, "actor"))


def networks_of(graph: PolicyGraph, config: SACConfig) -> Networks:
    """The networks of ``config`` around the actor of ``graph``."""
    memory, encoding = memory_network(graph, config), critic_encoding(graph, config)
    return Networks(
        Policy(graph, config.precision),
        Forward(memory, encoding),
        Ensemble(critic_of_features(graph, config), config.critics),
        encoding,
        {part.name: part.size for part in memory.carry},
        config,
    )


def critic_gradients(networks: Networks, state: Tensors, minibatch: Tensors, noise: Tensors) -> Gradients:
    """The gradient of ``J_Q`` with respect to all critics and their memory."""
    rows, share = learned_rows(minibatch, networks.config.burn_in), _share(networks, minibatch)
    with torch.no_grad():
        action, log_prob = sampled(networks, state, minibatch, noise["action"])
        seen = remembered(networks, state, "target.memory", minibatch)
        following = values(networks, state["target.critic"], seen, action, networks.dropped(noise, "next_value"))
        soft = following.amin(0) - state["log_alpha"].exp() * log_prob
        reward, terminated, valid = (rows[name][:, :-1] for name in ("reward", "terminated", "valid"))
        target = n_step_returns(reward, terminated, valid, soft, gamma=networks.config.gamma, n_step=1)

    def loss(leaves: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        seen = remembered(networks, leaves, "memory", minibatch)
        found = values(networks, leaves["critic"], seen, rows["action"], networks.dropped(noise, "value"))[:, :, :-1]
        return 0.5 * ((found - target).square() * share).sum(), found.detach()

    gradient, judged = gradients_of(loss, state, ["memory", "critic"], scale_of(state, "critic"))
    error = 0.5 * ((judged - target).square() * share).sum()
    return Gradients(gradient, {"value_loss": error, "mean_value": (judged * share).sum((1, 2)).mean()}, {})


def critic_update(layouts: Mapping[str, Layout], config: SACConfig, state: Tensors, gradients: Tensors) -> Tensors:
    """One step for all critics and their memory; then the targets move by tau."""
    changed: dict[str, Tensor] = {}
    for name in ("memory", "critic"):
        changed |= step_vector(layouts, config, state, name, gradients[name], config.critic_lr)
        changed |= move_target(state, name, changed[name], config.tau)
    return changed


def actor_gradients(networks: Networks, state: Tensors, minibatch: Tensors, noise: Tensors) -> Gradients:
    """The gradients of ``J_pi`` and, where the temperature is learned, of ``J(alpha)``."""
    share = _share(networks, minibatch)
    with torch.no_grad():
        seen = remembered(networks, state, "memory", minibatch)

    def loss(leaves: dict[str, Tensor]) -> tuple[Tensor, Tensors]:
        action, log_prob = sampled(networks, leaves, minibatch, noise["action"])
        judged = values(networks, state["critic"], seen, action, networks.dropped(noise, "value"))
        each = state["log_alpha"].exp() * log_prob - judged.amin(0)
        policy_loss = (each[:, :-1] * share).sum()
        entropy = -(log_prob.detach()[:, :-1] * share).sum()
        return policy_loss, {"policy_loss": policy_loss.detach(), "entropy": entropy}

    gradients, found = gradients_of(loss, state, ["actor"], scale_of(state, "actor"))
    metrics = {**found, "temperature": state["log_alpha"].exp().squeeze(0)}
    gradients |= temperature_gradient(networks.config, found["entropy"], noise["action"].shape[2])
    return Gradients(gradients, metrics, {})


def _share(networks: Networks, minibatch: Tensors) -> Tensor:
    """``w / sum w`` of the learned rows, ``[m, learned_steps]``."""
    weight: Tensor = minibatch["weight"][:, networks.config.burn_in :]
    return weight / weight.sum().clamp(min=1.0)


def sampled(networks: Networks, state: Tensors, minibatch: Tensors, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions ``[m, n, size]`` of the learned rows and of the row behind them, and their log-probabilities."""
    policy, head = networks.policy, networks.policy.graph.head
    if not isinstance(head, SquashedGaussian):
        raise TypeError(f"the policy's head is {head}, not a SquashedGaussian")
    carry = {part.name: minibatch[part.name] for part in policy.graph.carry}
    detached = {**state, "actor": state["actor"].detach()}
    rows = behind_burn_in(
        lambda part: policy.unrolled(detached, part).carry,
        minibatch,
        policy.graph.fields,
        carry,
        networks.config.burn_in,
    )
    output = policy.unrolled(state, rows).output
    action, log_prob = squashed(head, output).sample_with_log_prob(noise.flatten(0, 1))
    shape = rows["first"].shape
    return action.view(*shape, -1), log_prob.view(shape)


def remembered(networks: Networks, state: Tensors, name: str, minibatch: Tensors) -> Tensor:
    """What the critics' memory ``state[name]`` gives of the learned rows and the row behind them: ``[m, n, size]``."""
    parameters: Tensor = state[name]
    count, fields = len(minibatch["first"]), networks.policy.graph.fields

    def run(vector: Tensor, rows: Tensors) -> tuple[Tensor, dict[str, Tensor]]:
        flat = {name: rows[name].flatten(0, 1) for name in fields}
        features = networks.policy.encoded(networks.encoding, state, flat, vector.dtype)
        found = networks.memory(vector, features, Memory(rows["first"], {name: rows[name] for name in networks.carry}))
        return found.output, found.carry

    zero = {name: parameters.new_zeros((count, size)) for name, size in networks.carry.items()}
    rows = behind_burn_in(
        lambda part: run(parameters.detach(), part)[1], minibatch, fields, zero, networks.config.burn_in
    )
    return run(parameters, rows)[0].view(*rows["first"].shape, -1)


def values(
    networks: Networks, parameters: Tensor, seen: Tensor, action: Tensor, dropped: Sequence[Tensor] = ()
) -> Tensor:
    """The critics' values ``[critics, m, n]`` of what is `remembered` and of actions ``[m, n, ...]``.

    ``dropped`` is the noise of dropout; empty: nothing is dropped.
    """
    count, rows = seen.shape[:2]
    x = torch.cat([seen.flatten(0, 1), action.reshape(count * rows, -1)], 1)
    x = x.to(networks.policy.compute_dtype(x.dtype))
    return networks.critics(parameters, x, dropped).view(-1, count, rows)
