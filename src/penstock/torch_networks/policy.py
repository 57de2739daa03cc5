"""A `penstock.policies.PolicyGraph` as torch functions, for training and for serving. Holds no parameters."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.ops.distributions import Distribution, TanhGaussian, epsilon_greedy, expected_value, perturbed
from penstock.ops.statistics import EPSILON
from penstock.policies import (
    Categorical,
    Composed,
    EpsilonGreedy,
    Gaussian,
    Network,
    PolicyGraph,
    SquashedGaussian,
)
from penstock.policies.architecture import PrecisionName
from penstock.policies.encoding import VECTOR, Encoding
from penstock.torch_networks.encoding import encode, normalise
from penstock.torch_networks.forward import Forward, Memory, Outputs
from penstock.torch_networks.heads import distribution_of

__all__ = ["Judgement", "Output", "Policy", "action_values", "denormalised_value", "normalised_target", "squashed"]


class Judgement(NamedTuple):
    """Result of an actor-critic for n observations."""

    distribution: Distribution
    value: Tensor
    """``[n]``; in the critic's own units if values are normalised."""
    carry: dict[str, Tensor]
    """Name -> ``[m, size]``: what a policy with memory hands on, behind the last row of each lane."""


class Output(NamedTuple):
    """Result of a network without value for n observations."""

    output: Tensor
    """The head's outputs, ``[n, head.outputs]``."""
    carry: dict[str, Tensor]
    """As that of `Judgement`."""


