"""A `penstock.policies.PolicyGraph` as torch functions, for training and for serving. Holds no parameters."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.models.encoding import EPSILON, encode, input_scale, normalise
from penstock.models.forward import Forward
from penstock.ops.distributions import (
    CategoricalDistribution,
    DiagonalGaussian,
    Distribution,
    TanhGaussian,
    epsilon_greedy,
    expected_value,
    perturbed,
)
from penstock.policies import EpsilonGreedy, Gaussian, Head, PolicyGraph, SquashedGaussian
from penstock.policies.architecture import PrecisionName

__all__ = ["Judgement", "Policy", "action_values", "denormalised_value", "normalised_target", "squashed"]


class Judgement(NamedTuple):
    """Result of an actor-critic for n observations."""

    distribution: Distribution
    value: Tensor
    """``[n]``; in the critic's own units if values are normalised."""


class Policy:
    """``(published, obs) -> Judgement`` and ``act``, as pure functions of named tensors.

    Args:
        graph: the policy.
        precision: dtype in which all layers but the last compute; ``float32`` means the dtype of the parameters.
    """

    def __init__(self, graph: PolicyGraph, precision: PrecisionName = "float32") -> None:
        self.graph = graph
        self._compute = torch.bfloat16 if precision == "bfloat16" else None
        scale = input_scale(graph.encoding)
        self._actor = Forward(graph.actor, scale)
        self._critic = None if graph.critic is None else Forward(graph.critic, scale)

    def __call__(self, published: Mapping[str, Tensor], obs: Mapping[str, Tensor]) -> Judgement:
        """Action distribution and value of each observation, for a policy that gives a value.

        Args:
            published: flat vectors by network name, and statistics if the graph normalises.
            obs: field -> ``[n, ...]``.
        """
        graph = self.graph
        x = self.features(published, obs)
        output, free = self._actor(published[graph.actor.name], x)
        if graph.critic is None or self._critic is None:
            head, value = output[:, :-1], output[:, -1]
        else:
            head, value = output, self._critic(published[graph.critic.name], x).output.squeeze(1)
        if isinstance(graph.head, Gaussian):
            return Judgement(DiagonalGaussian(head, free["log_std"]), value)
        return Judgement(CategoricalDistribution(head), value)

    def features(self, published: Mapping[str, Tensor], obs: Mapping[str, Tensor]) -> Tensor:
        """The input of the networks: encoded observations, normalised if the graph says so."""
        graph = self.graph
        x = encode(graph.encoding, obs, self._compute or published[graph.actor.name].dtype)
        if graph.normalize_obs:
            x = normalise(x, published["obs_mean"], published["obs_var"])
        return x

    def output(self, published: Mapping[str, Tensor], obs: Mapping[str, Tensor]) -> Tensor:
        """The head's outputs ``[n, head.outputs]`` of a policy without value. See `squashed` and `action_values`."""
        return self._actor(published[self.graph.actor.name], self.features(published, obs)).output

    def act(self, published: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """``graph.outputs``: the action; its log-probability and the value in the units of the rewards, or ``q``.

        Args:
            published: as for calling the policy.
            inputs: observation fields ``[n, ...]``, ``noise`` ``[n, k]``, ``explore`` ``[n]``.
        """
        if not self.graph.gives_value:
            return _chosen(self.graph.head, self.output(published, inputs), inputs["noise"], inputs["explore"])
        distribution, value = self(published, inputs)
        action = distribution.sample(inputs["noise"], inputs["explore"])
        if self.graph.normalize_value:
            value = denormalised_value(value, published)
        return {"action": action, "log_prob": distribution.log_prob(action), "value": value}


def squashed(head: SquashedGaussian, output: Tensor) -> TanhGaussian:
    """The distribution that the outputs ``[n, 2 * size]`` describe."""
    log_std = output[:, head.size :].clamp(head.log_std_min, head.log_std_max)
    return TanhGaussian(output[:, : head.size], log_std)


def action_values(head: EpsilonGreedy, output: Tensor) -> Tensor:
    """``q`` ``[m, n]`` from the outputs ``[m, n * atoms]``."""
    if head.atoms == 1:
        return output
    return expected_value(output.reshape(-1, head.n, head.atoms), head.low, head.high)


def _chosen(head: Head, output: Tensor, noise: Tensor, explore: Tensor) -> dict[str, Tensor]:
    """Outputs of ``act`` for a head without value."""
    if isinstance(head, EpsilonGreedy):
        q = action_values(head, output)
        return {"action": epsilon_greedy(q, noise, explore), "q": q}
    if isinstance(head, SquashedGaussian):
        return {"action": squashed(head, output).sample(noise, explore)}
    return {"action": perturbed(torch.tanh(output), noise, explore)}


def denormalised_value(value: Tensor, published: Mapping[str, Tensor]) -> Tensor:
    """``v sqrt(var + 1e-8) + mean``: from the critic's units to those of the rewards."""
    deviation = (published["value_var"] + EPSILON).sqrt()
    return value * deviation.to(value.dtype) + published["value_mean"].to(value.dtype)


def normalised_target(target: Tensor, published: Mapping[str, Tensor]) -> Tensor:
    """``(target - mean) / sqrt(var + 1e-8)``: from the units of the rewards to the critic's."""
    scale = (published["value_var"] + EPSILON).rsqrt()
    return (target - published["value_mean"].to(target.dtype)) * scale.to(target.dtype)
