"""What each served peer does with a request: one graph of ONNX on one thread, as `penstock serve` runs a bundle.

It runs in the peers' own environments and imports nothing of penstock.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import orjson


class OnnxPolicy:
    """Greedy actions of a graph with the input ``obs`` and the output ``action``."""

    def __init__(self, model: str | Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def actions(self, observations: Sequence[Any]) -> list[list[float]]:
        """An action for each observation, in one run of the graph."""
        batch = np.asarray(observations, np.float32)
        found: list[list[float]] = self._session.run(["action"], {"obs": batch})[0].tolist()
        return found


def read(body: bytes) -> Any:
    """The observation of a request."""
    return orjson.loads(body)["obs"]


def written(action: Sequence[float]) -> bytes:
    """The body of a reply."""
    return orjson.dumps({"action": action})
