"""Distributional soft actor-critic, DSAC (Duan et al. 2021, https://arxiv.org/abs/2001.02811).

    Z(s, a)  ~ N(Q(s, a), sigma(s, a)^2)                      the soft return: with the entropy of later steps
    y        = r + gamma (Z'(s', a') - alpha log pi'(a' | s')),   Z' and a' sampled from the targets
    gradient of  -E[ log P(y | Z(s, a)) ]
             = -E[ (y - Q) / sigma^2 grad Q + ((clip(y, Q - b, Q + b) - Q)^2 - sigma^2) / sigma^3 grad sigma ]

Every d-th step, actor and temperature take SAC's step on Q. Then the targets of actor and critic move by tau.

Deviations:

- All deviations of SAC.
- 0.1 is added to the denominators sigma^2 and sigma^3, as in the authors' later code. The paper has a smallest sigma
  instead.

Functions here know no process, environment, loop or device.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from penstock.algorithm import Algorithm, Gradients, Phase, Tensors
from penstock.algorithms.dsac.spec import DistributionalConfig, DSACConfig, return_network
from penstock.algorithms.off_policy.learn import Networks, algorithm_of, move_target, networks_of, next_obs, step_vector
from penstock.algorithms.optimizer.loss_scale import scale_of, scaled
from penstock.algorithms.optimizer.spec import Layout
from penstock.algorithms.sac.learn import actor_gradients, actor_update, sampled
from penstock.algorithms.sac.spec import policy_graph
from penstock.ops.losses import share_of
from penstock.torch_networks.gradients import gradients_of
from penstock.types import NoiseSpec, Spaces

__all__ = [
    "EPSILON",
    "Returns",
    "actor_phase",
    "build",
    "critic_noise",
    "critic_target",
    "metrics_of",
    "return_terms",
    "returns_of",
    "sampled_return",
]

EPSILON = 0.1
"""Added to each denominator that is a power of the deviation."""
REACH = 3.0
"""Largest distance of a sampled return from its mean, in deviations."""


class Returns(NamedTuple):
    """Distributions of returns, as the critics give them: ``[critics, n]`` each."""

    mean: Tensor
    deviation: Tensor


def build(spaces: Spaces, config: DSACConfig) -> Algorithm:
    """DSAC on ``spaces`` as pure functions."""
    graph = policy_graph(spaces, config, "dsac")
    networks = networks_of(graph, config, return_network(graph, config), 1)
    critic = Phase(
        "critic",
        partial(critic_gradients, networks, config),
        partial(critic_update, networks.layouts(), config),
        noise=critic_noise(networks),
    )
    return algorithm_of(networks.policy, spaces, scaled(critic, "critic"), actor_phase(networks, config))


def critic_noise(networks: Networks) -> tuple[tuple[str, NoiseSpec], ...]:
    """The noise that samples the next action, the noise that samples its return, and that of dropout."""
    sampling = (("next_action", networks.policy.graph.head.noise), ("next_return", NoiseSpec("normal", ())))
    return (*sampling, *networks.dropout("next_value"), *networks.dropout("value"))


def actor_phase(networks: Networks, config: DistributionalConfig) -> Phase:
    """SAC's step of actor and temperature; then the targets move by tau."""
    actor = Phase(
        "actor",
        partial(actor_gradients, networks, config),
        partial(delayed_update, networks.layouts(), config),
        every=config.policy_delay,
        noise=(("action", networks.policy.graph.head.noise), *networks.dropout("value")),
    )
    return scaled(actor, "actor")


def returns_of(  # noqa: PLR0917 - as the mathematics reads
    networks: Networks, state: Tensors, name: str, obs: Tensors, action: Tensor, dropped: Sequence[Tensor] = ()
) -> Returns:
    """The distributions of returns that the critics of the vector ``name`` give."""
    outputs = networks.values(state, name, obs, action, dropped)
    return Returns(outputs[:, :, 0], functional.softplus(outputs[:, :, 1]))


def sampled_return(returns: Returns, noise: Tensor) -> Tensor:
    """A return sampled from each critic's distribution: ``[critics, n]`` for ``noise`` ``[n]``."""
    return returns.mean + returns.deviation * noise.clamp(-REACH, REACH)


def critic_target(networks: Networks, state: Tensors, minibatch: Tensors, noise: Tensors) -> Tensor:
    """``y`` of the module's docstring: ``[m]``."""
    obs = next_obs(networks.policy, minibatch)
    action, log_prob = sampled(networks.policy, {**state, "actor": state["target.actor"]}, obs, noise["next_action"])
    returns = returns_of(networks, state, "target.critic", obs, action, networks.dropped(noise, "next_value"))
    soft = sampled_return(returns, noise["next_return"])[0] - state["log_alpha"].exp() * log_prob
    target: Tensor = minibatch["reward"] + minibatch["discount"] * soft
    return target


def return_terms(returns: Returns, target: Tensor, bounded: Tensor) -> Tensor:
    """Terms ``[critics, n]`` with the gradient of the module's ``-log P``. Only their gradient has a meaning.

    Args:
        returns: the distributions for the rows' actions.
        target: ``[n]``: the returns that the mean moves to.
        bounded: ``[critics, n]``: the returns that the deviation learns from, clipped around the mean.
    """
    mean, deviation = returns.mean.detach(), returns.deviation.detach()
    of_mean = (target - mean) / (deviation.square() + EPSILON)
    of_deviation = ((bounded - mean).square() - deviation.square()) / (deviation.pow(3) + EPSILON)
    return -of_mean * returns.mean - of_deviation * returns.deviation


def critic_gradients(
    networks: Networks, config: DSACConfig, state: Tensors, minibatch: Tensors, noise: Tensors
) -> Gradients:
    """The gradient of the returns' negative log-probability with respect to the critic."""
    share = share_of(minibatch["weight"])
    with torch.no_grad():
        target = critic_target(networks, state, minibatch, noise)

    def loss(leaves: dict[str, Tensor]) -> tuple[Tensor, Returns]:
        returns = returns_of(
            networks, leaves, "critic", minibatch, minibatch["action"], networks.dropped(noise, "value")
        )
        mean = returns.mean.detach()
        bounded = mean + (target - mean).clamp(-config.bound, config.bound)
        return (return_terms(returns, target, bounded) @ share).sum(), returns

    gradients, returns = gradients_of(loss, state, ["critic"], scale_of(state, "critic"))
    return Gradients(gradients, metrics_of(returns, target, share), {})


def metrics_of(returns: Returns, target: Tensor, share: Tensor) -> dict[str, Tensor]:
    """Squared error and mean of the values, and the deviation of returns. Each is a mean over the critics."""
    mean, deviation = returns.mean.detach(), returns.deviation.detach()
    return {
        "value_loss": ((mean - target).square() @ share).mean(),
        "mean_value": (mean @ share).mean(),
        "deviation": (deviation @ share).mean(),
    }


def critic_update(
    layouts: Mapping[str, Layout], config: DistributionalConfig, state: Tensors, gradients: Tensors
) -> Tensors:
    """One step for the critic."""
    return step_vector(layouts, config, state, "critic", gradients["critic"], config.critic_lr)


def delayed_update(
    layouts: Mapping[str, Layout], config: DistributionalConfig, state: Tensors, gradients: Tensors
) -> Tensors:
    """SAC's step of actor and temperature; then both targets move by tau."""
    changed = {**actor_update(layouts, config, state, gradients)}
    changed |= move_target(state, "actor", changed["actor"], config.tau)
    return changed | move_target(state, "critic", state["critic"], config.tau)
