"""APPO: PPO's clipped surrogate on rollouts of older policies, corrected by V-trace.

    L(theta) = E[ rho min(r A, clip(r, 1 - eps, 1 + eps) A) ],   r = pi_theta(a | s) / pi_prox(a | s)
    A        = r + gamma v' - V(s), normalised,   rho = min(rho_bar, pi_prox(a | s) / mu(a | s))

Three policies take part. mu acted. pi_theta is being learned, and the clip keeps it near pi_prox, not near mu. So an
old batch is corrected, but does not hold the policy back (Hilton et al. 2021, https://arxiv.org/abs/2110.00641, call it
decoupled). pi_prox is

- the learner's policy when it begins to learn from the batch; or
- with ``target_every``, the target network of IMPACT (Luo et al. 2020, https://arxiv.org/abs/1912.00167): a copy of
  the learner's networks that is renewed every so many gradient steps. Its critic gives the values.

``A`` and the value targets are V-trace's (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561), from one pass of the
networks over the batch. If mu is pi_prox, as in lock step without a target network, then APPO is PPO.

With ``kl_coef``, the loss has ``kl_coef E[ rho ((r - 1) - log r) ]`` more: PPO's penalty, of the divergence of pi_theta
from pi_prox. ``rho`` makes up for mu, which chose the actions.

Deviations: IMPACT's ratio is ``pi_theta / max(pi_prox, mu / rho_bar)``. Here ``rho`` alone makes a row count less that
pi_prox would hardly choose. IMPACT keeps batches in a buffer, and takes each of them from there several times.

Functions here know no process, environment, loop or device.
"""

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor

from penstock.algorithm import Algorithm, Gradients, Phase, Tensors
from penstock.algorithms.appo.rollouts import corrected
from penstock.algorithms.appo.spec import APPOConfig
from penstock.algorithms.ppo import learn as ppo
from penstock.algorithms.ppo.spec import policy_graph
from penstock.algorithms.target.learn import copies, of_targets
from penstock.ops.losses import Mean
from penstock.torch_networks.policy import Policy, denormalised_value
from penstock.types import Array, Arrays, Spaces

__all__ = ["build", "recompute", "targets"]

LOG_PROB, VALUE = "proximal.log_prob", "proximal.value"


def build(spaces: Spaces, config: APPOConfig) -> Algorithm:
    """APPO on ``spaces`` as pure functions."""
    policy = Policy(policy_graph(spaces, config), config.precision)
    plain = ppo.build(spaces, config)
    (phase,) = plain.phases
    learned = plain._replace(
        recompute=partial(recompute, policy),
        targets=partial(targets, config),
        across_minibatch=partial(across_minibatch, plain.across_minibatch),
        phases=(phase._replace(gradients=partial(gradients, phase)),),
    )
    return with_targets(policy, config, learned) if config.target_every else learned


def with_targets(policy: Policy, config: APPOConfig, learned: Algorithm) -> Algorithm:
    """The algorithm with pi_prox from the target networks, which are copies of the published record."""
    names = [part.name for part in policy.graph.published()]
    (phase,) = learned.phases

    def recomputed(state: Tensors, rollout: Tensors) -> dict[str, Tensor]:
        return recompute(policy, of_targets(names, state), rollout)

    return learned._replace(
        recompute=recomputed,
        phases=(phase, copies(names, config.target_every)),
    )


def recompute(policy: Policy, state: Tensors, rollout: Tensors) -> dict[str, Tensor]:
    """Log-probabilities of the actions ``[T + 1, B]`` and values ``[T + 1, B]`` of one slot under pi_prox.

    Row T has no action. Its log-probability means nothing.
    """
    graph = policy.graph
    steps, lanes = rollout["action"].shape[:2]
    # A policy with memory takes whole lanes, one after the other. Any other policy takes rows in any order.
    names = (*graph.fields, "action", *(("first",) if graph.carry else ()))
    rows = {name: rollout[name].transpose(0, 1) for name in names}
    if graph.carry:
        rows |= {part.name: rollout[part.name] for part in graph.carry}
    else:
        rows = {name: values.flatten(0, 1) for name, values in rows.items()}
    distribution, value, _ = policy(state, rows)
    action = rows["action"].flatten(0, 1) if graph.carry else rows["action"]
    if graph.normalize_value:
        value = denormalised_value(value, state)
    found = {LOG_PROB: distribution.log_prob(action), VALUE: value}
    return {name: values.view(lanes, steps).T.contiguous() for name, values in found.items()}


def targets(config: APPOConfig, state: Mapping[str, Array], rollout: Mapping[str, Array]) -> Arrays:
    """Advantages, value targets and proximal log-probabilities ``[T, B]`` of one slot, from what `recompute` found."""
    del state
    return corrected(config, rollout, rollout[LOG_PROB][:-1], rollout[VALUE])


def across_minibatch(normalised: Callable[[Tensors, Mean], Tensors], minibatch: Tensors, mean: Mean) -> Tensors:
    """The advantages of a minibatch, first ``normalised`` as PPO's, then weighed."""
    advantage = {**minibatch, **normalised(minibatch, mean)}["advantage"]
    return {"advantage": minibatch["importance"] * advantage}


def gradients(phase: Phase, state: Tensors, minibatch: Tensors, noise: Tensors) -> Gradients:
    """PPO's gradients, with ratios to the proximal policy. ``phase`` is PPO's."""
    return phase.gradients(state, {**minibatch, "log_prob": minibatch["proximal_log_prob"]}, noise)
