"""Decides which policy graphs the native kernels run and train, and makes their layouts."""

from collections.abc import Sequence

from penstock.kernels.policy import HeadLayout, NetworkLayout, PolicyLayout
from penstock.policies.graph import PolicyGraph
from penstock.policies.heads import Categorical, Composed, EpsilonGreedy, Gaussian, Head, SquashedGaussian
from penstock.policies.layers import GRU, LSTM, Activation, Dueling, Layer, Linear
from penstock.policies.network import Network

__all__ = ["layers_of", "layout_of", "supports", "supports_learning", "supports_update"]


def supports(graph: PolicyGraph) -> bool:
    """True if the native kernel can run ``graph``: flat and one-hot fields, linear and recurrent layers, no branches.

    The last layer may be a dueling layer that fits the head. The kernel knows no composed heads. Beside the outputs of
    a Gaussian or categorical head it needs a value.
    """
    if isinstance(graph.head, Composed) or (isinstance(graph.head, Gaussian | Categorical) and not graph.gives_value):
        return False
    return all(part.kind in {"flat", "one_hot"} for part in graph.encoding) and all(
        not network.branches
        and _alternates(network.layers[:-1] if _ends_in_duel(network, graph.head) else network.layers)
        for network in graph.networks
    )


def _ends_in_duel(network: Network, head: Head) -> bool:
    return isinstance(head, EpsilonGreedy) and network.layers[-1:] == (Dueling(head.n, head.atoms),)


def _alternates(layers: Sequence[Layer]) -> bool:
    """True if all layers are linear, recurrent or activations, and every activation follows another layer."""
    before: object = None
    for layer in layers:
        weighs = isinstance(layer, Linear | LSTM | GRU)
        if not weighs and not (isinstance(layer, Activation) and isinstance(before, Linear | LSTM | GRU)):
            return False
        before = layer
    return before is not None


def supports_update(graph: PolicyGraph) -> bool:
    """True if the native update can train ``graph``: the kernel runs it, with a critic network, no carry, no mask."""
    free = (("log_std", graph.head.size),) if isinstance(graph.head, Gaussian) else ()
    own = tuple((name, size) for name, size, _ in graph.actor.free)
    separate = graph.critic is not None and own == free and not graph.critic.free
    return separate and not graph.carry and graph.mask is None and supports(graph)


def supports_learning(graph: PolicyGraph, *others: Network) -> bool:
    """True if the native updates from a table can train the actor of ``graph`` and the ``others``, its critics.

    They train linear layers, and a dueling layer at the end of the actor. They know no carry and no mask.
    """
    plain = all(not other.branches and not other.free and _alternates(other.layers) for other in others)
    return plain and not graph.carry and not graph.actor.free and graph.mask is None and supports(graph)


def layers_of(network: Network) -> tuple[tuple[str, int, int, str], ...]:
    """The layers of a network in the form that the kernels take: kind, inputs, outputs, activation."""
    return _network(network).layers


def layout_of(graph: PolicyGraph) -> PolicyLayout:
    """The graph in the form that the kernels take.

    Raises:
        ValueError: the kernels cannot run it. Check with `supports` first.
    """
    if not supports(graph):
        raise ValueError("the native kernel runs only linear and recurrent layers, no images and no composed heads")
    return PolicyLayout(
        tuple(part.field for part in graph.encoding),
        tuple((part.kind == "one_hot", part.size, part.start) for part in graph.encoding),
        _network(graph.actor),
        _network(graph.critic) if graph.critic is not None else None,
        _head(graph),
        graph.head.outputs,
        graph.normalize_obs,
        graph.normalize_value,
        tuple(spec.name for spec in graph.carry),
        graph.mask,
    )


def _network(network: Network) -> NetworkLayout:
    layers: list[tuple[str, int, int, str]] = []
    for layer in network.layers:
        match layer:
            case Linear(inputs, outputs):
                layers.append(("linear", inputs, outputs, "none"))
            case LSTM(inputs, size):
                layers.append(("lstm", inputs, size, "none"))
            case GRU(inputs, size):
                layers.append(("gru", inputs, size, "none"))
            case Activation(name):
                layers.append((*layers.pop()[:3], name))
    return NetworkLayout(network.name, tuple(layers))


def _log_std(network: Network) -> int:
    """Offset of the Gaussian head's ``log_std`` in its network's flat vector."""
    for part in network.slices():
        if part.name == "log_std":
            return part.offset
    raise ValueError(f"network {network.name} has no free vector log_std, which a Gaussian head needs")


def _head(graph: PolicyGraph) -> HeadLayout:
    head = graph.head
    if isinstance(head, Composed):
        raise TypeError("the native kernel has no composed head")
    size = head.n if isinstance(head, Categorical | EpsilonGreedy) else head.size
    log_std = _log_std(graph.actor) if isinstance(head, Gaussian) else 0
    atoms, low, high = 1, 0.0, 0.0
    if isinstance(head, EpsilonGreedy):
        atoms, low, high = head.atoms, head.low, head.high
    elif isinstance(head, SquashedGaussian):
        low, high = head.log_std_min, head.log_std_max
    return HeadLayout(type(head).__name__, size, log_std, atoms, low, high, _ends_in_duel(graph.actor, head))
