"""Heads as ONNX nodes: from a network's outputs to the outputs of ``act``, and to the greedy action."""

from collections.abc import Sequence

import numpy as np

from penstock.inference.onnx.writer import Writer
from penstock.policies import Categorical, Composed, Deterministic, EpsilonGreedy, Head, SquashedGaussian
from penstock.policies.heads import FORBIDDEN
from penstock.types import ActionSpace, Box, Composite, Discrete, Leaf, LeafPath, MultiDiscrete

__all__ = ["greedy", "possible", "sample"]


def possible(writer: Writer, head: Head, outputs: str, mask: str | None) -> str:
    """The head's outputs, with `FORBIDDEN` for the logits of choices that the mask ``[n, sum(choices)]`` excludes.

    Action values are left as they are: with atoms, an action has several logits.
    """
    if mask is None or isinstance(head, EpsilonGreedy):
        return outputs
    forbidden = writer.constant(FORBIDDEN, "float32")
    if not isinstance(head, Composed):
        return writer.op("Where", writer.cast(mask, "bool"), outputs, forbidden)
    parts, chosen = [], 0
    for stretch in head.stretches():
        part = writer.columns(outputs, stretch.outputs.start, stretch.outputs.stop)
        if stretch.choices:
            own = writer.columns(mask, chosen, chosen + sum(stretch.choices))
            part = writer.op("Where", writer.cast(own, "bool"), part, forbidden)
            chosen += sum(stretch.choices)
        parts.append(part)
    return writer.op("Concat", *parts, axis=1)


def sample(writer: Writer, head: Head, outputs: str, log_std: str | None, mask: str | None) -> None:
    """Declare inputs ``noise`` and ``explore``, and write the head's outputs: ``action``, and ``log_prob`` or ``q``.

    Args:
        writer: writer of the graph.
        head: the policy's head.
        outputs: name of the network's outputs, ``[n, head.outputs]``.
        log_std: name of the free vector of a head with Gaussian parts; ``None`` for other heads.
        mask: name of the action mask of a head whose outputs `possible` leaves as they are.
    """
    if isinstance(head, Categorical | EpsilonGreedy):
        writer.output("action", "int64", ("n",))
    else:
        writer.output("action", "float32", ("n", head.size))
    noise = writer.input("noise", "float32", ("n", *head.noise.shape))
    explore = writer.input("explore", "float32", ("n",))
    if isinstance(head, EpsilonGreedy):
        _epsilon_greedy(writer, head, outputs, noise, explore, mask=mask)
        return
    scaled = writer.op("Mul", writer.op("Reshape", explore, writer.constant([-1, 1], "int64")), noise)
    if isinstance(head, SquashedGaussian):
        _squashed_gaussian(writer, head, outputs, scaled)
    elif isinstance(head, Deterministic):
        _clipped(writer, writer.op("Add", writer.op("Tanh", outputs), scaled), "float32", into="action")
    else:
        writer.output("log_prob", "float32", ("n",))
        if isinstance(head, Categorical):
            _categorical(writer, outputs, scaled)
        elif isinstance(head, Composed):
            _composed(writer, head, outputs, scaled, log_std)
        elif log_std is not None:
            action, log_prob = _gaussian(writer, outputs, scaled, log_std, head.size)
            writer.op("Identity", action, into="action")
            writer.op("Identity", log_prob, into="log_prob")


def greedy(writer: Writer, head: Head, outputs: str, space: ActionSpace, mask: str | None) -> None:
    """Declare and write the action without exploration, ``[n, ...]`` in the environment's units and dtype.

    It is the output ``action``; for a Composite there is one output for each leaf, ``action.<path>``.
    """
    if isinstance(space, Composite):
        first = 0
        for path, leaf in space.leaves:
            last = first + (leaf.size if isinstance(leaf, Box) else sum(leaf.choices))
            _leaf(writer, writer.columns(outputs, first, last), leaf, into=leaf_name(path))
            first = last
        return
    if isinstance(head, EpsilonGreedy):
        outputs = _possible_values(writer, _values(writer, head, outputs), mask)
    elif isinstance(head, SquashedGaussian | Deterministic):
        mean = writer.columns(outputs, 0, head.size) if isinstance(head, SquashedGaussian) else outputs
        outputs = writer.op("Tanh", mean)
    _leaf(writer, outputs, space, into="action")


def leaf_name(path: LeafPath) -> str:
    """The output that holds a leaf of a composite action."""
    return ".".join(("action", *map(str, path)))


