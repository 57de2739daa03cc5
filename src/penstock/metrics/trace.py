"""Reads the timeline of a run: which node did what, and when, from the rings that its processes left.

Names the files of a trace. `chrome_trace.py` writes a timeline as Chrome trace JSON.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.memory.spans import RecordedSpans, read_spans
from penstock.types import Array

__all__ = ["IDLE_SPAN", "OPEN", "STEP", "NodeTimeline", "Span", "Timeline", "read_timeline", "ring_path"]

OPEN = "open"
"""Everything before a node's first turn."""
STEP = "step"
"""One turn: a call of the node's ``step``."""
IDLE_SPAN = "idle"
_SHORTEST_GAP_NS = 10_000
"""A shorter gap between two turns is not idle time: the loop ran through without sleeping."""
_SUFFIX = ".spans"


class Span(NamedTuple):
    """Named work of a node from ``begin`` to ``end``, in nanoseconds since the trace begins."""

    begin: int
    end: int
    name: str


@dataclass(frozen=True)
class NodeTimeline:
    """One node's spans."""

    name: str
    process: str
    tracks: tuple[tuple[Span, ...], ...]
    """Spans in order of their begin. Two spans of a track are disjoint, or one contains the other.

    The first track holds the node's turns, the work within them, and the idle time between. Further tracks hold work
    over several turns.
    """

    @property
    def begin(self) -> int:
        """When the node's first span begins."""
        return min(track[0].begin for track in self.tracks if track)

    def shares(self, end: int) -> dict[str, float]:
        """Name -> share of the time from the first span to ``end``; idle time included."""
        total: Counter[str] = Counter()
        for track in self.tracks:
            for span in track:
                total[span.name] += span.end - span.begin
        return {name: spent / max(1, end - self.begin) for name, spent in total.most_common()}


@dataclass(frozen=True)
class Timeline:
    """The spans of all nodes of a run."""

    nodes: tuple[NodeTimeline, ...]
    end: int
    """End of the last span. The first span begins at 0."""
    overwritten: dict[str, int]
    """Process -> number of older spans that were overwritten; only processes with such spans."""


def ring_path(folder: Path, process: str) -> Path:
    """The file with the spans of a process."""
    return folder / f"{process}{_SUFFIX}"


def read_timeline(folder: Path) -> Timeline | None:
    """The timeline in a folder of rings; ``None`` without any span."""
    found = {
        path.name.removesuffix(_SUFFIX): recorded
        for path in sorted(folder.glob(f"*{_SUFFIX}"), key=lambda path: _natural(path.name))
        if (recorded := read_spans(path)) is not None and len(recorded.spans)
    }
    if not found:
        return None
    origin = min(int(recorded.spans["begin"].min()) for recorded in found.values())
    end = max(int(recorded.spans["end"].max()) for recorded in found.values()) - origin
    nodes = [node for process, recorded in found.items() for node in _nodes(process, recorded, origin, end)]
    overwritten = {process: recorded.overwritten for process, recorded in found.items() if recorded.overwritten}
    return Timeline(tuple(nodes), end, overwritten)


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that puts ``env.2`` before ``env.10``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _nodes(process: str, recorded: RecordedSpans, origin: int, end: int) -> Iterable[NodeTimeline]:
    for node in dict.fromkeys(recorded.spans["node"].tolist()):
        own = recorded.spans[recorded.spans["node"] == node]
        spans = [
            Span(begin - origin, until - origin, recorded.names[name])
            for begin, until, name in zip(own["begin"].tolist(), own["end"].tolist(), own["name"].tolist(), strict=True)
        ]
        # If two spans begin together, the outer one comes first.
        spans.sort(key=lambda span: (span.begin, -span.end))
        yield NodeTimeline(recorded.names[node], process, _tracks(spans, end))


def _tracks(spans: Sequence[Span], end: int) -> tuple[tuple[Span, ...], ...]:
    """Turns, work within one turn and idle time on the first track; longer work on further tracks, where it nests."""
    turns = np.array([span.begin for span in spans if span.name == STEP], np.int64)
    long = {span.name for span in spans if _begins_within(turns, span)} - {STEP}
    first = [span for span in spans if span.name not in long]
    over: list[_Nest] = []
    for span in spans:
        if span.name in long and not any(nest.take(span) for nest in over):
            over.append(_Nest(span))
    idle = _gaps(first, end)
    return (
        tuple(sorted([*first, *idle], key=lambda span: (span.begin, -span.end))),
        *(tuple(nest.spans) for nest in over),
    )


def _begins_within(turns: Array, span: Span) -> bool:
    """True if a turn begins inside the span, after the span itself began."""
    return bool(np.searchsorted(turns, span.begin, "right") < np.searchsorted(turns, span.end, "left"))


class _Nest:
    """A track of nested spans, which come in order of their begin."""

    def __init__(self, first: Span) -> None:
        self.spans = [first]
        self._open = [first.end]

    def take(self, span: Span) -> bool:
        """Take ``span`` unless it ends after a span that it begins in."""
        while self._open and self._open[-1] <= span.begin:
            self._open.pop()
        if self._open and self._open[-1] < span.end:
            return False
        self.spans.append(span)
        self._open.append(span.end)
        return True


def _gaps(spans: Sequence[Span], end: int) -> list[Span]:
    """The idle times of a track, from its first span to ``end``."""
    gaps: list[Span] = []
    done = spans[0].begin if spans else end
    for span in (*spans, Span(end, end, IDLE_SPAN)):
        if span.begin - done >= _SHORTEST_GAP_NS:
            gaps.append(Span(done, span.begin, IDLE_SPAN))
        done = max(done, span.end)
    return gaps
