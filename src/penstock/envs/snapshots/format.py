"""The bytes of a snapshot: a header in JSON, and the raw bytes of its arrays. Does not know what they mean.

    bytes      content
    8          ``PENSNAP1``
    8          length of the header, little-endian
    ...        the header: ``{"root": value, "nodes": [node, ...], "lengths": [bytes of each blob]}``
    ...        the blobs, one after the other

A *value* is a JSON scalar, ``[]`` for what is left alone, or ``[index]`` of a node. A *node* is a list: its kind, and
what the kind says (`penstock.envs.snapshots.capture`).
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.errors import SnapshotError

__all__ = ["Graph", "joined", "packed", "parted", "unpacked"]

_MAGIC = b"PENSNAP1"
_LENGTH = 8


class Graph(NamedTuple):
    """The objects of a snapshot."""

    root: Any
    """A value."""
    nodes: list[list[Any]]
    blobs: list[bytes]


def packed(graph: Graph) -> bytes:
    """A graph as bytes."""
    head = {"root": graph.root, "nodes": graph.nodes, "lengths": [len(blob) for blob in graph.blobs]}
    header = json.dumps(head, separators=(",", ":")).encode()
    return b"".join([_MAGIC, len(header).to_bytes(_LENGTH, "little"), header, *graph.blobs])


def unpacked(content: bytes) -> Graph:
    """The graph that `packed` made into these bytes.

    Raises:
        SnapshotError: the bytes are no snapshot, or are damaged.
    """
    begin = len(_MAGIC) + _LENGTH
    if content[: len(_MAGIC)] != _MAGIC:
        raise SnapshotError("these bytes are no snapshot")
    at = begin + int.from_bytes(content[len(_MAGIC) : begin], "little")
    try:
        head = json.loads(content[begin:at])
        root, nodes, lengths = head["root"], head["nodes"], head["lengths"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SnapshotError("the header of a snapshot is damaged") from error
    blobs = []
    for length in lengths:
        blobs.append(content[at : at + length])
        at += length
    if at != len(content):
        raise SnapshotError(f"a snapshot of {len(content)} bytes; its header says {at}")
    return Graph(root, nodes, blobs)


def joined(parts: Sequence[bytes]) -> bytes:
    """Several snapshots as one."""
    return b"".join(len(part).to_bytes(_LENGTH, "little") + part for part in parts)


def parted(content: bytes) -> list[bytes]:
    """The snapshots that `joined` has joined."""
    parts, at = [], 0
    while at < len(content):
        begin = at + _LENGTH
        at = begin + int.from_bytes(content[at:begin], "little")
        parts.append(content[begin:at])
    if at != len(content):
        raise SnapshotError("joined snapshots are damaged")
    return parts
