"""Behaviour cloning: maximum likelihood of the demonstrated actions.

    L(theta) = -E[ log pi_theta(a | s) ]      over the observations s and actions a of demonstrations

Discrete actions: the cross-entropy. Continuous ones: the log-density of a diagonal Gaussian; its mean moves as by a
squared error, and its common spread becomes the size of the error.

With ``label_smoothing`` e, ``log pi(a | s)`` is ``(1 - e) log pi(a | s) + e mean_b log pi(b | s)`` with the mean over
all possible actions: Szegedy et al. 2016, https://arxiv.org/abs/1512.00567, section 7.

Sources: D. A. Pomerleau 1991, https://doi.org/10.1162/neco.1991.3.1.88, which learned to steer so, by squared errors.
S. Ross and D. Bagnell 2010, https://proceedings.mlr.press/v9/ross10a.html: an error eps in each step may cost eps T^2
in an episode of T steps, because the policy comes into states that no demonstration shows.

Rows of held-out episodes are in each minibatch, too. They count in metrics and not in the loss.

Functions here know no process, environment, loop or device.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.algorithm import HELD_OUT, Algorithm, Gradients, Phase, Tensors
from penstock.algorithms.bc.spec import BCConfig, policy_graph
from penstock.algorithms.off_policy.learn import algorithm_of
from penstock.algorithms.optimizer.learn import next_count, optimizer_step
from penstock.algorithms.optimizer.loss_scale import scale_of, scaled
from penstock.algorithms.optimizer.spec import Layout, layout_of
from penstock.algorithms.ppo.learn import learning_rate
from penstock.ops.distributions import CategoricalDistribution
from penstock.ops.losses import share_of
from penstock.ops.optimizers import clip_scale, global_norm
from penstock.policies import Categorical
from penstock.policies.heads import FORBIDDEN
from penstock.torch_networks.gradients import gradients_of
from penstock.torch_networks.policy import Policy
from penstock.types import Spaces

__all__ = ["Shares", "apply", "build", "loss", "mean_log_prob", "shares_of"]


class Shares(NamedTuple):
    """How much each row of a minibatch counts, ``[m]``. Over a whole minibatch both sums are 1."""

    learned: Tensor
    """In the loss. 0 for rows that are held out."""
    held_out: Tensor | None
    """In the metrics of held-out rows; ``None``: there are none."""


def build(spaces: Spaces, config: BCConfig) -> Algorithm:
    """Behaviour cloning on ``spaces`` as pure functions."""
    policy = Policy(policy_graph(spaces, config), config.precision)
    layout = layout_of(policy.graph.actor)
    clone = Phase("clone", partial(gradients, policy, config), partial(apply, layout, config))
    return algorithm_of(policy, spaces, scaled(clone))


def gradients(policy: Policy, config: BCConfig, state: Tensors, minibatch: Tensors, noise: Tensors) -> Gradients:
    """The gradient of the loss with respect to the actor, and the minibatch's metrics."""
    del noise
    found, metrics = gradients_of(
        lambda leaves: loss(policy, config, leaves, minibatch), state, ["actor"], scale_of(state)
    )
    steps = {"grad_norm": global_norm(found.values()), "lr": learning_rate(config, state)}
    return Gradients(found, {**metrics, **steps}, {})


def loss(policy: Policy, config: BCConfig, state: Tensors, minibatch: Tensors) -> tuple[Tensor, dict[str, Tensor]]:
    """``L(theta)`` over the rows of a minibatch that are learned from, and metrics of both kinds of rows.

    The losses among the metrics are without smoothing.
    """
    learned, held_out = shares_of(config, minibatch)
    distribution, _, _ = policy(state, minibatch)
    action = minibatch["action"]
    surprise = -distribution.log_prob(action)
    found = torch.dot(learned, surprise)
    if config.label_smoothing and isinstance(distribution, CategoricalDistribution):
        other = torch.dot(learned, -mean_log_prob(distribution))
        smoothed = found + config.label_smoothing * (other - found)
    else:
        smoothed = found
    with torch.no_grad():
        noise = learned.new_zeros((len(learned), *policy.graph.noise.shape))
        greedy = distribution.sample(noise, torch.zeros_like(learned))
        name, near = _likeness(policy, greedy, action)
        near = near.to(learned.dtype)
        entropy = torch.dot(learned, distribution.entropy())
        metrics = {"imitation_loss": found.detach(), "entropy": entropy, name: torch.dot(learned, near)}
        if held_out is not None:
            metrics |= {
                "held_out_loss": torch.dot(held_out, surprise.detach()),
                f"held_out_{name}": torch.dot(held_out, near),
            }
    return smoothed, metrics


def mean_log_prob(distribution: CategoricalDistribution) -> Tensor:
    """The mean of ``log pi(b | s)`` over all possible actions b: ``[m]``."""
    possible = (distribution.logits > FORBIDDEN / 2.0).to(distribution.logits.dtype)
    log_prob = torch.log_softmax(distribution.logits, 1)
    return (log_prob * possible).sum(1) / possible.sum(1).clamp(min=1.0)


def shares_of(config: BCConfig, minibatch: Tensors) -> Shares:
    """The shares of the rows of a minibatch.

    With a share h of rows that are held out, a row that is learned from counts ``1 / (1 - h)`` and one that is held out
    ``1 / h``. So loss and metrics are means over all rows, and a minibatch may be learned from in parts.
    """
    share = share_of(minibatch["weight"])
    if not config.held_out:
        return Shares(share, None)
    held_out = minibatch[HELD_OUT]
    return Shares(share * (1.0 - held_out) / (1.0 - config.judging), share * held_out / config.judging)


def apply(layout: Layout, config: BCConfig, state: Tensors, gradients: Tensors) -> Tensors:
    """One step of the actor, with the gradient clipped by its norm."""
    count = next_count(config, state)
    gradient = clip_scale(gradients.values(), config.max_grad_norm) * gradients["actor"]
    return count | optimizer_step(config, state, "actor", gradient, learning_rate(config, state), count, layout)


def _likeness(policy: Policy, greedy: Tensor, action: Tensor) -> tuple[str, Tensor]:
    """How like the demonstrated actions the greedy ones are, for each row: the metric's name, and ``[m]``."""
    if isinstance(policy.graph.head, Categorical):
        return "agreement", greedy == action
    return "action_error", (greedy - action.reshape(greedy.shape)).abs().mean(1)
