"""MonitorNode: makes metrics of the learner's reports and the nodes' counters, and writes them to files and a display.

It only reads shared memory. A learner does not wait for it, but merges reports that find no free slot. An evaluator
waits with its report. So a learner that waits for each verdict (``--early_stop`` in lock step) may wait for the
monitor, too.
"""

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.config.episode_metrics import EpisodeMetric
from penstock.errors import RunFolderError
from penstock.metrics.episode_metrics import EPISODE, missing_metrics, perhaps_misspelt
from penstock.metrics.evaluation import NEEDS_AN_END
from penstock.metrics.first_update import FirstUpdate
from penstock.metrics.histograms import Histograms
from penstock.metrics.idle_shares import IdleShares
from penstock.metrics.jsonl import JsonLines, each_report
from penstock.metrics.model_graph import GraphNode
from penstock.metrics.progress import Lines, progress_sink
from penstock.metrics.report import (
    EPISODES,
    EVAL_RETURN,
    LENGTH,
    RESTARTS,
    RETURN,
    SHAPED_RETURN,
    STEPS_PER_SECOND,
    Report,
    Sink,
    read_report,
)
from penstock.metrics.restart_note import restart_note
from penstock.metrics.return_range import ReturnRange
from penstock.metrics.run_log import RunLog
from penstock.metrics.tensorboard import TensorBoard
from penstock.nodes.contract import Ports
from penstock.saved_runs.run_folder import RunFolder

__all__ = ["MonitorNode", "MonitorSettings"]


_KINDS = frozenset({EVAL_RETURN, STEPS_PER_SECOND})
"""One metric that only reports of evaluations hold, and one that only reports of updates hold."""
_COUNTED = {
    "rollouts/skipped": "skipped",
    "eval/left_out": "evaluations_dropped",
    "reports/dropped": "reports_dropped",
}
"""Metric -> the counter that it is the sum of, over all nodes. Reported once it is not 0."""
TYPICAL_EPISODES = 10
"""So many episodes must have ended before their mean return is compared with a range."""
LONG_EPISODE = 10_000
"""Steps of each lane after which the log and the display say, once, that no episode has ended yet."""
STOPPING = "stopping: the last checkpoint is being written; Ctrl-C again ends at once"
"""What the log and the display say after an interrupt."""
SILENT_S = 30.0
"""If there is no report for so long, the log and the display say what the run waits for, once."""


@dataclass(frozen=True)
class MonitorSettings:
    """What the monitor shows, and where it writes."""

    folder: Path
    title: str
    timesteps: int
    log_interval: int
    quiet: bool
    """No display, files only."""
    tensorboard_axis: str
    """One of `penstock.metrics.tensorboard.AXES`."""
    resumed: Report
    """The update, steps and seconds that the run was resumed at; all 0 for a new run. Later metrics are dropped."""
    first_update: FirstUpdate
    """What it needs, for a line in case it takes long."""
    settings: str
    """Every setting of the run, as TOML, for TensorBoard."""
    first_lines: tuple[str, ...] = ()
    """Lines with which the log and the display begin."""
    episode_metrics: tuple[EpisodeMetric, ...] = ()
    """Numbers in the last infos of episodes. The log and the display say once which of them the first episodes lack."""
    return_range: ReturnRange | None = None
    """What the learned returns are cut to, if they are. The log and the display say once if episodes lie outside."""
    lanes: int = 1
    """How many lanes share the steps of the run."""
    least_s: float = 0.0
    """Least seconds of training between two lines of updates in the log and on a display that is no terminal."""
    graph: tuple[GraphNode, ...] = ()
    """The networks of the policy, for TensorBoard; empty: they are not shown."""
    histograms: bool = False
    """The checkpointer hands over histograms of each checkpoint, through the shared object ``histograms``."""


