"""A policy as an ONNX graph, and the backend that runs it. Imports neither torch nor ONNX Runtime before use."""

from penstock.inference.onnx.graph import export, write
from penstock.inference.onnx.session import OnnxPolicy, build

__all__ = ["OnnxPolicy", "build", "export", "write"]
