"""Traces a function over tensors into a graph of elementary operators. Every tensor and tuned number is an input of it.

So one graph, compiled once, serves all values of a hyper-parameter. Compiles nothing.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

__all__ = ["trace"]

ATEN = torch.ops.aten
_EXACT = frozenset({torch.float32, torch.float64})
"""Dtypes that a number keeps its value in. With bfloat16, 0.9 would become 0.898."""
TAKES_A_TENSOR: dict[Any, Any] = {
    ATEN.add.Tensor: ATEN.add.Tensor,
    ATEN.div.Scalar: ATEN.div.Tensor,
    ATEN.div.Tensor: ATEN.div.Tensor,
    ATEN.gt.Scalar: ATEN.gt.Tensor,
    ATEN.lt.Scalar: ATEN.lt.Tensor,
    ATEN.mul.Scalar: ATEN.mul.Tensor,
    ATEN.mul.Tensor: ATEN.mul.Tensor,
    ATEN.sub.Tensor: ATEN.sub.Tensor,
}
"""Operators whose second operand may be a number or a tensor -> their form for a tensor."""


def trace(
    function: Callable[..., Any],
    inputs: Sequence[Tensor],
    rewrites: Mapping[Any, Callable[..., Any]],
    tuned: Collection[float],
) -> tuple[GraphModule, list[Tensor]]:
    """Trace ``function``, and make the tensors that it holds inputs of the graph.

    Args:
        function: of tensors only. Its backward passes become part of the graph.
        inputs: tensors of the shapes and dtypes of later calls.
        rewrites: operator -> function to trace in its place.
        tuned: numbers that may differ from run to run; they become inputs where they meet tensors of float32 or
            float64. Other numbers of equal value become inputs too, which does no harm.

    Returns:
        The graph, and its inputs: the given ones, then the new ones.
    """
    graph = make_fx(function, decomposition_table=dict(rewrites), tracing_mode="fake")(*inputs)
    lifted = [node for node in graph.graph.nodes if node.op == "get_attr"]
    values: list[Tensor] = [getattr(graph, str(node.target)) for node in lifted]
    for node, value in zip(lifted, values, strict=True):
        node.replace_all_uses_with(_placeholder(graph, node.name, value))
        graph.graph.erase_node(node)
    for node in graph.graph.nodes:
        if node.target in TAKES_A_TENSOR and isinstance(node.args[1], float) and node.args[1] in tuned:
            dtype = node.args[0].meta["val"].dtype
            if dtype not in _EXACT:
                continue  # a tensor of bools, of whole numbers or of rounded ones would hold another number
            value = torch.tensor(node.args[1], dtype=dtype, device=inputs[0].device)
            node.args = (node.args[0], _placeholder(graph, f"tuned_{len(values)}", value), *node.args[2:])
            node.target = TAKES_A_TENSOR[node.target]
            values.append(value)
    graph.recompile()
    return graph, [*inputs, *values]


def _placeholder(graph: GraphModule, name: str, value: Tensor) -> Node:
    """Add a new last input."""
    last = [node for node in graph.graph.nodes if node.op == "placeholder"][-1]
    with graph.graph.inserting_after(last):
        placeholder = graph.graph.placeholder(name)
    placeholder.meta["val"] = last.meta["val"].fake_mode.from_tensor(value)
    return placeholder
