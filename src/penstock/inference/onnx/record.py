"""A published record, whose parts are written into an ONNX graph as constants."""

from collections.abc import Mapping

import numpy as np

from penstock.inference.onnx.writer import Writer
from penstock.policies import Network
from penstock.types import Array

__all__ = ["Record"]


class Record:
    """A published record, whose parts are written into a graph as constants.

    As inputs of the graph, parameters would need no new graph for each record (1.3 ms for 2 x 64 units, 10.6 ms for a
    Nature CNN). They are constants for two reasons. ONNX Runtime copies every input at every run. And it does not pack
    inputs, so that a row's result would depend on the number of rows in the call.
    """

    def __init__(self, writer: Writer, published: Mapping[str, Array]) -> None:
        self._writer = writer
        self._published = published

    def part(self, network: Network, name: str) -> str:
        """Write one array of a network's flat vector; the name of its constant."""
        found = next(part for part in network.slices() if part.name == name)
        values = self._published[network.name][found.offset :][: int(np.prod(found.shape))]
        return self._writer.constant(values.reshape(found.shape), "float32")

    def moments(self, of: str) -> tuple[str, str]:
        """Write mean and ``sqrt(var + 1e-8)`` of a running statistic, float32; the names of both constants."""
        deviation = np.sqrt(self._published[f"{of}_var"] + 1e-8)
        return self._writer.constant(self._published[f"{of}_mean"], "float32"), self._writer.constant(
            deviation, "float32"
        )
