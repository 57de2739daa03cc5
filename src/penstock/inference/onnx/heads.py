"""Heads as ONNX nodes: from a network's outputs to those of ``act``, and to the action in the environment's units."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from penstock.inference.onnx.writer import Writer
from penstock.policies import Categorical, Composed, Deterministic, EpsilonGreedy, Head, SquashedGaussian
from penstock.policies.heads import FORBIDDEN
from penstock.types import ActionSpace, Box, Composite, Discrete, Leaf, LeafPath

__all__ = ["Exploring", "answer", "declare_answer", "declare_noise", "declare_rest", "possible", "to_environment"]


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


class Exploring(NamedTuple):
    """How an action explores: names of the inputs ``noise`` ``[n, k]`` and ``explore`` ``[n]``."""

    noise: str
    explore: str


def declare_noise(writer: Writer, head: Head) -> Exploring:
    """Declare the inputs ``noise`` and ``explore``."""
    noise = writer.input("noise", "float32", ("n", *head.noise.shape))
    return Exploring(noise, writer.input("explore", "float32", ("n",)))


def answer(
    writer: Writer,
    head: Head,
    outputs: str,
    *,
    log_std: str | None,
    exploring: Exploring | None,
    mask: str | None,
) -> dict[str, str]:
    """Write what a head makes of the network's outputs: ``action``, as rows store it, and ``log_prob`` or ``q``.

    Args:
        writer: writer of the graph.
        head: the policy's head.
        outputs: name of the network's outputs, ``[n, head.outputs]``.
        log_std: name of the free vector of a head with Gaussian parts; ``None`` for other heads.
        exploring: ``None``: the action is greedy.
        mask: name of the action mask of a head whose outputs `possible` leaves as they are.

    Returns:
        Output of ``act`` -> the name of its value.
    """
    if isinstance(head, EpsilonGreedy):
        return _epsilon_greedy(writer, head, outputs, exploring, mask)
    z = None
    if exploring is not None:
        column = writer.op("Reshape", exploring.explore, writer.constant([-1, 1], "int64"))
        z = writer.op("Mul", column, exploring.noise)
    if isinstance(head, SquashedGaussian):
        return {"action": _squashed_gaussian(writer, head, outputs, z)}
    if isinstance(head, Deterministic):
        mean = writer.op("Tanh", outputs)
        return {"action": mean if z is None else _clipped(writer, writer.op("Add", mean, z), "float32")}
    if isinstance(head, Categorical):
        action, log_prob = _categorical(writer, outputs, z)
    elif isinstance(head, Composed):
        action, log_prob = _composed(writer, head, outputs, z, log_std)
    elif log_std is not None:
        action, log_prob = _gaussian(writer, outputs, z, log_std, head.size)
    else:
        raise ValueError("a Gaussian head needs its log_std")
    return {"action": action, "log_prob": log_prob}


def declare_answer(writer: Writer, head: Head, found: Mapping[str, str]) -> None:
    """Declare the outputs of ``act``. ``found``: output -> the name of its value."""
    for name, value in found.items():
        writer.op("Identity", value, into=name)
    if isinstance(head, Categorical | EpsilonGreedy):
        writer.output("action", "int64", ("n",))
    else:
        writer.output("action", "float32", ("n", head.size))
    declare_rest(writer, head, found)


def declare_rest(writer: Writer, head: Head, found: Mapping[str, str]) -> None:
    """Declare the outputs of a head besides the action."""
    if "log_prob" in found:
        writer.output("log_prob", "float32", ("n",))
    if isinstance(head, EpsilonGreedy):
        writer.output("q", "float32", ("n", head.n))


def to_environment(writer: Writer, action: str, space: ActionSpace) -> None:
    """Declare and write the action ``[n, ...]`` in the environment's units and dtype.

    As `penstock.kernels.actions.to_environment`, but a Composite has one output for each leaf, ``action.<path>``; any
    other space has the output ``action``.

    Args:
        writer: writer of the graph.
        action: name of the action, as rows store it.
        space: the environment's action space.
    """
    if not isinstance(space, Composite):
        _leaf(writer, action, space, into="action")
        return
    for (path, leaf), (_, columns) in zip(space.leaves, space.columns(), strict=True):
        _leaf(writer, writer.columns(action, columns.start, columns.stop), leaf, into=leaf_name(path))


def leaf_name(path: LeafPath) -> str:
    """The output that holds a leaf of a composite action."""
    return ".".join(("action", *map(str, path)))


def _leaf(writer: Writer, action: str, space: Leaf, into: str) -> None:
    """Declare and write one leaf of an action in the environment's units."""
    shape: tuple[int, ...] = () if isinstance(space, Discrete) else space.shape
    dtype = "int64" if isinstance(space, Discrete) else space.dtype
    shaped = writer.constant([-1, *shape], "int64")
    if isinstance(space, Box):
        value = _in_units(writer, action, space)
    else:
        starts = (space.start,) if isinstance(space, Discrete) else space.starts
        rows = writer.op("Reshape", action, writer.constant([-1, space.size], "int64"))
        value = writer.op("Add", writer.cast(rows, "int64"), writer.constant(starts, "int64"))
    writer.cast(writer.op("Reshape", value, shaped), dtype, into=into)
    writer.output(into, dtype, ("n", *shape))


def _composed(writer: Writer, head: Composed, outputs: str, z: str | None, log_std: str | None) -> tuple[str, str]:
    """Action ``[n, size]`` and log-probability ``[n]``."""
    actions, log_probs, spread = [], [], 0
    for stretch in head.stretches():
        ends = stretch.outputs.start, stretch.outputs.stop
        own = writer.columns(outputs, *ends)
        noise = None if z is None else writer.columns(z, *ends)
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
    return writer.op("Concat", *actions, axis=1), writer.op("Sum", *log_probs)


