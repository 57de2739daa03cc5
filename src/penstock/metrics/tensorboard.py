"""Writes TensorBoard event files: TensorFlow's record framing around the protobuf fields of what a run shows.

These are scalars, histograms, the text of the settings, hyper-parameters, the graph of the policy, and pictures. The
usual writers import torch, which costs a process a second and 200 MB. Reads nothing.
"""

import math
import os
import socket
import struct
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from penstock.metrics.histograms import Histogram, Histograms
from penstock.metrics.model_graph import GraphNode
from penstock.metrics.report import Report

__all__ = ["AXES", "EVENTS", "TensorBoard", "crc32c"]

EVENTS = "events.out.tfevents."
"""How the names of event files begin."""
AXES: Mapping[str, Callable[[Report], int]] = {
    "steps": lambda report: report.steps,
    "updates": lambda report: report.update,
    "seconds": lambda report: round(report.time_s),
}
"""What curves may be drawn over -> its value for a report. TensorBoard knows whole numbers only."""
SETTINGS = "settings"
"""The tag of the text with all settings."""
_HYPER_PARAMETERS = "_hparams_/session_start_info"
"""The tag by which TensorBoard finds hyper-parameters."""
_SESSION_START = 1
_RGB = 3
"""TensorFlow's number for images in three colours."""
_GRAPH_VERSION = 22
"""The version of TensorFlow's graphs whose fields are written."""
_STRING = 7
"""TensorFlow's number for tensors of strings."""
_LARGEST = (2.0 - 2.0**-23) * 2.0**127
"""The largest number of float32, which a scalar is."""


def _crc_table() -> Iterator[int]:
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        yield value


_TABLE = tuple(_crc_table())


class TensorBoard:
    """Writes each metric as a scalar over environment steps, updates or seconds.

    Args:
        folder: the run folder. The event file lies in it, so TensorBoard names the curve after the run.
        axis: one of `AXES`. TensorBoard calls it a step.
        resumed: what the run continues from; ``None``: it is new, or an earlier life has said so. What comes later on
            the axis in earlier files is hidden.

    Raises:
        OSError: the file cannot be written.

    Attributes:
        is_first: the folder had no event file before.
    """

    def __init__(self, folder: Path, axis: str, resumed: Report | None = None) -> None:
        self._place = AXES[axis]
        self.is_first = not any(folder.glob(f"{EVENTS}*"))
        self._file = (folder / _file_name(folder)).open("wb")
        self._event(0, _text(3, b"brain.Event:2"))
        if resumed is not None and resumed.update:
            # At a session start, TensorBoard drops all that it has read from this step on.
            self._event(self._place(resumed) + 1, _text(7, _number(1, _SESSION_START)))
        self._file.flush()

    def write(self, report: Report) -> None:
        """Append one event with every metric of the report, but for NaN, infinity and what float32 cannot hold."""
        values = b"".join(
            _text(1, _text(1, name.encode()) + struct.pack("<Bf", 2 << 3 | 5, value))
            for name, value in report.values.items()
            if abs(value) <= _LARGEST
        )
        self._event(self._place(report), _text(5, values))
        self._file.flush()

    def write_settings(self, settings: str, begin: Report) -> None:
        """Append the settings twice: as a text, and as the hyper-parameters of this run's curves.

        Args:
            settings: of the run, as TOML.
            begin: where they hold from.
        """
        # Markdown shows what is indented as it is.
        text = "\n".join(f"    {line}" for line in settings.splitlines())
        values = _text(1, _value(SETTINGS, _of_plugin("text", b"") + _text(8, _string_tensor(text))))
        given = b"".join(
            _text(1, _text(1, name.encode()) + _text(2, _setting(value))) for name, value in _flat(settings)
        )
        started = _text(3, given + struct.pack("<Bd", 5 << 3 | 1, time.time()))
        values += _text(1, _value(_HYPER_PARAMETERS, _of_plugin("hparams", started)))
        self._event(self._place(begin), _text(5, values))
        self._file.flush()

    def write_graph(self, nodes: Sequence[GraphNode]) -> None:
        """Append the graph of the policy. It holds for the whole run, so it has no place on the axis.

        Of several graphs in a folder, TensorBoard shows the latest one, and warns.
        """
        graph = b"".join(_text(1, _node(node)) for node in nodes) + _text(4, _number(1, _GRAPH_VERSION))
        self._event(0, _text(4, graph))
        self._file.flush()

    def write_histograms(self, histograms: Histograms) -> None:
        """Append one event with every histogram."""
        values = b"".join(_text(1, _value(name, _text(5, _buckets(part)))) for name, part in histograms.parts.items())
        self._event(self._place(histograms.at), _text(5, values))
        self._file.flush()

    def write_animation(self, tag: str, gif: bytes, at: Report) -> None:
        """Append an animated GIF as an image, which TensorBoard shows moving.

        Args:
            tag: its name.
            gif: the file.
            at: where it stands on the axis.
        """
        width, height = struct.unpack_from("<HH", gif, len(b"GIF89a"))
        image = _number(1, height) + _number(2, width) + _number(3, _RGB) + _text(4, gif)
        self._event(self._place(at), _text(5, _text(1, _value(tag, _text(4, image)))))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _event(self, step: int, content: bytes) -> None:
        """Append one Event: wall time (field 1), step (field 2), then ``content``, as one framed record."""
        event = struct.pack("<Bd", 1 << 3 | 1, time.time()) + _number(2, step) + content
        length = struct.pack("<Q", len(event))
        self._file.write(length + _masked(length) + event + _masked(event))


