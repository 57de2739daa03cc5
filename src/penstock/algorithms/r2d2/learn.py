"""R2D2: recurrent Q-learning from replayed sequences (Kapturowski et al. 2019).

Source: https://openreview.net/forum?id=r1lyTjAqYX.

    y_t      = h( sum_{k<n} gamma^k r_{t+k} + gamma^n h^-1(Q'(s_{t+n}, argmax_a Q(s_{t+n}, a))) )
    L(theta) = E[ w huber(Q(s_t, a_t) - y_t) ]
    priority = eta max_t |Q - y| + (1 - eta) mean_t |Q - y|,   eta = 0.9                                 (section 2.3)
    h(x)     = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x                                    (Pohlen et al. 2018, table 1)

Q and Q' are recurrent. Both begin a sequence with the carry that was stored when it was collected, and run over its
burn-in without gradient. Rows of the burn-in are not learned from.

Deviations:

- All deviations of DQN that concern single values: Adam by default, clipped gradients, a bootstrap at time limits.
- A sequence may cross the end of an episode: the memory is reset there, and no return goes across.
- Sequences begin with a rollout, every ``num_steps`` steps. So they overlap by as much as the settings say.
- Towards the end of a sequence fewer than n rewards are summed.
- A new sequence gets the largest priority so far, until it was learned from.
- Q is dueling only if ``dueling`` is on, and sees neither the last action nor the last reward.
- The correction by importance weights grows to its full strength in the course of a run.

Functions here know no process, environment, loop or device.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.algorithm import Algorithm, Gradients, Phase, Tensors
from penstock.algorithms.dqn.learn import apply
from penstock.algorithms.dqn.spec import LEAST_PRIORITY
from penstock.algorithms.off_policy.learn import algorithm_of
from penstock.algorithms.off_policy.sequences import behind_burn_in, learned_rows
from penstock.algorithms.optimizer.loss_scale import scale_of, scaled
from penstock.algorithms.optimizer.spec import layout_of
from penstock.algorithms.r2d2.spec import R2D2Config, policy_graph
from penstock.algorithms.target.learn import copies
from penstock.ops.distributions import best_action
from penstock.ops.losses import huber
from penstock.ops.n_step import n_step_returns
from penstock.ops.optimizers import global_norm
from penstock.ops.rescaling import rescaled, unscaled
from penstock.torch_networks.gradients import gradients_of
from penstock.torch_networks.policy import Policy
from penstock.types import Spaces

__all__ = ["Judgement", "build", "gradients", "judged", "mixture"]


class Judgement(NamedTuple):
    """Loss, error and value of each learned row of a minibatch, ``[m, learned_steps]`` each."""

    loss: Tensor
    """Differentiable."""
    error: Tensor
    """At least 0, in the units of the network."""
    value: Tensor
    """Of the action that was taken, in the units of the network."""


def build(spaces: Spaces, config: R2D2Config) -> Algorithm:
    """R2D2 on ``spaces`` as pure functions."""
    policy = Policy(policy_graph(spaces, config), config.precision)
    update = Phase("update", partial(gradients, policy, config), partial(apply, layout_of(policy.graph.actor), config))
    return algorithm_of(policy, spaces, scaled(update), copies(["actor"], config.target_every))


def gradients(policy: Policy, config: R2D2Config, state: Tensors, minibatch: Tensors, noise: Tensors) -> Gradients:
    """The gradient of the loss; with ``prioritised``, each sequence's new priority as well."""
    del noise
    weight = minibatch["weight"][:, config.burn_in :]
    share = weight / weight.sum().clamp(min=1.0)

    def loss(leaves: dict[str, Tensor]) -> tuple[Tensor, Judgement]:
        found = judged(policy, config, leaves, minibatch)
        each = minibatch["importance"].unsqueeze(1) * found.loss if config.prioritised else found.loss
        return (share * each).sum(), found

    gradient, found = gradients_of(loss, state, ["actor"], scale_of(state))
    loss_of_rows, error, value = (part.detach() for part in found)
    metrics = {
        "value_loss": (share * loss_of_rows).sum(),
        "mean_value": (share * (unscaled(value) if config.rescale_value else value)).sum(),
        "grad_norm": global_norm(gradient.values()),
    }
    priority = mixture(error, weight, config.priority_eta) + LEAST_PRIORITY
    return Gradients(gradient, metrics, {"priority": priority} if config.prioritised else {})


def mixture(error: Tensor, weight: Tensor, eta: float) -> Tensor:
    """``eta max_t e_t + (1 - eta) mean_t e_t`` over the rows of weight 1, ``[m]`` for ``[m, T]``. 0 without any."""
    seen = error * weight
    return eta * seen.amax(1) + (1.0 - eta) * seen.sum(1) / weight.sum(1).clamp(min=1.0)


def judged(policy: Policy, config: R2D2Config, state: Tensors, minibatch: Tensors) -> Judgement:
    """Loss, error and value of each learned row. The target network gets no gradient."""
    said = _values(policy, config, state, minibatch)
    rows = learned_rows(minibatch, config.burn_in)
    taken = said[:, :-1].gather(2, rows["action"][:, :-1].unsqueeze(2)).squeeze(2)
    with torch.no_grad():
        following = _values(policy, config, {**state, "actor": state["target.actor"]}, minibatch)
        chooser = said.detach() if config.double else following
        mask = None if policy.graph.mask is None else rows[policy.graph.mask].flatten(0, 1)
        best = best_action(chooser.flatten(0, 1), mask).view(*following.shape[:2], 1)
        value = following.gather(2, best).squeeze(2)
        reward, terminated, valid = (rows[name][:, :-1] for name in ("reward", "terminated", "valid"))
        target = n_step_returns(
            reward,
            terminated,
            valid,
            unscaled(value) if config.rescale_value else value,
            gamma=config.gamma,
            n_step=config.n_step,
        )
        if config.rescale_value:
            target = rescaled(target)
    error = taken - target
    return Judgement(huber(error, config.error_clip), error.abs(), taken)


def _values(policy: Policy, config: R2D2Config, state: Tensors, minibatch: Tensors) -> Tensor:
    """``Q(s_t, .)`` of the learned rows and of the row behind them: ``[m, learned_steps + 1, n]``."""
    carry = {part.name: minibatch[part.name] for part in policy.graph.carry}
    detached = {**state, "actor": state["actor"].detach()}
    rows = behind_burn_in(
        lambda part: policy.unrolled(detached, part).carry, minibatch, policy.graph.fields, carry, config.burn_in
    )
    output = policy.unrolled(state, rows).output
    return output.view(*rows["first"].shape, -1)
