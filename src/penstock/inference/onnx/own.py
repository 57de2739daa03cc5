"""A user's own module inside an ONNX graph: the exported graph of the module, with the parameters of a flat vector.

The export needs torch and is made once, by ``penstock.torch_networks.own_export``. This file needs no torch.
"""

from collections.abc import Sequence

from penstock.inference.onnx.record import Record
from penstock.inference.onnx.recurrent import FIRST, next_name
from penstock.inference.onnx.writer import Writer
from penstock.policies import Network

__all__ = ["CARRY", "FIELD", "OUTPUTS", "PARAMETER", "VALUE", "run_own"]

PARAMETER, FIELD, CARRY = "parameter.", "field.", "carry."
"""An exported module's inputs: the parameters and the fields by their place, and the carry by name. A carry is also an
output, named ``next.carry.<name>``."""
OUTPUTS, VALUE = "outputs", "value"
"""An exported module's other outputs."""


def run_own(
    writer: Writer, network: Network, record: Record, exported: bytes, fields: Sequence[str]
) -> tuple[str, str | None]:
    """Write the module's graph. Returns the names of the head's outputs ``[n, k]`` and of the value ``[n]``.

    Args:
        writer: writer of the graph.
        network: the network that the module is.
        record: the published record.
        exported: its exported graph.
        fields: names of the observation fields, in order.
    """
    layer = network.own
    if layer is None:
        raise ValueError(f"network {network.name} is no module of the user's own")
    given = {
        f"{PARAMETER}{place}": record.part(network, f"0.{name}") for place, (name, _) in enumerate(layer.parameters)
    }
    given |= {f"{FIELD}{place}": name for place, name in enumerate(fields)}
    full = {name: f"carry.{network.name}.0.{name}" for name, _ in layer.memory}
    if full:
        began = writer.cast(writer.op("Not", FIRST), "float32")
        keep = writer.op("Unsqueeze", began, writer.constant([1], "int64"))
        given |= {f"{CARRY}{name}": writer.op("Mul", of_lane, keep) for name, of_lane in full.items()}
    prefix = f"{network.name}."
    found = writer.include(exported, prefix, given)
    for name, of_lane in full.items():
        writer.op("Identity", found[next_name(f"{CARRY}{name}")], into=next_name(of_lane))
    return found[OUTPUTS], found.get(VALUE)
