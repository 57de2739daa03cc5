"""Proximal policy optimisation, clipped surrogate (Schulman et al. 2017, https://arxiv.org/abs/1707.06347).

    L(theta) = E[ min(r A, clip(r, 1 - eps, 1 + eps) A) - c1 (V - V_target)^2 + c2 S ]         (equations 7 and 9)
    r        = pi_theta(a | s) / pi_old(a | s)
    A        = sum_l (gamma lambda)^l delta_l,   delta_l = r_l + gamma V(s_l+1) - V(s_l)        (equations 11 and 12)

With ``kl_coef``, L(theta) has one more term, as in section 4: ``- kl_coef KL(pi_old || pi_theta)``. It is estimated on
the actions of the rows. With ``kl_target`` the state holds ``kl_coef``, and learners adapt it after each batch.

Deviations: actor and critic share no layers unless the observation is an image; advantages are normalised in each
minibatch; gradients are clipped by their global norm; a time limit bootstraps from the value of the last observation;
the value loss is not clipped (Andrychowicz et al. 2021, https://arxiv.org/abs/2006.05990, found clipping it to hurt).

Functions here know no process, environment, loop or device.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor

from penstock.algorithm import KL, KL_COEF, Algorithm, Gradients, Phase, Tensors
from penstock.algorithms.optimizer.learn import next_count, optimizer_step
from penstock.algorithms.optimizer.loss_scale import scale_of, scaled
from penstock.algorithms.optimizer.spec import layout_of
from penstock.algorithms.ppo.actor_settings import ActorConfig
from penstock.algorithms.ppo.rollouts import statistics, targets
from penstock.algorithms.ppo.spec import ActorCriticConfig, PPOConfig, policy_graph
from penstock.ops.losses import Mean, clipped_surrogate, estimated_divergence, normalised, share_of, squared_error
from penstock.ops.optimizers import clip_scale, global_norm
from penstock.policies import PolicyGraph
from penstock.torch_networks.gradients import gradients_of
from penstock.torch_networks.policy import Policy, normalised_target
from penstock.types import NoiseSpec, Spaces

__all__ = [
    "Loss",
    "across_minibatch",
    "act",
    "actor_critic",
    "actor_critic_loss",
    "apply",
    "build",
    "kl_penalty",
    "learning_rate",
    "loss",
    "step_metrics",
]

Loss: TypeAlias = tuple[Tensor, dict[str, Tensor]]
"""A loss, a scalar, and what it is made of: name -> scalar."""
Settings = TypeVar("Settings", bound=ActorCriticConfig)


def build(spaces: Spaces, config: PPOConfig) -> Algorithm:
    """PPO on ``spaces`` as pure functions."""
    return actor_critic(spaces, config, loss, normalize_advantage=config.normalize_advantage)


def actor_critic(
    spaces: Spaces,
    config: Settings,
    loss: Callable[[Policy, Settings, Tensors, Tensors], Loss],
    *,
    normalize_advantage: bool,
) -> Algorithm:
    """The functions of an on-policy actor-critic with this loss."""
    policy = Policy(policy_graph(spaces, config), config.precision)
    # A unit of a minibatch is a row, or with memory a lane of ``num_steps`` steps.
    steps = (config.num_steps,) if policy.graph.carry else ()
    noise = tuple((part.name, NoiseSpec("uniform", (*steps, *part.shape))) for part in policy.graph.dropout)
    return Algorithm(
        act=partial(act, policy, spaces),
        targets=partial(targets, config),
        statistics=partial(statistics, policy.graph),
        phases=(
            scaled(
                Phase(
                    "actor_critic",
                    partial(gradients, policy.graph, config, partial(loss, policy, config)),
                    partial(apply, policy.graph, config),
                    noise=noise,
                )
            ),
        ),
        across_minibatch=partial(across_minibatch, normalize_advantage),
    )


def act(policy: Policy, spaces: Spaces, published: Tensors, inputs: Tensors) -> Tensors:
    """A sample of pi(. | s), its log-probability, and V(s)."""
    outputs = policy.act(published, inputs)
    shape = spaces.action_spec().shape
    return {**outputs, "action": outputs["action"].reshape(-1, *shape)}


def across_minibatch(normalize_advantage: bool, minibatch: Tensors, mean: Mean) -> Tensors:
    """The advantages of a minibatch, normalised by the mean and deviation of all that count."""
    if not normalize_advantage:
        return {}
    advantage = minibatch["advantage"]
    return {"advantage": normalised(advantage.flatten(), mean).view_as(advantage)}


def gradients(  # noqa: PLR0917 - the first three are bound
    graph: PolicyGraph,
    config: ActorCriticConfig,
    loss: Callable[[Tensors, Tensors], Loss],
    state: Tensors,
    minibatch: Tensors,
    noise: Tensors,
) -> Gradients:
    """The gradient of the loss with respect to each network's flat vector, and the minibatch's metrics."""
    minibatch = {**(learned_rows(minibatch) if graph.carry else minibatch), **noise}
    names = [network.name for network in graph.networks]
    found, metrics = gradients_of(lambda leaves: loss(leaves, minibatch), state, names, scale_of(state))
    return Gradients(found, {**metrics, **step_metrics(config, state, found)}, {})


def step_metrics(config: ActorCriticConfig, state: Tensors, gradients: Tensors) -> dict[str, Tensor]:
    """The norm of the gradients and the learning rate."""
    return {"grad_norm": global_norm(gradients.values()), "lr": learning_rate(config, state)}


def loss(policy: Policy, config: PPOConfig, state: Tensors, minibatch: Tensors) -> Loss:
    """``-L(theta)`` of equation 9 over the rows of a minibatch, and what it is made of."""

    def policy_loss(log_prob: Tensor, advantage: Tensor, share: Tensor) -> Loss:
        # Rows count in the measures of the divergence as they do in the loss.
        weight = share * minibatch["importance"] if "importance" in minibatch else share
        surrogate = clipped_surrogate(
            log_prob, minibatch["log_prob"], advantage, share, config.clip_param, measured=weight
        )
        metrics = {"approx_kl": surrogate.approx_kl, "clip_fraction": surrogate.clip_fraction}
        if not config.kl_coef:
            return surrogate.loss, metrics
        penalty, further = kl_penalty(config, state, minibatch["log_prob"], log_prob, weight)
        return surrogate.loss + penalty, {**metrics, **further}

    return actor_critic_loss(policy, config, policy_loss, state, minibatch)


def kl_penalty(config: PPOConfig, state: Tensors, old_log_prob: Tensor, log_prob: Tensor, weight: Tensor) -> Loss:
    """``kl_coef KL(pi_old || pi)``, the divergence, and the weight where the state holds it.

    Args:
        config: holds the weight where it stays.
        state: holds the weight where learners adapt it.
        old_log_prob: of the actions under pi_old, ``[m]``.
        log_prob: of the actions under pi, ``[m]``.
        weight: of each row, ``[m]``.
    """
    kl = estimated_divergence(log_prob, old_log_prob, weight)
    if KL_COEF in state:
        return state[KL_COEF] * kl, {KL: kl, KL_COEF: state[KL_COEF]}
    return config.kl_coef * kl, {KL: kl}


def actor_critic_loss(
    policy: Policy,
    config: ActorCriticConfig,
    policy_loss: Callable[[Tensor, Tensor, Tensor], Loss],
    state: Tensors,
    minibatch: Tensors,
) -> Loss:
    """A policy's loss, with the value loss and the entropy beside it, over the rows of a minibatch.

    Args:
        policy: the networks.
        config: the coefficients.
        policy_loss: ``(log_prob, advantage, share)``, each ``[m]``, to its loss and metrics of its own.
        state: parameters and statistics.
        minibatch: rows ``[m, ...]``, as `across_minibatch` leaves them; for a policy with memory as `learned_rows`
            gives them.
    """
    share = share_of(minibatch["weight"])
    distribution, value, _ = policy(state, minibatch)
    acting, metrics = policy_loss(distribution.log_prob(minibatch["action"]), minibatch["advantage"], share)
    target = minibatch["target"]
    if policy.graph.normalize_value:
        target = normalised_target(target, state)
    value_loss = squared_error(value, target, share)
    entropy = torch.dot(share, distribution.entropy())
    metrics = {"policy_loss": acting, "value_loss": value_loss, "entropy": entropy, **metrics}
    total = acting + config.value_coef * value_loss - config.entropy_coef * entropy
    return total, {name: metric.detach() for name, metric in metrics.items()}


def learned_rows(minibatch: Tensors) -> dict[str, Tensor]:
    """The rows of whole lanes that are learned from: all but the bootstrap row.

    Observations, ``first`` and the carry keep their lanes, ``[m, T, ...]``. The other fields become ``[m * T, ...]``,
    which is the order of the policy's answers.
    """
    steps = minibatch["weight"].shape[1]
    lanes = {name: values[:, :steps] for name, values in minibatch.items() if not name.startswith("carry.")}
    names = ("action", "log_prob", "advantage", "importance", "target", "weight")
    rows = {name: lanes[name].flatten(0, 1) for name in names if name in lanes}
    return {**minibatch, **lanes, **rows}


def learning_rate(config: ActorConfig, state: Tensors) -> Tensor:
    """The learning rate at ``state["progress"]`` of the run: float64 scalar."""
    progress: Tensor = state["progress"]
    if config.lr_schedule == "linear":
        return config.lr * (1.0 - progress)
    return config.lr * torch.ones_like(progress)


def apply(graph: PolicyGraph, config: ActorCriticConfig, state: Tensors, gradients: Tensors) -> Tensors:
    """One step of the optimizer down the gradient, clipped by its norm: over all networks, or each by its own."""
    together = clip_scale(gradients.values(), config.max_grad_norm)
    lr = learning_rate(config, state)
    count = next_count(config, state)
    changed = dict(count)
    for network in graph.networks:
        gradient = gradients[network.name]
        scale = clip_scale([gradient], config.max_grad_norm) if config.clip_apart else together
        changed |= optimizer_step(config, state, network.name, scale * gradient, lr, count, layout_of(network))
    return changed
