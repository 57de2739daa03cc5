"""Writes a graph in ONNX Runtime's own format, which its builds for phones load. Measures nothing.

Docs: https://onnxruntime.ai/docs/performance/model-optimizations/ort-format-models.html.
"""

import tempfile
from pathlib import Path

from penstock.inference.onnx import CPU

__all__ = ["ort_format"]


def ort_format(model: bytes) -> bytes:
    """The graph in the ORT format. Its inputs and outputs keep their names and dtypes.

    It is optimised only by what every processor can run, so that one file serves phones and this machine.

    Args:
        model: a serialised ONNX graph.
    """
    import onnxruntime  # noqa: PLC0415 - importing this module must stay light

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.add_session_config_entry("session.save_model_format", "ORT")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.ort"
        options.optimized_model_filepath = str(file)
        onnxruntime.InferenceSession(model, options, providers=[CPU])
        return file.read_bytes()
