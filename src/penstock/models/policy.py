"""A ``network.PolicyGraph`` as torch functions, for training and for serving. Holds no parameters."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.models.architecture import PrecisionName
from penstock.models.encoding import EPSILON, encode, input_scale, normalise
from penstock.models.forward import Forward
from penstock.network import Gaussian, PolicyGraph
from penstock.ops.distributions import CategoricalDistribution, DiagonalGaussian, Distribution

__all__ = ["Judgement", "Policy", "denormalised_value", "normalised_target"]


class Judgement(NamedTuple):
    """What an actor-critic says of n observations."""

    distribution: Distribution
    value: Tensor
    """``[n]``; in the critic's own units where values are normalised."""


class Policy:
    """``(published, obs) -> Judgement`` and ``act``, as pure functions of named tensors.

    Args:
        graph: the policy.
        precision: in which all layers but the last compute; ``float32`` stands for that of the parameters.
    """

    def __init__(self, graph: PolicyGraph, precision: PrecisionName = "float32") -> None:
        self.graph = graph
        self._compute = torch.bfloat16 if precision == "bfloat16" else None
        scale = input_scale(graph.encoding)
        self._actor = Forward(graph.actor, scale)
        self._critic = None if graph.critic is None else Forward(graph.critic, scale)

    def __call__(self, published: Mapping[str, Tensor], obs: Mapping[str, Tensor]) -> Judgement:
        """Action distribution and value of each observation.

        Args:
            published: flat vectors by network name, and statistics where the graph normalises.
            obs: field -> ``[n, ...]``.
        """
        graph = self.graph
        flat = published[graph.actor.name]
        x = encode(graph.encoding, obs, self._compute or flat.dtype)
        if graph.normalize_obs:
            x = normalise(x, published["obs_mean"], published["obs_var"])
        output, free = self._actor(flat, x)
        if graph.critic is None or self._critic is None:
            head, value = output[:, :-1], output[:, -1]
        else:
            head, value = output, self._critic(published[graph.critic.name], x).output.squeeze(1)
        if isinstance(graph.head, Gaussian):
            return Judgement(DiagonalGaussian(head, free["log_std"]), value)
        return Judgement(CategoricalDistribution(head), value)

    def act(self, published: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Action, its log-probability, and the value in the units of the rewards.

        Args:
            published: as above.
            inputs: observation fields ``[n, ...]``, ``noise`` ``[n, k]``, ``explore`` ``[n]``.
        """
        distribution, value = self(published, inputs)
        action = distribution.sample(inputs["noise"], inputs["explore"])
        if self.graph.normalize_value:
            value = denormalised_value(value, published)
        return {"action": action, "log_prob": distribution.log_prob(action), "value": value}


def denormalised_value(value: Tensor, published: Mapping[str, Tensor]) -> Tensor:
    """``v sqrt(var + 1e-8) + mean``: from the critic's units to those of the rewards."""
    deviation = (published["value_var"] + EPSILON).sqrt()
    return value * deviation.to(value.dtype) + published["value_mean"].to(value.dtype)


def normalised_target(target: Tensor, published: Mapping[str, Tensor]) -> Tensor:
    """``(target - mean) / sqrt(var + 1e-8)``: from the units of the rewards to the critic's."""
    scale = (published["value_var"] + EPSILON).rsqrt()
    return (target - published["value_mean"].to(target.dtype)) * scale.to(target.dtype)
