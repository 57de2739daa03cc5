"""A policy as an ONNX graph, and the backend that runs it. Imports neither torch nor ONNX Runtime before use."""

from penstock.inference.onnx.graph import export, write
from penstock.inference.onnx.heads import leaf_name
from penstock.inference.onnx.recurrent import FIRST, next_name
from penstock.inference.onnx.session import CPU, InferenceSession, OnnxPolicy, build, open_session, run_rows
from penstock.inference.onnx.writer import OPSET

__all__ = [
    "CPU",
    "FIRST",
    "OPSET",
    "InferenceSession",
    "OnnxPolicy",
    "build",
    "export",
    "leaf_name",
    "next_name",
    "open_session",
    "run_rows",
    "write",
]
