"""The native forward pass of a `PolicyGraph` of linear layers and activations, alone or bound to fixed arrays.

Runs every head, and a dueling layer as the last. Does not run images, convolutions or layers that do not alternate:
`supports` says so beforehand.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.kernels import _native
from penstock.kernels.actions import bounds_of
from penstock.network import (
    Activation,
    Categorical,
    Dueling,
    EpsilonGreedy,
    Gaussian,
    Head,
    Layer,
    Linear,
    Network,
    PolicyGraph,
    SquashedGaussian,
)
from penstock.types import Array, Box, Space

__all__ = ["BoundPolicy", "PolicyKernel", "layers_of", "supports"]

BoundPolicy = _native.BoundPolicy
"""A policy bound to fixed arrays: ``act(t, step)`` and ``value(t)``. See `PolicyKernel.bind`."""


def supports(graph: PolicyGraph) -> bool:
    """True if the native kernel can run ``graph``: no image, and networks of linear layers and activations alone.

    A dueling layer may be the last, under the head that it was made for.
    """
    return all(part.kind != "image" for part in graph.encoding) and all(
        _alternates(network.layers[:-1] if _ends_in_duel(network, graph.head) else network.layers)
        for network in graph.networks
    )


def _ends_in_duel(network: Network, head: Head) -> bool:
    return isinstance(head, EpsilonGreedy) and network.layers[-1:] == (Dueling(head.n, head.atoms),)


def _alternates(layers: Sequence[Layer]) -> bool:
    """True if the first layer is linear and every activation follows a linear layer."""
    before: object = None
    for layer in layers:
        fits = isinstance(layer, Linear) or (isinstance(layer, Activation) and isinstance(before, Linear))
        if not fits:
            return False
        before = layer
    return before is not None


def layers_of(network: Network) -> list[tuple[int, int, str]]:
    """``(inputs, outputs, activation)`` of each linear layer and what follows it."""
    layers: list[tuple[int, int, str]] = []
    for layer in network.layers:
        if isinstance(layer, Linear):
            layers.append((layer.inputs, layer.outputs, "none"))
        elif isinstance(layer, Activation):
            inputs, outputs, _ = layers.pop()
            layers.append((inputs, outputs, layer.name))
    return layers


def _log_std(network: Network) -> int:
    """Offset of the Gaussian head's ``log_std`` in its network's flat vector."""
    for part in network.slices():
        if part.name == "log_std":
            return part.offset
    raise ValueError(f"network {network.name} has no free vector log_std, which a Gaussian head needs")


def _head(graph: PolicyGraph) -> tuple[str, int, int, int, float, float, bool]:
    """Kind, size, offset of ``log_std``, atoms, bounds (of ``log_std``, or of the atoms), whether it ends in a duel."""
    head = graph.head
    size = head.n if isinstance(head, Categorical | EpsilonGreedy) else head.size
    log_std = _log_std(graph.actor) if isinstance(head, Gaussian) else 0
    atoms, low, high = 1, 0.0, 0.0
    if isinstance(head, EpsilonGreedy):
        atoms, low, high = head.atoms, head.low, head.high
    elif isinstance(head, SquashedGaussian):
        low, high = head.log_std_min, head.log_std_max
    return type(head).__name__, size, log_std, atoms, low, high, _ends_in_duel(graph.actor, head)


class PolicyKernel:
    """Runs ``act`` of one graph natively. One kernel serves one thread at a time.

    A row's outputs never depend on how many rows are in the call. Bits are promised per instruction-set level.

    Args:
        graph: a graph for which `supports` is true; otherwise ``ValueError``.
        level: instruction-set level, one of `levels`; ``None`` takes the fastest that this processor has.
    """

    def __init__(self, graph: PolicyGraph, level: str | None = None) -> None:
        if not supports(graph):
            raise ValueError("the native kernel runs linear layers and activations without images only")
        self.graph = graph
        self._policy = _native.Policy(
            [(part.kind == "one_hot", part.size, part.start) for part in graph.encoding],
            layers_of(graph.actor),
            layers_of(graph.critic) if graph.critic is not None else [],
            _head(graph),
            graph.normalize_obs,
            graph.normalize_value,
            level,
        )
        self._fields = tuple(part.field for part in graph.encoding)

    @property
    def level(self) -> str:
        """The instruction-set level that this kernel runs at."""
        return self._policy.level

    def load(self, published: Mapping[str, Array]) -> None:
        """Copy parameters and statistics of a published record; the arrays may be reused afterwards."""
        graph = self.graph
        normalized = graph.normalize_value
        self._policy.load(
            published[graph.actor.name],
            published[graph.critic.name] if graph.critic is not None else None,
            published["obs_mean"] if graph.normalize_obs else None,
            published["obs_var"] if graph.normalize_obs else None,
            float(published["value_mean"]) if normalized else 0.0,
            float(published["value_var"]) if normalized else 1.0,
        )

    def act(self, obs: Mapping[str, Array], noise: Array, explore: Array, out: Mapping[str, Array]) -> None:
        """Write the outputs of ``act`` for n lanes into ``out``.

        Args:
            obs: field -> ``[n, ...]``, each row contiguous; numbers of any type.
            noise: ``[n, k]`` float32, as ``graph.head.noise`` describes it.
            explore: ``[n]`` float32; 0 is greedy.
            out: any of ``graph.outputs``: ``action`` (float32 policy units, or int64 from 0), the others float32.
        """
        self._policy.act(
            [obs[field] for field in self._fields],
            noise,
            explore,
            out.get("action"),
            out.get("log_prob"),
            out.get("value"),
            out.get("q"),
        )

    def bind(
        self,
        obs: Mapping[str, Array],
        out: Mapping[str, Array],
        *,
        seed: int = 0,
        lanes: Array | None = None,
        explore: Array | None = None,
        environment: Array | None = None,
        space: Space | None = None,
    ) -> BoundPolicy:
        """Check arrays once, for a loop that calls one row at a time.

        Args:
            obs: field -> ``[rows, lanes, ...]``.
            out: any of ``graph.outputs``: ``[rows, lanes, ...]``, as in `act`.
            seed: keys the noise, with the lane and the step.
            lanes: ``[lanes]`` int64 global lane numbers; ``None`` if only values are wanted.
            explore: ``[lanes]`` float32, read at every call; ``None`` explores fully.
            environment: ``[lanes, ...]`` staging array that receives each action in the environment's own units and
                dtype, as `penstock.kernels.actions.to_environment` gives it; needs ``space``.
            space: the environment's action space.

        Returns:
            ``act(t, step)`` reads observations at row t, draws noise for (seed, lane, step) and writes row t of ``out``
            and ``environment``; ``value(t)`` writes only ``value`` at row t. Both raise ``IndexError`` for a row that
            is not there. The arrays are kept alive. Loading new parameters into this kernel is seen by the next call.
        """
        if environment is not None and space is None:
            raise ValueError("an environment array needs the environment's action space")
        bounded = isinstance(space, Box) and space.bounded
        low, high = bounds_of(space) if isinstance(space, Box) and bounded else (np.zeros(0), np.zeros(0))
        start = 0 if space is None or isinstance(space, Box) else space.start
        return self._policy.bind(
            [obs[field] for field in self._fields],
            out.get("action"),
            out.get("log_prob"),
            out.get("value"),
            out.get("q"),
            environment,
            lanes,
            explore,
            bounded,
            low.tolist(),
            high.tolist(),
            start,
            seed,
        )