def _choose(writer: Writer, choices: Sequence[int], logits: str, z: str | None) -> tuple[str, str]:
    """Action ``[n, k]`` float32 and log-probability ``[n]`` of independent choices."""
    rows = _row(writer, logits, choices, FORBIDDEN)
    moved = rows if z is None else writer.op("Add", rows, _row(writer, z, choices, 0.0))
    chosen = writer.op("ArgMax", moved, axis=2, keepdims=1)
    found = writer.op("GatherElements", writer.op("LogSoftmax", rows, axis=2), chosen, axis=2)
    last = writer.constant([2], "int64")
    log_prob = writer.weighted_sum(writer.op("Squeeze", found, last), np.ones(len(choices)))
    return writer.cast(writer.op("Squeeze", chosen, last), "float32"), log_prob


def _row(writer: Writer, values: str, choices: Sequence[int], padding: float) -> str:
    """``[n, sum(choices)]`` as ``[n, k, max(choices)]``, padded."""
    first, most, last = 0, max(choices), sum(choices)
    places = np.full((len(choices), most), last)
    for row, choice in zip(places, choices, strict=True):
        row[:choice] = np.arange(first, first + choice)
        first += choice
    edges, value = writer.constant([0, 0, 0, 1], "int64"), writer.constant(padding, "float32")
    return writer.op("Gather", writer.op("Pad", values, edges, value), writer.constant(places, "int64"), axis=1)


def _gaussian(writer: Writer, mean: str, z: str | None, log_std: str, size: int) -> tuple[str, str]:
    """Action ``[n, size]`` and log-density ``[n]``."""
    spread = writer.op("ReduceSum", log_std, keepdims=0)
    constant = writer.op("Add", spread, writer.constant(0.5 * size * np.log(2.0 * np.pi), "float32"))
    if z is None:
        return mean, writer.op("Expand", writer.op("Neg", constant), writer.op("Shape", mean, start=0, end=1))
    action = writer.op("Add", mean, writer.op("Mul", z, writer.op("Exp", log_std)))
    squares = writer.weighted_sum(writer.op("Mul", z, z), np.ones(size))
    return action, writer.op("Sub", writer.op("Mul", squares, writer.constant(-0.5, "float32")), constant)


def _categorical(writer: Writer, logits: str, z: str | None) -> tuple[str, str]:
    """Action and log-probability ``[n]``."""
    action = writer.op("ArgMax", logits if z is None else writer.op("Add", logits, z), axis=1, keepdims=0)
    axis = writer.constant([1], "int64")
    column = writer.op("Unsqueeze", action, axis)
    chosen = writer.op("GatherElements", writer.op("LogSoftmax", logits, axis=1), column, axis=1)
    return action, writer.op("Squeeze", chosen, axis)


def _squashed_gaussian(writer: Writer, head: SquashedGaussian, outputs: str, z: str | None) -> str:
    """Action ``[n, size]``."""
    mean = writer.columns(outputs, 0, head.size)
    if z is not None:
        low, high = writer.constant(head.log_std_min, "float32"), writer.constant(head.log_std_max, "float32")
        log_std = writer.op("Clip", writer.columns(outputs, head.size, 2 * head.size), low, high)
        mean = writer.op("Add", mean, writer.op("Mul", z, writer.op("Exp", log_std)))
    return writer.op("Tanh", mean)


def _epsilon_greedy(
    writer: Writer, head: EpsilonGreedy, outputs: str, exploring: Exploring | None, mask: str | None
) -> dict[str, str]:
    """Action ``[n]`` and ``q`` ``[n, head.n]``."""
    q = _values(writer, head, outputs)
    best = writer.op("ArgMax", _possible_values(writer, q, mask), axis=1, keepdims=0)
    if exploring is None:
        return {"action": best, "q": q}
    flat = writer.constant([-1], "int64")
    whether = writer.op("Reshape", writer.columns(exploring.noise, 0, 1), flat)
    share = writer.op("Reshape", writer.columns(exploring.noise, 1, 2), flat)
    anything = _random(writer, head, share, mask)
    return {"action": writer.op("Where", writer.op("Less", whether, exploring.explore), anything, best), "q": q}


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
    return writer.weighted_sum(
        writer.op("Softmax", shaped, axis=2), np.linspace(head.low, head.high, head.atoms), axis=2
    )


def _clipped(writer: Writer, value: str, dtype: str) -> str:
    """Cut to -1 .. 1."""
    return writer.op("Clip", value, writer.constant(-1.0, dtype), writer.constant(1.0, dtype))


def _in_units(writer: Writer, action: str, space: Box) -> str:
    """A box's action ``[n, size]`` in the environment's units, in float64."""
    value = writer.op("Reshape", writer.cast(action, "float64"), writer.constant([-1, space.size], "int64"))
    if space.bounded:
        low, high = (np.broadcast_to(np.asarray(edge, np.float64), (space.size,)) for edge in (space.low, space.high))
        above = writer.op("Add", _clipped(writer, value, "float64"), writer.constant(1.0, "float64"))
        share = writer.op("Div", above, writer.constant(2.0, "float64"))
        value = writer.op("Mul", share, writer.constant(high - low, "float64"))
        value = writer.op("Add", value, writer.constant(low, "float64"))
        value = writer.op("Min", value, writer.constant(high, "float64"))
    elif space.partly_bounded:
        low, high = (np.broadcast_to(np.asarray(edge, np.float64), (space.size,)) for edge in (space.low, space.high))
        value = writer.op("Max", value, writer.constant(low, "float64"))
        value = writer.op("Min", value, writer.constant(high, "float64"))
    if not np.issubdtype(np.dtype(space.dtype), np.floating):
        value = writer.op("Round", value)
    return value