def _value(tag: str, content: bytes) -> bytes:
    """A value of a summary: its tag, then ``content``."""
    return _text(1, tag.encode()) + content


def _of_plugin(plugin: str, content: bytes) -> bytes:
    """The metadata of a value: the part of TensorBoard that shows it, and what that part is told."""
    return _text(9, _text(1, _text(1, plugin.encode()) + _text(2, content)))


def _string_tensor(text: str) -> bytes:
    """A tensor with one string."""
    return _number(1, _STRING) + _text(2, _text(2, _number(1, 1))) + _text(8, text.encode())


def _node(node: GraphNode) -> bytes:
    """A node of a graph: its name, kind and inputs; then its facts, and the shape of what comes out for n rows."""
    rows = (-1, *node.shape)
    shape = b"".join(_text(2, _number(1, side)) for side in rows)
    given = [(name, _text(2, value.encode())) for name, value in node.facts]
    given.append(("_output_shapes", _text(1, _text(7, shape))))
    attributes = b"".join(_text(5, _text(1, name.encode()) + _text(2, value)) for name, value in given)
    inputs = b"".join(_text(3, name.encode()) for name in node.inputs)
    return _text(1, node.name.encode()) + _text(2, node.kind.encode()) + inputs + attributes


def _buckets(part: Histogram) -> bytes:
    """A histogram."""
    numbers = (part.smallest, part.largest, float(part.counts.sum()), part.total, part.squares)
    facts = b"".join(struct.pack("<Bd", field << 3 | 1, number) for field, number in enumerate(numbers, start=1))
    return facts + _text(6, part.limits.astype("<f8").tobytes()) + _text(7, part.counts.astype("<f8").tobytes())


def _flat(settings: str) -> Iterator[tuple[str, bool | float | str]]:
    """Each setting of a TOML text; one that is no number and no text as a text."""
    for name, value in tomllib.loads(settings).items():
        # TensorBoard hands numbers on as JSON, which has no infinity.
        is_plain = isinstance(value, bool | str) or (isinstance(value, int | float) and math.isfinite(value))
        yield name, value if is_plain else str(value)


def _setting(value: bool | float | str) -> bytes:
    """The value of a hyper-parameter."""
    if isinstance(value, bool):
        return _number(4, value)
    return _text(3, value.encode()) if isinstance(value, str) else struct.pack("<Bd", 2 << 3 | 1, value)


def crc32c(content: bytes) -> int:
    """CRC-32C (Castagnoli), as RFC 3720 appendix B.4 defines it."""
    value = 0xFFFFFFFF
    for byte in content:
        value = _TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def _masked(content: bytes) -> bytes:
    """The checksum of a record: rotated and shifted, so that the data itself may hold checksums."""
    value = crc32c(content)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _number(field: int, value: int) -> bytes:
    # A number below 0 is written as its 64 bits.
    return bytes([field << 3]) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _text(field: int, content: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _file_name(folder: Path) -> str:
    """A name that sorts after all existing files, even if the clock was set back: TensorBoard reads files by name."""
    stamps = [path.name.removeprefix(EVENTS).partition(".")[0] for path in folder.glob(f"{EVENTS}*")]
    last = max((int(stamp) for stamp in stamps if stamp.isdigit()), default=0)
    return f"{EVENTS}{max(int(time.time()), last + 1):010d}.{socket.gethostname()}.{os.getpid()}"
