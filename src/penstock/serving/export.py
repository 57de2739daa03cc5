"""Exports the policy as an ONNX file for any ONNX runtime, with actions in the environment's own units."""

from collections.abc import Mapping
from pathlib import Path

from penstock.errors import RunFolderError
from penstock.inference.onnx import export as onnx_bytes
from penstock.policies import PolicyGraph
from penstock.registry import load
from penstock.saved_runs.durable import write_file
from penstock.types import Array, Spaces

__all__ = ["FILE_NAME", "LIBRARY", "export"]

FILE_NAME = "policy.onnx"
LIBRARY = "onnx:ModelProto"
"""The export needs this library. Importing it takes 50 ms."""


def export(folder: Path, spaces: Spaces, graph: PolicyGraph, published: Mapping[str, Array]) -> Path:
    """Write ``policy.onnx`` into ``folder``, whole or not at all, and return its path.

    Inputs and outputs are those of `penstock.inference.onnx.export`. The action is greedy.

    Raises:
        RunFolderError: it cannot be written.
        ConfigError: the policy is a user's own module that ONNX cannot express.
    """
    path = folder / FILE_NAME
    own = graph.actor.own
    exported = b"" if own is None else load("penstock.torch_networks.own_export:exported")(own)
    try:
        write_file(path, onnx_bytes(graph, spaces, published, exported))
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {error.strerror or error}") from error
    return path
