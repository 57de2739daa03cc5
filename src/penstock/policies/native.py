"""Decides which policy graphs the native kernels run and train, and makes their layouts."""

from collections.abc import Sequence

from penstock.kernels.policy import HeadLayout, NetworkLayout, PolicyLayout
from penstock.policies.graph import PolicyGraph
from penstock.policies.heads import Categorical, EpsilonGreedy, Gaussian, Head, SquashedGaussian
from penstock.policies.layers import Activation, Dueling, Layer, Linear, Network

__all__ = ["layout_of", "supports", "supports_update"]


def supports(graph: PolicyGraph) -> bool:
    """True if the native kernel can run ``graph``: no image, and networks of only linear layers and activations.

    The last layer may be a dueling layer that fits the head.
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


def supports_update(graph: PolicyGraph) -> bool:
    """True if the native update can train ``graph``: the kernel runs it, and its critic is a separate network."""
    free = (("log_std", graph.head.size),) if isinstance(graph.head, Gaussian) else ()
    own = tuple((name, size) for name, size, _ in graph.actor.free)
    return supports(graph) and graph.critic is not None and own == free and not graph.critic.free


def layout_of(graph: PolicyGraph) -> PolicyLayout:
    """The graph in the form that the kernels take.

    Raises:
        ValueError: the kernels cannot run it. Check with `supports` first.
    """
    if not supports(graph):
        raise ValueError("the native kernel runs only linear layers and activations, and no images")
    return PolicyLayout(
        tuple(part.field for part in graph.encoding),
        tuple((part.kind == "one_hot", part.size, part.start) for part in graph.encoding),
        _network(graph.actor),
        _network(graph.critic) if graph.critic is not None else None,
        _head(graph),
        graph.head.outputs,
        graph.normalize_obs,
        graph.normalize_value,
    )


def _network(network: Network) -> NetworkLayout:
    layers: list[tuple[int, int, str]] = []
    for layer in network.layers:
        if isinstance(layer, Linear):
            layers.append((layer.inputs, layer.outputs, "none"))
        elif isinstance(layer, Activation):
            inputs, outputs, _ = layers.pop()
            layers.append((inputs, outputs, layer.name))
    return NetworkLayout(network.name, tuple(layers))


def _log_std(network: Network) -> int:
    """Offset of the Gaussian head's ``log_std`` in its network's flat vector."""
    for part in network.slices():
        if part.name == "log_std":
            return part.offset
    raise ValueError(f"network {network.name} has no free vector log_std, which a Gaussian head needs")


def _head(graph: PolicyGraph) -> HeadLayout:
    head = graph.head
    size = head.n if isinstance(head, Categorical | EpsilonGreedy) else head.size
    log_std = _log_std(graph.actor) if isinstance(head, Gaussian) else 0
    atoms, low, high = 1, 0.0, 0.0
    if isinstance(head, EpsilonGreedy):
        atoms, low, high = head.atoms, head.low, head.high
    elif isinstance(head, SquashedGaussian):
        low, high = head.log_std_min, head.log_std_max
    return HeadLayout(type(head).__name__, size, log_std, atoms, low, high, _ends_in_duel(graph.actor, head))