def _leaf(writer: Writer, outputs: str, space: Leaf, into: str) -> None:
    """Declare and write the greedy action of one leaf: from preferences or numbers in the policy's units."""
    match space:
        case Discrete():
            chosen = writer.op("ArgMax", outputs, axis=1, keepdims=0)
            writer.op("Add", chosen, writer.constant(space.start, "int64"), into=into)
            writer.output(into, "int64", ("n",))
        case MultiDiscrete():
            chosen = writer.op("ArgMax", _row(writer, outputs, space.sizes, FORBIDDEN), axis=2, keepdims=0)
            chosen = writer.op("Add", chosen, writer.constant(space.starts, "int64"))
            shaped = writer.op("Reshape", chosen, writer.constant([-1, *space.shape], "int64"))
            writer.cast(shaped, space.dtype, into=into)
            writer.output(into, space.dtype, ("n", *space.shape))
        case Box():
            _to_environment(writer, outputs, space, into)
            writer.output(into, space.dtype, ("n", *space.shape))


def _composed(writer: Writer, head: Composed, outputs: str, z: str, log_std: str | None) -> None:
    actions, log_probs, spread = [], [], 0
    for stretch in head.stretches():
        ends = stretch.outputs.start, stretch.outputs.stop
        own, noise = writer.columns(outputs, *ends), writer.columns(z, *ends)
        if stretch.choices:
            action, log_prob = _choose(writer, stretch.choices, own, noise)
        elif log_std is not None:
            size = ends[1] - ends[0]
            edges = [writer.constant([edge], "int64") for edge in (spread, spread + size)]
            deviations = writer.op("Slice", log_std, *edges)
            action, log_prob = _gaussian(writer, own, noise, deviations, size)
            spread += size
        else:
            raise ValueError("a composed head with Gaussian parts needs its log_std")
        actions.append(action)
        log_probs.append(log_prob)
    writer.op("Concat", *actions, axis=1, into="action")
    writer.op("Sum", *log_probs, into="log_prob")


def _choose(writer: Writer, choices: Sequence[int], logits: str, z: str) -> tuple[str, str]:
    """Action ``[n, k]`` float32 and log-probability ``[n]`` of independent choices."""
    rows = _row(writer, logits, choices, FORBIDDEN)
    chosen = writer.op("ArgMax", writer.op("Add", rows, _row(writer, z, choices, 0.0)), axis=2, keepdims=1)
    found = writer.op("GatherElements", writer.op("LogSoftmax", rows, axis=2), chosen, axis=2)
    log_prob = writer.op("ReduceSum", found, writer.constant([1, 2], "int64"), keepdims=0)
    action = writer.op("Squeeze", chosen, writer.constant([2], "int64"))
    return writer.cast(action, "float32"), log_prob


def _row(writer: Writer, values: str, choices: Sequence[int], padding: float) -> str:
    """``[n, sum(choices)]`` as ``[n, k, max(choices)]``, padded."""
    first, most, last = 0, max(choices), sum(choices)
    places = np.full((len(choices), most), last)
    for row, choice in zip(places, choices, strict=True):
        row[:choice] = np.arange(first, first + choice)
        first += choice
    edges, value = writer.constant([0, 0, 0, 1], "int64"), writer.constant(padding, "float32")
    return writer.op("Gather", writer.op("Pad", values, edges, value), writer.constant(places, "int64"), axis=1)


def _gaussian(writer: Writer, mean: str, z: str, log_std: str, size: int) -> tuple[str, str]:
    """Action ``[n, size]`` and log-density ``[n]``."""
    action = writer.op("Add", mean, writer.op("Mul", z, writer.op("Exp", log_std)))
    squares = writer.op("ReduceSum", writer.op("Mul", z, z), writer.constant([1], "int64"), keepdims=0)
    spread = writer.op("ReduceSum", log_std, keepdims=0)
    constant = writer.op("Add", spread, writer.constant(0.5 * size * np.log(2.0 * np.pi), "float32"))
    return action, writer.op("Sub", writer.op("Mul", squares, writer.constant(-0.5, "float32")), constant)


def _categorical(writer: Writer, logits: str, z: str) -> None:
    action = writer.op("ArgMax", writer.op("Add", logits, z), axis=1, keepdims=0, into="action")
    axis = writer.constant([1], "int64")
    column = writer.op("Unsqueeze", action, axis)
    chosen = writer.op("GatherElements", writer.op("LogSoftmax", logits, axis=1), column, axis=1)
    writer.op("Squeeze", chosen, axis, into="log_prob")


