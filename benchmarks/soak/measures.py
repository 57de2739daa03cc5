"""Figures of a soak: slopes of memory, differences between quiet parts, rates between faults.

Arithmetic only. Times are seconds of one clock.
"""

import statistics
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.soak.log import Reported
from benchmarks.soak.processes import Held, Process

SKIPPED = 2
"""Number of reports after a restart until work counts as resumed.

The first report may be of a batch that was collected before the fault. The second has waited for the new process.
"""


class Sample(NamedTuple):
    """One sample of one process."""

    at: float
    part: int | None
    """The quiet part of this sample, after the run had settled; nothing during faults."""
    held: Held


class Span(NamedTuple):
    """The time from a recovery to the next fault, or an equally long time without faults."""

    cycle: int
    process: str | None
    """The process that got the fault; empty in a quiet span."""
    begun: float
    """When the restart was reported, or the quiet span began."""
    ended: float


class Life(NamedTuple):
    """Memory of one process, after its warm-up."""

    process: Process
    minutes: float
    mb_a_minute: float
    own_mb: float
    """Memory at its end."""
    shared_mb: float


def lives(samples: Mapping[Process, Sequence[Sample]], warm_up_s: float, at_least: float) -> list[Life]:
    """Every process that was watched for ``at_least`` minutes, with the line of least squares through its memory."""
    found = []
    for process, looks in samples.items():
        counted = [look for look in looks if look.at - looks[0].at >= warm_up_s]
        if not counted or counted[-1].at - counted[0].at < at_least * 60.0:
            continue
        minutes = np.array([look.at for look in counted]) / 60.0
        own = np.array([look.held.own_mb for look in counted])
        slope = float(np.polyfit(minutes - minutes[0], own, 1)[0])
        found.append(Life(process, float(minutes[-1] - minutes[0]), slope, float(own[-1]), counted[-1].held.shared_mb))
    return found


def varied(looks: Iterable[tuple[int | None, int]]) -> int:
    """How much a count differs between quiet parts. The lowest count of each part is used: a short rise is no leak.

    Args:
        looks: part and count; counts outside of quiet parts are left out.
    """
    lowest: dict[int, int] = {}
    for part, count in looks:
        if part is not None:
            lowest[part] = min(count, lowest.get(part, count))
    return max(lowest.values()) - min(lowest.values()) if lowest else 0


def rate(reports: Sequence[Reported], span: Span) -> float | None:
    """Steps per second from a span's second report to its last, by the learner's clock; nothing if they are too few."""
    inside = within(reports, span.begun, span.ended)[SKIPPED - 1 :]
    if len(inside) < 3 or inside[-1].time_s <= inside[0].time_s:
        return None
    return (inside[-1].steps - inside[0].steps) / (inside[-1].time_s - inside[0].time_s)


def recovery_s(reports: Sequence[Reported], span: Span, struck: float) -> float | None:
    """Seconds from a fault until its span's rate begins; nothing if the next fault came first."""
    inside = within(reports, span.begun, span.ended)
    return inside[SKIPPED - 1].at - struck if len(inside) >= SKIPPED else None


def within(reports: Sequence[Reported], begun: float, ended: float) -> Sequence[Reported]:
    """The reports that arrived after ``begun`` and until ``ended``."""
    return reports[bisect_right(reports, begun, key=_at) : bisect_right(reports, ended, key=_at)]


def _at(report: Reported) -> float:
    return report.at


class Cycle(NamedTuple):
    """One cycle, in steps per second."""

    quiet: float
    """Median rate of its quiet spans."""
    faults: float
    """Median rate of its spans between faults."""
    struck: float
    """Rate from its first recovery to the end of its last span, with all recoveries between."""


def cycles(reports: Sequence[Reported], spans: Sequence[Span]) -> list[Cycle]:
    """The cycles that have both quiet spans and spans between faults."""
    found: dict[int, tuple[list[float], list[float]]] = {}
    struck: dict[int, list[Span]] = {}
    for span in spans:
        value = rate(reports, span)
        if span.process is not None:
            struck.setdefault(span.cycle, []).append(span)
        if value is not None:
            found.setdefault(span.cycle, ([], []))[span.process is not None].append(value)
    return [
        Cycle(statistics.median(quiet), statistics.median(faults), _struck(reports, struck[cycle]))
        for cycle, (quiet, faults) in found.items()
        if quiet and faults
    ]


def _struck(reports: Sequence[Reported], spans: Sequence[Span]) -> float:
    """Rates by the watcher's clock, because a killed learner loses the time since its last commit."""
    inside = within(reports, spans[0].begun, spans[-1].ended)
    return (inside[-1].steps - inside[0].steps) / (inside[-1].at - inside[0].at)


def throughput_ratio(found: Sequence[Cycle]) -> float:
    """Median over the cycles of the rate between faults beside the quiet rate of the same minute; NaN without any."""
    return statistics.median(cycle.faults / cycle.quiet for cycle in found) if found else float("nan")
