"""Writes a policy as an ONNX graph: for the backend, and for deployment.

Imports no torch, and `onnx` only on use. Does not run graphs.
"""

from collections.abc import Mapping

from penstock.inference.onnx.encoding import declare_fields, encode, inputs_of
from penstock.inference.onnx.heads import answer, declare_answer, declare_noise, declare_rest, possible, to_environment
from penstock.inference.onnx.layers import run
from penstock.inference.onnx.own import run_own
from penstock.inference.onnx.record import Record
from penstock.inference.onnx.recurrent import declare_memory
from penstock.inference.onnx.writer import Writer
from penstock.policies import PolicyGraph
from penstock.types import Array, Spaces

__all__ = ["export", "write"]


def _outputs(writer: Writer, graph: PolicyGraph, record: Record, fields: Mapping[str, str], exported: bytes) -> str:
    """The head's outputs ``[n, k]``, masked. Declares and writes the output ``value`` if the policy gives one."""
    features = encode(writer, graph, record, fields)
    inputs = inputs_of(writer, graph, graph.actor, features)
    value: str | None
    if graph.actor.own is not None:
        outputs, value = run_own(writer, graph.actor, record, exported, [given.x for given in inputs])
    else:
        outputs = run(writer, graph.actor, record, inputs)
        value = None
    if graph.gives_value:
        if graph.critic is not None:
            value = run(writer, graph.critic, record, inputs_of(writer, graph, graph.critic, features))
        elif value is None:
            size = graph.head.outputs
            outputs, value = writer.columns(outputs, 0, size), writer.columns(outputs, size, size + 1)
        _write_value(writer, graph, record, value)
    return possible(writer, graph.head, outputs, graph.mask)


def _write_value(writer: Writer, graph: PolicyGraph, record: Record, value: str) -> None:
    """Declare and write the output ``value``. ``value``: its name, in the critic's units."""
    if graph.normalize_value:
        mean, deviation = record.moments("value")
        value = writer.op("Add", writer.op("Mul", value, deviation), mean)
    writer.op("Reshape", value, writer.constant([-1], "int64"), into="value")
    writer.output("value", "float32", ("n",))


def write(graph: PolicyGraph, published: Mapping[str, Array], exported: bytes = b"") -> bytes:
    """``act`` of ``graph`` as a serialised ONNX model. Its outputs are `PolicyGraph.outputs`.

    Inputs: each observation field (flat: float32 ``[n, size]``; numbers: int64; image: uint8; action mask: uint8
    ``[n, choices]``), ``noise`` float32 ``[n, k]``, ``explore`` float32 ``[n]``; a policy with memory also has those of
    `declare_memory`.

    Args:
        graph: the policy.
        published: the policy's parameters and statistics, which become constants.
        exported: the exported graph of a user's own module; empty if the policy has none.
    """
    writer = Writer()
    record = Record(writer, published)
    declare_memory(writer, graph.carry)
    declare_fields(writer, graph)
    if graph.mask is not None:
        writer.input(graph.mask, "uint8", ("n", graph.mask_size))
    exploring = declare_noise(writer, graph.head)
    outputs = _outputs(writer, graph, record, {part.field: part.field for part in graph.encoding}, exported)
    found = answer(writer, graph.head, outputs, log_std=_log_std(graph, record), exploring=exploring, mask=graph.mask)
    declare_answer(writer, graph.head, found)
    return writer.finish("act")


def export(
    graph: PolicyGraph,
    spaces: Spaces,
    published: Mapping[str, Array],
    exported: bytes = b"",
    *,
    noise: bool = False,
) -> bytes:
    """The policy for deployment: a serialised ONNX model of the action in the environment's units.

    Inputs: the observation fields as the environment gives them, ``[n, ...]`` in their own dtype; the action mask is
    uint8 ``[n, choices]``. With ``noise`` also the inputs ``noise`` and ``explore`` of ``act``; otherwise the action is
    greedy. Outputs: ``action`` ``[n, ...]`` in the environment's units and dtype; for a Dict or Tuple of actions one
    output for each leaf, ``action.<path>``. Also those of ``log_prob``, ``q`` and ``value`` that the policy gives. A
    policy with memory also has the inputs and outputs of `declare_memory`.
    """
    writer = Writer()
    record = Record(writer, published)
    declare_memory(writer, graph.carry)
    for spec in spaces.obs_specs():
        writer.input(spec.name, spec.dtype, ("n", *spec.shape))
    exploring = declare_noise(writer, graph.head) if noise else None
    fields = {spec.name: spec.name for spec in spaces.obs_specs()}
    outputs = _outputs(writer, graph, record, fields, exported)
    found = answer(writer, graph.head, outputs, log_std=_log_std(graph, record), exploring=exploring, mask=graph.mask)
    to_environment(writer, found.pop("action"), spaces.action)
    for name, value in found.items():
        writer.op("Identity", value, into=name)
    declare_rest(writer, graph.head, found)
    return writer.finish("policy")


def _log_std(graph: PolicyGraph, record: Record) -> str | None:
    """Name of the free vector of a head with Gaussian parts; ``None`` for other heads."""
    free = [name for name, _, _ in graph.actor.free]
    return record.part(graph.actor, "log_std") if "log_std" in free else None