def _squashed_gaussian(writer: Writer, head: SquashedGaussian, outputs: str, z: str) -> None:
    low, high = writer.constant(head.log_std_min, "float32"), writer.constant(head.log_std_max, "float32")
    log_std = writer.op("Clip", writer.columns(outputs, head.size, 2 * head.size), low, high)
    moved = writer.op("Add", writer.columns(outputs, 0, head.size), writer.op("Mul", z, writer.op("Exp", log_std)))
    writer.op("Tanh", moved, into="action")


def _epsilon_greedy(
    writer: Writer, head: EpsilonGreedy, outputs: str, noise: str, explore: str, *, mask: str | None
) -> None:
    q = _values(writer, head, outputs)
    writer.op("Identity", q, into="q")
    writer.output("q", "float32", ("n", head.n))
    flat = writer.constant([-1], "int64")
    whether = writer.op("Reshape", writer.columns(noise, 0, 1), flat)
    share = writer.op("Reshape", writer.columns(noise, 1, 2), flat)
    anything = _random(writer, head, share, mask)
    best = writer.op("ArgMax", _possible_values(writer, q, mask), axis=1, keepdims=0)
    writer.op("Where", writer.op("Less", whether, explore), anything, best, into="action")


def _random(writer: Writer, head: EpsilonGreedy, share: str, mask: str | None) -> str:
    """The possible action number ``floor(share * count)`` of ``count`` possible ones: int64 ``[n]``."""
    last = writer.constant(1, "int64")
    if mask is None:
        number = writer.cast(writer.op("Mul", share, writer.constant(head.n, "float32")), "int64")
        return writer.op("Min", number, writer.constant(head.n - 1, "int64"))
    possible = writer.cast(writer.cast(mask, "bool"), "float32")
    axis = writer.constant([1], "int64")
    count = writer.op("ReduceSum", possible, axis, keepdims=0)
    number = writer.cast(writer.op("Mul", share, count), "int64")
    number = writer.op("Min", number, writer.op("Sub", writer.cast(count, "int64"), last))
    # The first action with more than `number` possible ones up to it.
    counted = writer.op("CumSum", possible, last)
    beyond = writer.op("Greater", counted, writer.op("Unsqueeze", writer.cast(number, "float32"), axis))
    return writer.op("ArgMax", writer.cast(beyond, "float32"), axis=1, keepdims=0)


def _possible_values(writer: Writer, q: str, mask: str | None) -> str:
    """Action values with the lowest number for those of actions that are not possible."""
    if mask is None:
        return q
    return writer.op("Where", writer.cast(mask, "bool"), q, writer.constant(-np.inf, "float32"))


def _values(writer: Writer, head: EpsilonGreedy, outputs: str) -> str:
    """Action values ``[m, n]``."""
    if head.atoms == 1:
        return outputs
    shaped = writer.op("Reshape", outputs, writer.constant([-1, head.n, head.atoms], "int64"))
    support = writer.constant(np.linspace(head.low, head.high, head.atoms), "float32")
    weighted = writer.op("Mul", writer.op("Softmax", shaped, axis=2), support)
    return writer.op("ReduceSum", weighted, writer.constant([2], "int64"), keepdims=0)


def _clipped(writer: Writer, value: str, dtype: str, into: str | None = None) -> str:
    """Cut to -1 .. 1."""
    return writer.op("Clip", value, writer.constant(-1.0, dtype), writer.constant(1.0, dtype), into=into)


def _to_environment(writer: Writer, mean: str, space: Box, into: str) -> None:
    """`penstock.kernels.actions.to_environment` as ONNX nodes."""
    value = writer.cast(mean, "float64")
    if space.bounded:
        low, high = (np.broadcast_to(np.asarray(edge, np.float64), (space.size,)) for edge in (space.low, space.high))
        above = writer.op("Add", _clipped(writer, value, "float64"), writer.constant(1.0, "float64"))
        share = writer.op("Div", above, writer.constant(2.0, "float64"))
        value = writer.op("Mul", share, writer.constant(high - low, "float64"))
        value = writer.op("Add", value, writer.constant(low, "float64"))
        value = writer.op("Min", value, writer.constant(high, "float64"))
    if not np.issubdtype(np.dtype(space.dtype), np.floating):
        value = writer.op("Round", value)
    shaped = writer.op("Reshape", value, writer.constant([-1, *space.shape], "int64"))
    writer.cast(shaped, space.dtype, into=into)
