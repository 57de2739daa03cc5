"""IMPALA: an actor-critic on rollouts of older policies, corrected by V-trace (Espeholt et al. 2018).

Source: https://arxiv.org/abs/1802.01561.

    gradient of  E[ -rho (r + gamma v' - V(x)) log pi(a | x) + c1 (v - V(x))^2 - c2 S[pi(. | x)] ]      (section 4.2)

``v`` and ``rho`` are V-trace's (`penstock.ops.vtrace`). They come from the policy and the critic that are being
learned, so a minibatch is whole lanes: one pass of the networks gives ratios, values and the loss.

The advantages weigh the first term. They are divided by the root mean square, over the minibatch, of the advantages
under the policy that acted (field ``size``). Dividing by their own root mean square would blow up minibatches whose
advantages are all small. Their mean is not subtracted: that would push the policy along actions that it no longer
takes.

Deviations:

- By default Adam in place of RMSProp; ``--optimizer`` chooses.
- The losses are means over the rows of a minibatch, not sums.
- Actor and critic share layers only if the observation is an image.
- A time limit bootstraps from the value of the last observation, as the policy that acted judged it.
- Gradients are clipped to a smaller norm by default, that of the actor apart from that of the critic.

Functions here know no process, environment, loop or device.
"""

from functools import partial

import torch
from torch import Tensor

from penstock.algorithm import Algorithm, Gradients, Phase, Tensors
from penstock.algorithms.impala.rollouts import targets
from penstock.algorithms.impala.spec import IMPALAConfig
from penstock.algorithms.optimizer.loss_scale import scale_of, scaled
from penstock.algorithms.ppo.learn import Loss, act, apply, step_metrics
from penstock.algorithms.ppo.rollouts import statistics
from penstock.algorithms.ppo.spec import policy_graph
from penstock.ops.losses import Mean, share_of, squared_error
from penstock.ops.vtrace import Steps, VTrace, vtrace
from penstock.torch_networks.gradients import gradients_of
from penstock.torch_networks.policy import Policy, denormalised_value, normalised_target
from penstock.types import NoiseSpec, Spaces

__all__ = ["across_minibatch", "build", "gradients", "loss"]


def build(spaces: Spaces, config: IMPALAConfig) -> Algorithm:
    """IMPALA on ``spaces`` as pure functions."""
    policy = Policy(policy_graph(spaces, config), config.precision)
    noise = tuple(
        (part.name, NoiseSpec("uniform", (config.num_steps + 1, *part.shape))) for part in policy.graph.dropout
    )
    step = partial(apply, policy.graph, config)
    return Algorithm(
        act=partial(act, policy, spaces),
        targets=partial(targets, config),
        statistics=partial(statistics, policy.graph),
        phases=(scaled(Phase("actor_critic", partial(gradients, policy, config), step, noise=noise)),),
        across_minibatch=partial(across_minibatch, config.normalize_advantage),
    )


def across_minibatch(normalize_advantage: bool, minibatch: Tensors, mean: Mean) -> Tensors:
    """Replace each row's ``size`` by the root mean square over the minibatch; by 1 without ``normalize_advantage``."""
    size = minibatch["size"]
    if not normalize_advantage:
        return {"size": torch.ones_like(size)}
    return {"size": mean(size.flatten().square()).sqrt().expand_as(size)}


def gradients(policy: Policy, config: IMPALAConfig, state: Tensors, minibatch: Tensors, noise: Tensors) -> Gradients:
    """The gradient of the loss with respect to each network's flat vector, and the minibatch's metrics."""
    lanes = {**minibatch, **noise}
    names = [network.name for network in policy.graph.networks]
    found, metrics = gradients_of(lambda leaves: loss(policy, config, leaves, lanes), state, names, scale_of(state))
    return Gradients(found, {**metrics, **step_metrics(config, state, found)}, {})


def loss(policy: Policy, config: IMPALAConfig, state: Tensors, lanes: Tensors) -> Loss:
    """The loss over the rows of whole lanes ``[m, T + 1, ...]``, and its metrics."""
    weight = lanes["weight"]
    count, steps = weight.shape
    seen = lanes if policy.graph.carry else {**lanes, **_rows(policy.graph.fields, lanes)}
    distribution, judged, _ = policy(state, seen)

    def learned(rows: Tensor) -> Tensor:
        """The rows that are learned from, ``[m, T]``: all but the bootstrap row."""
        return rows.view(count, steps + 1)[:, :steps]

    log_prob = learned(distribution.log_prob(lanes["action"].flatten(0, 1)))
    value = denormalised_value(judged, state) if policy.graph.normalize_value else judged
    found = corrected(config, lanes, log_prob.detach(), value.detach().view(count, steps + 1))
    target = found.target.flatten()
    if policy.graph.normalize_value:
        target = normalised_target(target, state)
    share = share_of(weight.flatten())
    advantage = found.advantage / (lanes["size"] + 1e-8)
    policy_loss = -share.dot((log_prob * advantage).flatten())
    value_loss = squared_error(learned(judged).flatten(), target, share)
    entropy = share.dot(learned(distribution.entropy()).flatten())
    metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    metrics["rho"] = share.dot(found.rho.flatten())
    return total, {name: metric.detach() for name, metric in metrics.items()}


def corrected(config: IMPALAConfig, lanes: Tensors, log_prob: Tensor, value: Tensor) -> VTrace:
    """V-trace of whole lanes.

    Args:
        config: the bounds and discounts.
        lanes: fields of rows ``[m, T + 1, ...]``, targets and ``weight`` ``[m, T]``.
        log_prob: of the actions under the current policy, ``[m, T]``.
        value: of the current critic in the units of the rewards, ``[m, T + 1]``.
    """
    reward, terminated, truncated, acted = (
        lanes[name][:, : log_prob.shape[1]] for name in ("reward", "terminated", "truncated", "log_prob")
    )
    if config.clip_reward:
        reward = reward.clamp(-1.0, 1.0)
    return vtrace(
        Steps(reward, terminated, truncated, lanes["bootstrap"], lanes["weight"]),
        # A row without a transition may hold any number, and V-trace multiplies its ratio by 0: that of NaN is NaN.
        torch.where(lanes["weight"] > 0, log_prob - acted, 0.0),
        value,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        rho_bar=config.rho_bar,
        c_bar=config.c_bar,
    )


def _rows(fields: tuple[str, ...], lanes: Tensors) -> dict[str, Tensor]:
    """Observation fields ``[m, T + 1, ...]`` as rows, ``[m * (T + 1), ...]``."""
    return {name: lanes[name].flatten(0, 1) for name in fields}
