"""Heads as ONNX nodes: from a network's outputs to the outputs of ``act``, and to the greedy action."""

import numpy as np

from penstock.inference.onnx.writer import Writer
from penstock.policies import Categorical, Deterministic, EpsilonGreedy, Gaussian, Head, SquashedGaussian
from penstock.types import Box, Discrete, Space

__all__ = ["greedy", "sample"]


def sample(writer: Writer, head: Head, outputs: str, log_std: str | None) -> None:
    """Declare inputs ``noise`` and ``explore``, and write the head's outputs: ``action``, and ``log_prob`` or ``q``.

    Args:
        writer: writer of the graph.
        head: the policy's head.
        outputs: name of the network's outputs, ``[n, head.outputs]``.
        log_std: name of a Gaussian head's free vector; ``None`` for other heads.
    """
    if isinstance(head, Categorical | EpsilonGreedy):
        writer.output("action", "int64", ("n",))
    else:
        writer.output("action", "float32", ("n", head.size))
    noise = writer.input("noise", "float32", ("n", *head.noise.shape))
    explore = writer.input("explore", "float32", ("n",))
    if isinstance(head, EpsilonGreedy):
        _epsilon_greedy(writer, head, outputs, noise, explore)
        return
    scaled = writer.op("Mul", writer.op("Reshape", explore, writer.constant([-1, 1], "int64")), noise)
    if isinstance(head, Categorical):
        _categorical(writer, outputs, scaled)
    elif isinstance(head, SquashedGaussian):
        _squashed_gaussian(writer, head, outputs, scaled)
    elif isinstance(head, Deterministic):
        _clipped(writer, writer.op("Add", writer.op("Tanh", outputs), scaled), "float32", into="action")
    elif log_std is not None:
        _gaussian(writer, head, outputs, scaled, log_std)


def greedy(writer: Writer, head: Head, outputs: str, space: Space) -> None:
    """Declare and write ``action`` without exploration, ``[n, ...]`` in the environment's units and dtype."""
    if isinstance(space, Discrete):
        preferences = _values(writer, head, outputs) if isinstance(head, EpsilonGreedy) else outputs
        chosen = writer.op("ArgMax", preferences, axis=1, keepdims=0)
        writer.op("Add", chosen, writer.constant(space.start, "int64"), into="action")
        writer.output("action", "int64", ("n",))
        return
    if isinstance(head, SquashedGaussian):
        outputs = writer.columns(outputs, 0, head.size)
    action = outputs if isinstance(head, Gaussian) else writer.op("Tanh", outputs)
    _to_environment(writer, action, space)
    writer.output("action", space.dtype, ("n", *space.shape))


def _gaussian(writer: Writer, head: Gaussian, mean: str, z: str, log_std: str) -> None:
    writer.op("Add", mean, writer.op("Mul", z, writer.op("Exp", log_std)), into="action")
    axis = writer.constant([1], "int64")
    squares = writer.op("ReduceSum", writer.op("Mul", z, z), axis, keepdims=0)
    spread = writer.op("ReduceSum", log_std, keepdims=0)
    constant = writer.op("Add", spread, writer.constant(0.5 * head.size * np.log(2.0 * np.pi), "float32"))
    half = writer.op("Mul", squares, writer.constant(-0.5, "float32"))
    writer.op("Sub", half, constant, into="log_prob")
    writer.output("log_prob", "float32", ("n",))


def _categorical(writer: Writer, logits: str, z: str) -> None:
    action = writer.op("ArgMax", writer.op("Add", logits, z), axis=1, keepdims=0, into="action")
    axis = writer.constant([1], "int64")
    column = writer.op("Unsqueeze", action, axis)
    chosen = writer.op("GatherElements", writer.op("LogSoftmax", logits, axis=1), column, axis=1)
    writer.op("Squeeze", chosen, axis, into="log_prob")
    writer.output("log_prob", "float32", ("n",))


def _squashed_gaussian(writer: Writer, head: SquashedGaussian, outputs: str, z: str) -> None:
    low, high = writer.constant(head.log_std_min, "float32"), writer.constant(head.log_std_max, "float32")
    log_std = writer.op("Clip", writer.columns(outputs, head.size, 2 * head.size), low, high)
    moved = writer.op("Add", writer.columns(outputs, 0, head.size), writer.op("Mul", z, writer.op("Exp", log_std)))
    writer.op("Tanh", moved, into="action")


def _epsilon_greedy(writer: Writer, head: EpsilonGreedy, outputs: str, noise: str, explore: str) -> None:
    q = _values(writer, head, outputs)
    writer.op("Identity", q, into="q")
    writer.output("q", "float32", ("n", head.n))
    flat = writer.constant([-1], "int64")
    whether = writer.op("Reshape", writer.columns(noise, 0, 1), flat)
    share = writer.op("Reshape", writer.columns(noise, 1, 2), flat)
    number = writer.cast(writer.op("Mul", share, writer.constant(head.n, "float32")), "int64")
    anything = writer.op("Min", number, writer.constant(head.n - 1, "int64"))
    best = writer.op("ArgMax", q, axis=1, keepdims=0)
    writer.op("Where", writer.op("Less", whether, explore), anything, best, into="action")


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


def _to_environment(writer: Writer, mean: str, space: Box) -> None:
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
    writer.cast(shaped, space.dtype, into="action")
