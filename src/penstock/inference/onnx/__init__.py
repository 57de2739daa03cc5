"""A policy as an ONNX graph, and the backend that runs it. Imports neither torch nor ONNX Runtime before use."""

from penstock.inference.onnx.backend import CPU, LoadedGraph, OnnxPolicy, build, load_graph, run_rows
from penstock.inference.onnx.graph import export, write
from penstock.inference.onnx.heads import leaf_name
from penstock.inference.onnx.recurrent import FIRST, next_name
from penstock.inference.onnx.writer import OPSET

__all__ = [
    "CPU",
    "FIRST",
    "OPSET",
    "LoadedGraph",
    "OnnxPolicy",
    "build",
    "export",
    "leaf_name",
    "load_graph",
    "next_name",
    "run_rows",
    "write",
]
