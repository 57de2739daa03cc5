"""REINFORCE with a baseline: the gradient of ``E[-A log pi(a | s) + (R - V(s))^2 / 2 - c S[pi(. | s)]]``.

A is ``R - V(s)``, shifted and scaled in each minibatch.

Pure functions on named torch tensors. They know no process, environment, loop or device.
"""

from functools import partial

import torch

from penstock.algorithm import Algorithm, Gradients, Phase, Tensors
from penstock.ops.losses import normalised, share_of
from penstock.ops.optimizers import Adam, adam
from penstock.ops.returns import advantages
from penstock.torch_networks.gradients import gradients_of
from penstock.torch_networks.policy import Policy
from penstock.types import Spaces

from .spec import Reinforce, policy_graph


def build(spaces: Spaces, config: Reinforce) -> Algorithm:
    """REINFORCE on ``spaces``."""
    policy = Policy(policy_graph(spaces, config))
    return Algorithm(
        act=policy.act,
        targets=partial(targets, config),
        statistics=lambda state, rollout: {},
        phases=(Phase("reinforce", partial(gradients, policy, config), partial(step, config)),),
        across_minibatch=lambda rows, mean: {"advantage": normalised(rows["advantage"], mean)},
    )


def targets(config: Reinforce, state: Tensors, rollout: Tensors) -> Tensors:
    """The return R of each step, and its difference from the baseline: NumPy ``[T, B]``."""
    advantage, target = advantages(rollout, config.gamma, gae_lambda=1.0)
    return {"advantage": advantage, "target": target}


def gradients(policy: Policy, config: Reinforce, state: Tensors, minibatch: Tensors, noise: Tensors) -> Gradients:
    """The gradients of both networks, as means over the rows that count, and their metrics."""
    share = share_of(minibatch["weight"])

    def loss(leaves: Tensors) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        distribution, value, _ = policy(leaves, minibatch)
        acting = -torch.dot(share, minibatch["advantage"] * distribution.log_prob(minibatch["action"]))
        value_loss = 0.5 * torch.dot(share, (value - minibatch["target"]).square())
        entropy = torch.dot(share, distribution.entropy())
        shown = {"policy_loss": acting, "value_loss": value_loss, "entropy": entropy}
        return acting + value_loss - config.entropy_coef * entropy, {name: one.detach() for name, one in shown.items()}

    found, metrics = gradients_of(loss, state, [network.name for network in policy.graph.networks])
    return Gradients(found, metrics, {})


def step(config: Reinforce, state: Tensors, gradients: Tensors) -> Tensors:
    """One step of Adam for each network."""
    changed = {"adam_step": state["adam_step"] + 1}
    for name, gradient in gradients.items():
        at = Adam(state[name], state[f"adam_m.{name}"], state[f"adam_v.{name}"])
        at = adam(at, gradient, changed["adam_step"], config.lr, 1e-8)
        changed[name], changed[f"adam_m.{name}"], changed[f"adam_v.{name}"] = at
    return changed