class MonitorNode:
    """Reads stream ``reports`` and all counters; writes to sinks."""

    def __init__(self, settings: MonitorSettings) -> None:
        self._settings = settings
        self._sinks: list[Sink] = []
        self._histograms: deque[Histograms] = deque()
        """Those that the checkpointer has handed over and that are not written yet."""
        self._for_people: list[Sink] = []
        """The log, and the display if there is one."""
        self._silent_since: float | None = None
        """When these were opened; ``None`` once they have a report, or have said what the run waits for."""
        self._told_interrupt = False
        """Whether the log and the display say that the run was interrupted."""
        self._episodes_before: float | None = None
        """Training episodes that had ended before a resume; ``None``: not known yet."""
        self._looks_for_missing = bool(settings.episode_metrics)
        """Whether it has yet to look for metrics that the first episodes do not have."""
        self._looks_for_outside = settings.return_range is not None
        """Whether it has yet to say that returns are outside the range."""
        self._looks_for_ends = True
        """Whether it has yet to see an episode end, or to say that none does."""

    def open(self, ports: Ports) -> None:
        """Open the sinks."""
        settings = self._settings
        self._ports = ports
        self._reports = ports.stream_reader("reports")
        if settings.histograms:
            self._histograms = ports.shared_object("histograms", deque)
        counters = ports.counters()
        # The files that an earlier life of this node wrote are part of the run. A life that died before it had opened
        # them wrote none: the log still holds lines of the run before its resume.
        told_at_start = counters[ports.name]["told_at_start"]
        again = bool(told_at_start)
        with self._writing():
            self._open_sinks(again=again)
        self._idle = IdleShares(counters, again=again)
        self._silent_since = None if again else time.monotonic()
        if again:
            # An earlier life may have told of them. The end of the run tells of missing metrics, too.
            self._looks_for_missing = self._looks_for_outside = self._looks_for_ends = False
        self._episodes_before = None if settings.resumed.update else 0.0
        self._deaths = RunFolder(settings.folder).deaths
        self._written = dict.fromkeys(_KINDS, settings.resumed.update)
        self._last = settings.resumed
        self._told_restarts = self._restarts_in_log(told_at_start)
        self._counted_at = self._last.time_s, self._last.steps

    def _open_sinks(self, *, again: bool) -> None:
        """Open the files and the display. ``again``: go on with those of an earlier life of this node."""
        settings = self._settings
        lines = JsonLines(settings.folder, None if again else settings.resumed.update)
        self._board = TensorBoard(settings.folder, settings.tensorboard_axis, None if again else settings.resumed)
        if not again:
            self._board.write_settings(settings.settings, settings.resumed)
        # A resume keeps its networks.
        if settings.graph and self._board.is_first:
            self._board.write_graph(settings.graph)
        self._sinks = [lines, self._board]
        often = settings.timesteps, settings.log_interval, settings.least_s
        self._for_people = [RunLog(settings.folder, Lines(*often))]
        if not settings.quiet:
            self._for_people.append(progress_sink(settings.title, *often))
        self._sinks += self._for_people
        for line in () if again else settings.first_lines:
            self._tell(settings.resumed._replace(note=line))

    def ready(self) -> bool:
        """True if there is something to write: a report or histograms, or a line on a restart, a stop or silence."""
        given = self._reports.ready() > 0 or bool(self._histograms)
        return given or bool(self._untold_restarts()) or self._is_interrupted() or self._is_silent()

    def step(self) -> None:
        """Add the counters to one report, and write it."""
        self._tell_restarts()
        self._tell_interrupt()
        self._write_histograms()
        index = self._reports.take()
        if index is None:
            self._tell_silence()
            return
        self._silent_since = None
        report = read_report(self._reports.slot(index))
        kind = EVAL_RETURN if EVAL_RETURN in report.values else STEPS_PER_SECOND
        if kind is STEPS_PER_SECOND:
            self._last = report._replace(returns=())
            report = report._replace(values={**report.values, **self._throughput(report)})
        # A report comes twice if an earlier monitor died before it released the slot, or the sender died after sending.
        if report.update > self._written[kind]:
            self._write(report)
            self._written[kind] = report.update
        if self._looks_for_missing and EPISODES in report.values:
            self._tell_missing(report)
        if self._looks_for_outside and report.values.get(EPISODES, 0.0) >= TYPICAL_EPISODES:
            self._tell_outside(report)
        if self._looks_for_ends and EPISODES in report.values:
            self._tell_endless(report)
        # Released only now, so that a report that cannot be written is not counted as progress.
        self._reports.release(index)

    def close(self) -> None:
        """Flush and close the sinks."""
        # Close everything, the sinks in their order, even if closing one of them fails.
        with self._writing(), contextlib.ExitStack() as closing:
            for sink in reversed(self._sinks):
                closing.callback(sink.close)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn an OSError into one line: what cannot be written, where, and why."""
        try:
            yield
        except OSError as error:
            why = error.strerror or error
            raise RunFolderError(f"cannot write the metrics in {self._settings.folder}: {why}") from None

    def _write_histograms(self) -> None:
        with self._writing():
            while self._histograms:
                self._board.write_histograms(self._histograms.popleft())

    def _write(self, report: Report) -> None:
        with self._writing():
            for sink in self._sinks:
                sink.write(report)

    def _is_interrupted(self) -> bool:
        return not self._told_interrupt and self._ports.interrupted()

    def _tell_interrupt(self) -> None:
        """Say once that an interrupt has come, and what the run does now."""
        if self._is_interrupted():
            self._told_interrupt = True
            self._silent_since = None
            self._tell(self._last._replace(values={}, note=STOPPING))

    def _is_silent(self) -> bool:
        return self._silent_since is not None and time.monotonic() >= self._silent_since + SILENT_S

    def _tell_silence(self) -> None:
        """Say once what the first update waits for."""
        if self._is_silent():
            self._silent_since = None
            awaited = self._settings.first_update.awaited(self._ports.counters(), time.monotonic_ns())
            note = f"no update yet after {SILENT_S:g} s: {awaited}"
            self._tell(self._last._replace(values={}, note=note))

    def _tell_missing(self, report: Report) -> None:
        """Say once which metrics are in no info of the first episodes that have ended: a name may be misspelt.

        It is no error, because an environment may give a number at some ends of episodes only.
        """
        ended = report.values[EPISODES]
        if self._episodes_before is None:
            self._episodes_before = ended
        if ended <= self._episodes_before:
            return
        self._looks_for_missing = False
        has = report.values
        missing = perhaps_misspelt({one.name: f"{EPISODE}{one.label}" in has for one in self._settings.episode_metrics})
        if missing:
            self._tell(report._replace(values={}, note=missing_metrics(missing, int(ended - self._episodes_before))))

    def _tell_outside(self, report: Report) -> None:
        """Say once that learned returns lie outside the range that the learner can tell apart."""
        learned = report.values.get(SHAPED_RETURN, report.values[RETURN])
        known = self._settings.return_range
        if known is not None and (line := known.outside(learned, report.values[LENGTH])):
            self._looks_for_outside = False
            self._tell(report._replace(values={}, note=line))

    def _tell_endless(self, report: Report) -> None:
        """Say once that no episode has ended in ``LONG_EPISODE`` steps of each lane."""
        steps = (report.steps - self._settings.resumed.steps) // self._settings.lanes
        if report.values[EPISODES]:
            self._looks_for_ends = False
        elif steps >= LONG_EPISODE:
            self._looks_for_ends = False
            note = f"no episode has ended in {steps:,} steps of each lane: {NEEDS_AN_END}"
            self._tell(report._replace(values={}, note=note))

    def _tell(self, report: Report) -> None:
        """Write a report with a note that is no metric."""
        for sink in self._for_people:
            sink.write(report)

    def _untold_restarts(self) -> dict[str, dict[str, int]]:
        """Node -> its counters, for each node whose last restart is not in the log yet."""
        counters, told = self._ports.counters(), self._told_restarts
        return {node: counts for node, counts in counters.items() if counts["restarts"] > told.get(node, 0)}

    def _tell_restarts(self) -> None:
        """Write one line for each node that was restarted since the last call."""
        for node, counts in self._untold_restarts().items():
            self._told_restarts[node] = counts["restarts"]
            values = {
                f"{RESTARTS}{node}": counts["restarts"],
                "death/status": counts["ended_by"],
                "death/uptime_s": counts["uptime_ms"] / 1e3,
            }
            values |= self._rows(self._ports.counters())
            self._write(self._last._replace(values=values, note=restart_note(node, counts, self._deaths.name)))

    def _rows(self, counters: dict[str, dict[str, int]]) -> dict[str, float]:
        """What became of every row so far.

        ``redone`` counts rows that were learned twice; ``lost`` counts those that a table has lost with a machine. They
        are not in the sum.
        """
        balance = self._ports.balance()
        if balance is None:
            return {}
        rows = {**balance._asdict(), "redone": sum(counts["redone"] for counts in counters.values())}
        if lost := sum(counts["lost"] for counts in counters.values()):
            rows["lost"] = lost
        return {f"rows/{name}": float(count) for name, count in rows.items()}

    def _restarts_in_log(self, told_at_start: int) -> dict[str, int]:
        """Node -> number of its last restart that is in the log. Also sets the last report to the log's end.

        Each resume counts restarts from one again. The log also holds the restarts from before the resume.

        Args:
            told_at_start: one more than the restarts in the log when this command began, as an earlier life of this
                node has counted them. 0: no life has counted them yet.
        """
        told: list[tuple[str, int]] = []
        for report in each_report(self._settings.folder):
            self._last = report._replace(values={}, returns=())
            for kind in _KINDS & report.values.keys():
                self._written[kind] = max(self._written[kind], report.update)
            restarts = ((name, count) for name, count in report.values.items() if name.startswith(RESTARTS))
            told += [(name.removeprefix(RESTARTS), int(count)) for name, count in restarts]
        if not told_at_start:
            told_at_start = len(told) + 1
            self._ports.count("told_at_start", told_at_start)
        return dict(told[told_at_start - 1 :])

    def _throughput(self, report: Report) -> dict[str, float]:
        """Steps per second and idle share of each node since the last report, and the counts of rows so far."""
        counters = self._ports.counters()
        # By the learner's clock: reports that waited for this node arrive together.
        (then, before), (now, steps) = self._counted_at, (report.time_s, report.steps)
        values = {STEPS_PER_SECOND: (steps - before) / (now - then) if now > then else 0.0}
        values |= self._idle.update(counters, time.monotonic())
        values |= self._rows(counters)
        for name, counter in _COUNTED.items():
            if count := sum(counts[counter] for counts in counters.values()):
                values[name] = float(count)
        if steps > before:
            # Learning may go on without new steps. That time counts for the next steps.
            self._counted_at = now, steps
        return values
