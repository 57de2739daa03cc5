"""Deep Q-learning (Mnih et al. 2015, https://doi.org/10.1038/nature14236) with later extensions.

    y        = R + discount Q'(s', argmax_a Q(s', a))                              (double: van Hasselt et al. 2016)
    R        = sum_{k<n} gamma^k r_k                                                     (n-step: Hessel et al. 2018)
    L(theta) = E[ w huber(Q(s, a) - y) ],   priority = |Q(s, a) - y|             (w, prioritised: Schaul et al. 2016)
    Q(s, a)  = V(s) + A(s, a) - mean_b A(s, b)                                            (dueling: Wang et al. 2016)
    L(theta) = E[ w H(projection of R + discount z under p'(s', a*), p(s, a)) ]    (categorical: Bellemare et al. 2017)

Without ``double``, the target network Q' chooses the next action as well. Every ``target_every``-th step the network is
copied to its target.

With an action mask, the argmax and the maximum are over the actions that are possible in s'. The value of an impossible
action is never learned and never used.

Deviations:

- By default Adam instead of RMSprop; ``--optimizer`` chooses.
- Gradients are clipped by their norm.
- Rewards are cut only if ``clip_reward`` is on.
- A time limit bootstraps from the last observation.
- With atoms, the priority of a row is the divergence of the two distributions.

Functions here know no process, environment, loop or device.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.algorithm import Algorithm, Gradients, Phase, Tensors
from penstock.algorithms.dqn.spec import LEAST_PRIORITY, DQNConfig, QConfig, ValueConfig, policy_graph
from penstock.algorithms.off_policy.learn import algorithm_of, next_obs, step_vector
from penstock.algorithms.optimizer.loss_scale import scale_of, scaled
from penstock.algorithms.optimizer.spec import Layout, layout_of
from penstock.algorithms.target.learn import copies
from penstock.ops.categorical import cross_entropy, divergence, projected, support
from penstock.ops.distributions import best_action
from penstock.ops.losses import huber, share_of
from penstock.ops.optimizers import clip_scale, global_norm
from penstock.policies import EpsilonGreedy
from penstock.torch_networks.gradients import gradients_of
from penstock.torch_networks.policy import Policy, action_values
from penstock.types import Spaces

__all__ = ["Judgement", "apply", "build", "judged", "phases"]


class Judgement(NamedTuple):
    """Loss, error and value of each row of a minibatch."""

    loss: Tensor
    """``[m]``, differentiable."""
    error: Tensor
    """``[m]``, at least 0. A row's priority is this error plus ``LEAST_PRIORITY``."""
    value: Tensor
    """``[m]``: the value of the action that was taken."""


def build(spaces: Spaces, config: DQNConfig) -> Algorithm:
    """DQN on ``spaces`` as pure functions."""
    policy = Policy(policy_graph(spaces, config, "dqn"), config.precision)
    return algorithm_of(policy, spaces, *phases(policy, config))


def phases(policy: Policy, config: QConfig) -> tuple[Phase, Phase]:
    """The gradient step of the network, and the copy to its target every ``target_every``-th step."""
    update = Phase("update", partial(gradients, policy, config), partial(apply, layout_of(policy.graph.actor), config))
    return scaled(update), copies(["actor"], config.target_every)


def gradients(policy: Policy, config: QConfig, state: Tensors, minibatch: Tensors, noise: Tensors) -> Gradients:
    """The gradient of the loss; with ``prioritised``, each row's new priority as well."""
    del noise
    share = share_of(minibatch["weight"])

    def loss(leaves: dict[str, Tensor]) -> tuple[Tensor, Judgement]:
        found = judged(policy, config, leaves, minibatch)
        each = minibatch["importance"] * found.loss if config.prioritised else found.loss
        return torch.dot(share, each), found

    gradient, found = gradients_of(loss, state, ["actor"], scale_of(state))
    loss_of_rows, error, value = (part.detach() for part in found)
    metrics = {
        "value_loss": torch.dot(share, loss_of_rows),
        "mean_value": torch.dot(share, value),
        "grad_norm": global_norm(gradient.values()),
    }
    return Gradients(gradient, metrics, {"priority": error + LEAST_PRIORITY} if config.prioritised else {})


def judged(policy: Policy, config: QConfig, state: Tensors, minibatch: Tensors) -> Judgement:
    """Loss, error and value of each row. The target network gets no gradient."""
    head = _head(policy)
    rows = torch.arange(len(minibatch["action"]), device=minibatch["action"].device)
    with torch.no_grad():
        obs = next_obs(policy, minibatch)
        following = policy.output({**state, "actor": state["target.actor"]}, obs)
        chooser = policy.output({**state, "actor": state["actor"].detach()}, obs) if config.double else following
        best = best_action(action_values(head, chooser), None if policy.graph.mask is None else obs[policy.graph.mask])
    said = policy.output(state, minibatch)
    reward, discount = minibatch["reward"], minibatch["discount"]
    if config.atoms == 1:
        value = said[rows, minibatch["action"]]
        error = value - (reward + discount * following[rows, best])
        return Judgement(huber(error, config.error_clip), error.abs(), value)
    logits = said.view(-1, head.n, head.atoms)[rows, minibatch["action"]]
    with torch.no_grad():
        z = support(logits, head.low, head.high, head.atoms)
        probability = torch.softmax(following.view(-1, head.n, head.atoms)[rows, best], 1)
        returns = reward.unsqueeze(1) + discount.unsqueeze(1) * z
        target = projected(probability, returns, head.low, head.high)
    loss = cross_entropy(target, logits)
    return Judgement(loss, divergence(target, logits), torch.softmax(logits, 1) @ z)


def apply(layout: Layout, config: ValueConfig, state: Tensors, gradients: Tensors) -> Tensors:
    """One step, with the gradient clipped by its norm."""
    scale = clip_scale(gradients.values(), config.max_grad_norm)
    return step_vector({"actor": layout}, config, state, "actor", scale * gradients["actor"], config.lr)


def _head(policy: Policy) -> EpsilonGreedy:
    head = policy.graph.head
    if not isinstance(head, EpsilonGreedy):
        raise TypeError(f"the policy's head is {head}, not an EpsilonGreedy")
    return head
