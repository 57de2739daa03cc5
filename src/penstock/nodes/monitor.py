"""MonitorNode: turns the learner's reports and the nodes' counters into metrics, and metrics into files and a display.

It reads what others have written into shared memory; nobody waits for it.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

from penstock.errors import RunFolderError
from penstock.experiments.run_folder import RunFolder
from penstock.metrics.jsonl import JsonLines, each_report
from penstock.metrics.progress import progress_sink
from penstock.metrics.report import EVAL_RETURN, RESTARTS, STEPS_PER_SECOND, Report, Sink, read_report
from penstock.metrics.tensorboard import TensorBoard
from penstock.nodes.contract import Ports

__all__ = ["MonitorNode", "MonitorSettings"]


_KINDS = frozenset({EVAL_RETURN, STEPS_PER_SECOND})
"""What a report of an evaluation holds, and what one of an update does, once it is written."""


@dataclass(frozen=True)
class MonitorSettings:
    """What is shown, where it is kept."""

    folder: Path
    title: str
    timesteps: int
    log_interval: int
    quiet: bool
    """No display, files only."""
    resumed_update: int
    """Metrics after this update are of a life that was abandoned; 0 for a new run."""
    resumed_steps: int
    told: tuple[str, ...] = ()
    """Lines that the display begins with."""


class MonitorNode:
    """Reads stream ``reports`` and all counters; writes to sinks."""

    def __init__(self, settings: MonitorSettings) -> None:
        self._settings = settings
        self._sinks: list[Sink] = []
        self._previous: dict[str, dict[str, int]] = {}

    def open(self, ports: Ports) -> None:
        """Open the sinks."""
        settings = self._settings
        self._ports = ports
        self._reports = ports.stream_reader("reports")
        # What an earlier life of this node wrote is part of the run.
        again = bool(ports.former)
        with self._writing():
            self._sinks = [
                JsonLines(settings.folder, None if again else settings.resumed_update),
                TensorBoard(settings.folder, 0 if again else settings.resumed_steps),
            ]
        if not settings.quiet:
            display = progress_sink(settings.title, settings.timesteps, settings.log_interval)
            for line in () if again else settings.told:
                display.write(Report(settings.resumed_update, settings.resumed_steps, 0.0, {}, line))
            self._sinks.append(display)
        self._deaths = RunFolder(settings.folder).deaths
        self._previous = ports.counters()
        self._written = dict.fromkeys(_KINDS, settings.resumed_update)
        balance = ports.balance()
        steps = settings.resumed_steps if balance is None else max(settings.resumed_steps, balance.learned)
        self._seen = (time.monotonic(), steps)
        self._last = Report(settings.resumed_update, steps, 0.0, {})
        self._told = self._told_so_far()

    def ready(self) -> bool:
        """True if a report waits, or a node was started again."""
        return self._reports.ready() > 0 or bool(self._untold())

    def step(self) -> None:
        """Complete one report with what the counters say, and write it."""
        self._tell_restarts()
        index = self._reports.take()
        if index is None:
            return
        report = read_report(self._reports.slot(index))
        kind = EVAL_RETURN if EVAL_RETURN in report.values else STEPS_PER_SECOND
        if kind is STEPS_PER_SECOND:
            self._last = report
            report = report._replace(values={**report.values, **self._throughput(report.steps)})
        # One that died before it gave the slot back, or whose sender died before it knew that it had sent it.
        if report.update > self._written[kind]:
            self._write(report)
            self._written[kind] = report.update
        # Not before: a report that cannot be written is no progress.
        self._reports.release(index)

    def close(self) -> None:
        """Flush and close the sinks."""
        with self._writing():
            for sink in self._sinks:
                sink.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Say in one line what is written where, if it cannot be."""
        try:
            yield
        except OSError as error:
            why = error.strerror or error
            raise RunFolderError(f"cannot write the metrics in {self._settings.folder}: {why}") from None

    def _write(self, report: Report) -> None:
        with self._writing():
            for sink in self._sinks:
                sink.write(report)

    def _untold(self) -> dict[str, dict[str, int]]:
        counters = self._ports.counters()
        return {node: counts for node, counts in counters.items() if counts["restarts"] > self._told.get(node, 0)}

    def _tell_restarts(self) -> None:
        """One line for each node that was started again since the last look."""
        for node, counts in self._untold().items():
            count, status, uptime_s = counts["restarts"], counts["ended_by"], counts["uptime_ms"] / 1e3
            self._told[node] = count
            values = {f"{RESTARTS}{node}": count, "death/status": status, "death/uptime_s": uptime_s}
            values |= self._rows(self._ports.counters())
            how = f"was ended by {Signals(-status).name}" if status < 0 else f"ended with status {status}"
            note = f"{node} {how} after {uptime_s:.1f} s and was started again (restart {count})"
            if status > 0 and self._deaths.exists():
                note += f"; its traceback stands in {self._deaths.name}"
            self._write(self._last._replace(values=values, note=note))

    def _rows(self, counters: dict[str, dict[str, int]]) -> dict[str, float]:
        """What became of every transition so far, and what was learned from twice, which is none of the sum."""
        balance = self._ports.balance()
        if balance is None:
            return {}
        rows = {**balance._asdict(), "redone": sum(counts["redone"] for counts in counters.values())}
        return {f"rows/{name}": float(count) for name, count in rows.items()}

    def _told_so_far(self) -> dict[str, int]:
        """Node -> the restart of it that an earlier life of this node told of last; go on where the log ends.

        Restarts count from one again each time that the run is resumed, and the log holds those from before as well.
        """
        told: list[tuple[str, int]] = []
        for report in each_report(self._settings.folder):
            self._last = report._replace(values={})
            for kind in _KINDS & report.values.keys():
                self._written[kind] = max(self._written[kind], report.update)
            restarts = ((name, count) for name, count in report.values.items() if name.startswith(RESTARTS))
            told += [(name.removeprefix(RESTARTS), int(count)) for name, count in restarts]
        # One more than there were at the start, so that zero is: no life has come this far.
        if not (start := self._previous[self._ports.name]["told_at_start"]):
            start = len(told) + 1
            self._ports.count("told_at_start", start)
        return dict(told[start - 1 :])

    def _throughput(self, steps: int) -> dict[str, float]:
        """Steps per second and each node's idle share since the last report, and the counts of rows so far."""
        now, counters = time.monotonic(), self._ports.counters()
        then, before = self._seen
        values = {STEPS_PER_SECOND: (steps - before) / max(now - then, 1e-9)}
        for node, counts in counters.items():
            past = self._previous.get(node, {})
            busy = counts["busy_ns"] - past.get("busy_ns", 0)
            idle = counts["idle_ns"] - past.get("idle_ns", 0)
            if busy + idle > 0:
                values[f"idle/{node}"] = idle / (busy + idle)
        values |= self._rows(counters)
        if skipped := sum(counts["skipped"] for counts in counters.values()):
            values["rollouts/skipped"] = float(skipped)
        self._previous = counters
        if steps > before:
            # Learning may go on without new steps: that time belongs to the next ones.
            self._seen = now, steps
        return values
