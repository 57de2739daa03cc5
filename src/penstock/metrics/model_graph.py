"""The networks of a policy as a graph that people look at: a node for each layer, with the shape of what comes out.

Computes nothing, and holds no parameters.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.policies import (
    GRU,
    LSTM,
    Activation,
    Attention,
    Conv2d,
    Dueling,
    Embedding,
    Encoding,
    Flatten,
    Layer,
    Linear,
    MaxPool,
    MeanPool,
    Network,
    OwnModule,
    PolicyGraph,
    Residual,
)
from penstock.policies.encoding import ACTION
from penstock.types import Spaces

__all__ = ["GraphNode", "model_graph"]

_UNFIT = re.compile(r"[^A-Za-z0-9_.-]")
"""A character that the name of a node cannot have."""
_NOT_SHOWN = frozenset({"layers", "spaces"})
"""Fields of layers that are graphs or spaces themselves."""
_NORMALIZED = ("normalized", "by the running mean and deviation")


class GraphNode(NamedTuple):
    """A node of the graph."""

    name: str
    """Slashes part it: nodes whose names begin alike are shown in one box. ``actor/0.Linear``."""
    kind: str
    """What it does: ``Linear``."""
    inputs: tuple[str, ...]
    """Names of the nodes that it takes."""
    shape: tuple[int, ...]
    """Of what comes out for one observation."""
    facts: tuple[tuple[str, str], ...] = ()
    """What else is known of it: name and value."""


def model_graph(policy: PolicyGraph, spaces: Spaces) -> tuple[GraphNode, ...]:
    """The graph of ``act``: observation fields, their encodings, the layers of each network, action and value.

    Each node comes after those that it takes. Networks that only learning needs, such as the critics of SAC, are none
    of the policy's.

    Args:
        policy: the policy.
        spaces: of one lane, in training.
    """
    return tuple(_Drawing(policy, spaces).nodes())


class _Drawing:
    """Draws one policy."""

    def __init__(self, policy: PolicyGraph, spaces: Spaces) -> None:
        self._policy = policy
        self._fields = {spec.name: spec for spec in spaces.obs_specs()}
        self._action = spaces.action_spec()
        self._found: list[GraphNode] = []
        self._encoded: dict[str, GraphNode] = {}
        """Field -> its encoding."""
        self._names: set[str] = set()

    def nodes(self) -> list[GraphNode]:
        """All nodes."""
        policy = self._policy
        seen = {name: self._observation(name) for name in policy.fields}
        for part in policy.encoding:
            self._encoded[part.field] = self._encoding(part, seen[part.field])
        outputs = {network.name: self._network(network) for network in policy.networks}
        acting = [outputs[policy.actor.name]]
        if policy.mask is not None:
            acting.append(seen[policy.mask])
        free = [(name, f"[{size}]") for name, size, _ in policy.actor.free]
        self._add("action", type(policy.head).__name__, acting, self._action.shape, [*_facts(policy.head), *free])
        if policy.gives_value:
            judging = [outputs[(policy.critic or policy.actor).name]]
            self._add("value", "Value", judging, (), [_NORMALIZED] if policy.normalize_value else [])
        return self._found

    def _add(
        self,
        name: str,
        kind: str,
        inputs: Sequence[GraphNode],
        shape: tuple[int, ...],
        facts: Iterable[tuple[str, str]] = (),
    ) -> GraphNode:
        """Add a node. A name that is taken gets a line behind it: the names of fields may become alike."""
        while name in self._names:
            name += "_"
        self._names.add(name)
        node = GraphNode(name, kind, tuple(one.name for one in inputs), shape, tuple(facts))
        self._found.append(node)
        return node

    def _observation(self, field: str) -> GraphNode:
        spec = self._fields[field]
        return self._add(f"observation/{_fit(field)}", "Observation", (), spec.shape, [("dtype", spec.dtype)])

    def _encoding(self, part: Encoding, seen: GraphNode) -> GraphNode:
        facts = [_NORMALIZED] if part.is_vector and self._policy.normalize_obs else []
        return self._add(f"encoding/{_fit(part.field)}", part.kind, [seen], _encoded_shape(part, seen.shape), facts)

    def _network(self, network: Network) -> GraphNode:
        """The last node of a network."""
        if network.own is not None:
            given = [self._encoded[field] for field in network.own.fields if field != ACTION]
            return self._layers(network.layers, given, network.name)
        if not network.branches:
            return self._layers(network.layers, list(self._encoded.values()), network.name)
        ends = []
        for branch in network.branches:
            given = [self._encoded[field] for field in branch.fields]
            mask = self._encoded.get(branch.mask)
            ends.append(self._layers(branch.layers, given, f"{network.name}/{_fit(branch.name)}", mask))
        return self._layers(network.layers, ends, network.name)

    def _layers(
        self, layers: Sequence[Layer], given: Sequence[GraphNode], scope: str, mask: GraphNode | None = None
    ) -> GraphNode:
        """The last node of these layers. Several inputs are concatenated first, but for a user's own module.

        Args:
            layers: may be empty.
            given: what they take.
            scope: begins the names of their nodes.
            mask: which entities of a set are there.
        """
        own = bool(layers) and isinstance(layers[0], OwnModule)
        if len(given) > 1 and not own:
            given = [self._add(f"{scope}/joined", "Concat", given, (sum(math.prod(one.shape) for one in given),))]
        for index, layer in enumerate(layers):
            kind = layer.name if isinstance(layer, Activation) else type(layer).__name__
            name = f"{scope}/{index}.{kind}"
            if isinstance(layer, Residual):
                inside = self._layers(layer.layers, given, name, mask)
                given = [self._add(f"{name}/sum", "Add", [*given, inside], inside.shape)]
                continue
            taken = [*given, mask] if mask is not None and isinstance(layer, Attention | MeanPool) else given
            given = [self._add(name, kind, taken, _shape_behind(layer, given[0].shape), _facts(layer))]
        return given[0]


def _fit(name: str) -> str:
    return _UNFIT.sub("_", name)


def _facts(part: object) -> Iterator[tuple[str, str]]:
    """The fields of a layer or of a head."""
    if dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            if field.name not in _NOT_SHOWN:
                yield field.name, str(getattr(part, field.name))


def _encoded_shape(part: Encoding, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an encoded field, of which ``shape`` is observed."""
    match part.kind:
        case "flat" | "one_hot" | "binary":
            return (part.size,)
        case "image":
            return shape if part.channels_first else (shape[2], *shape[:2])
        case "spatial":
            height, width = part.shape[:2]
            return (part.size // (height * width) * part.values, height, width)
        case "embedding":
            return ()
    return part.shape


def _shape_behind(layer: Layer, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what a layer gives for an input of this shape."""
    match layer:
        case Linear(_, outputs):
            return (*shape[:-1], outputs)
        case Conv2d(_, channels, kernel, stride, padding=padding):
            return (channels, *((side + 2 * padding - kernel) // stride + 1 for side in shape[1:]))
        case MaxPool(kernel, stride, padding):
            return (shape[0], *((side + 2 * padding - kernel) // stride + 1 for side in shape[1:]))
        case Flatten():
            return (math.prod(shape),)
        case Dueling(n, atoms):
            return (n * atoms,)
        case LSTM(_, size) | GRU(_, size):
            return (size,)
        case Embedding(_, width):
            return (*shape, width)
        case MeanPool():
            return shape[1:]
        case OwnModule():
            return (layer.outputs + layer.gives_value,)
    return shape