class Policy:
    """``(published, obs) -> Judgement`` and ``act``, as pure functions of named tensors.

    Args:
        graph: the policy.
        precision: dtype in which all layers but the last compute; ``float32`` means the dtype of the parameters.
    """

    def __init__(self, graph: PolicyGraph, precision: PrecisionName = "float32") -> None:
        self.graph = graph
        self._compute = None if precision == "float32" else getattr(torch, precision)
        self._actor = Forward(graph.actor, graph.encoding)
        self._critic = None if graph.critic is None else Forward(graph.critic, graph.encoding)

    def __call__(self, published: Mapping[str, Tensor], obs: Mapping[str, Tensor]) -> Judgement:
        """Action distribution and value of each observation, for a policy that gives a value.

        Args:
            published: flat vectors by network name, and statistics if the graph normalises.
            obs: field -> ``[n, ...]``, the action mask included. For a policy with memory also ``first`` ``[n]`` and
                its carry. Rows of m lanes over T steps are ``[m, T, ...]``, with ``first`` ``[m, T]`` and the carry
                before their first rows, ``[m, size]``. The result is then of n = m T rows, lane after lane.
                While learning also the noise of dropout.
        """
        graph = self.graph
        memory = _memory(graph, obs)
        rows = obs if memory is None or obs["first"].dim() == 1 else _flat(graph.fields, obs)
        x = self.features(published, rows)
        output, free, carry = self._actor(published[graph.actor.name], x, memory, _noise(graph.actor, obs))
        if graph.critic is None or self._critic is None:
            head, value = output[:, :-1], output[:, -1]
        else:
            judged = self._critic(published[graph.critic.name], x, memory, _noise(graph.critic, obs))
            head, value, carry = output, judged.output.squeeze(1), {**carry, **judged.carry}
        mask = None if graph.mask is None else rows[graph.mask]
        return Judgement(distribution_of(graph.head, head, free.get("log_std"), mask), value, carry)

    def features(self, published: Mapping[str, Tensor], obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inputs of the networks: encoded observations, normalised if the graph says so."""
        graph = self.graph
        return self.encoded(graph.encoding, published, obs, published[graph.actor.name].dtype)

    def encoded(
        self,
        encoding: Sequence[Encoding],
        published: Mapping[str, Tensor],
        obs: Mapping[str, Tensor],
        dtype: torch.dtype,
    ) -> dict[str, Tensor]:
        """Observations as a network with this encoding sees them, normalised if the graph says so.

        ``dtype`` is that of the network's parameters.
        """
        compute = self.compute_dtype(dtype)
        if not self.graph.normalize_obs:
            return encode(encoding, obs, compute)
        # If observations far from 0 were rounded to bfloat16 first, their differences from the mean would be lost.
        x = encode(encoding, obs, compute, vectors=dtype)
        if VECTOR in x:
            x[VECTOR] = normalise(x[VECTOR], published["obs_mean"], published["obs_var"]).to(compute)
        return x

    def compute_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype in which all layers but the last compute, if their parameters have ``dtype``."""
        return self._compute or dtype

    def output(self, published: Mapping[str, Tensor], obs: Mapping[str, Tensor]) -> Tensor:
        """The head's outputs ``[n, head.outputs]`` of a policy without value. See `squashed` and `action_values`."""
        return self.unrolled(published, obs).output

    def unrolled(self, published: Mapping[str, Tensor], obs: Mapping[str, Tensor]) -> Output:
        """The head's outputs of a policy without value, and its next carry. Arguments are those of a call."""
        found = self._run(published, obs)
        return Output(found.output, found.carry)

    def _run(self, published: Mapping[str, Tensor], obs: Mapping[str, Tensor]) -> Outputs:
        """The actor's outputs. Arguments are those of a call."""
        memory = _memory(self.graph, obs)
        rows = obs if memory is None or obs["first"].dim() == 1 else _flat(self.graph.fields, obs)
        return self._actor(published[self.graph.actor.name], self.features(published, rows), memory)

    def act(self, published: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """``graph.outputs``: the action; also its log-probability, the value in the units of the rewards, or ``q``.

        A policy with memory also gives its next carry.

        Args:
            published: as for calling the policy.
            inputs: observation fields ``[n, ...]``, ``noise`` ``[n, k]``, ``explore`` ``[n]``; for a policy with memory
                also ``first`` ``[n]`` and its carry.
        """
        if not self.graph.gives_value:
            found = self._run(published, inputs)
            return {**_chosen(self.graph, found, inputs), **found.carry}
        distribution, value, carry = self(published, inputs)
        action = distribution.sample(inputs["noise"], inputs["explore"])
        if self.graph.normalize_value:
            value = denormalised_value(value, published)
        return {"action": action, "log_prob": distribution.log_prob(action), "value": value, **carry}


def _memory(graph: PolicyGraph, inputs: Mapping[str, Tensor]) -> Memory | None:
    """What recurrent layers need of the inputs; ``None`` if the policy has none."""
    if not graph.carry:
        return None
    first = inputs["first"]
    carry = {spec.name: inputs[spec.name] for spec in graph.carry}
    return Memory(first if first.dim() == 2 else first.unsqueeze(1), carry)


def _noise(network: Network, inputs: Mapping[str, Tensor]) -> list[Tensor]:
    """The noise of dropout ``[n, size]``, if the inputs have it."""
    found = [inputs[spec.name] for spec in network.dropout if spec.name in inputs]
    return [values.flatten(0, 1) if values.dim() == 3 else values for values in found]


def _flat(fields: Sequence[str], rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Observation fields ``[m, T, ...]`` as ``[m * T, ...]``."""
    return {name: rows[name].flatten(0, 1) for name in fields}


def squashed(head: SquashedGaussian, output: Tensor) -> TanhGaussian:
    """The distribution that the outputs ``[n, 2 * size]`` describe."""
    log_std = output[:, head.size :].clamp(head.log_std_min, head.log_std_max)
    return TanhGaussian(output[:, : head.size], log_std)


def action_values(head: EpsilonGreedy, output: Tensor) -> Tensor:
    """``q`` ``[m, n]`` from the outputs ``[m, n * atoms]``."""
    if head.atoms == 1:
        return output
    return expected_value(output.reshape(-1, head.n, head.atoms), head.low, head.high)


def _chosen(graph: PolicyGraph, found: Outputs, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Outputs of ``act`` for a policy without value, but for the carry."""
    head, output, noise, explore = graph.head, found.output, inputs["noise"], inputs["explore"]
    mask = None if graph.mask is None else inputs[graph.mask]
    if isinstance(head, Gaussian | Categorical | Composed):
        distribution = distribution_of(head, output, found.free.get("log_std"), mask)
        action = distribution.sample(noise, explore)
        return {"action": action, "log_prob": distribution.log_prob(action)}
    if isinstance(head, EpsilonGreedy):
        q = action_values(head, output)
        return {"action": epsilon_greedy(q, noise, explore, mask), "q": q}
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
