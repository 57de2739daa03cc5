"""One sitting of a soak: runs commands of penstock in turn, watches them, and sends faults by the timetable.

It knows no algorithm and judges nothing. ``Watched`` holds all that it has seen.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple
from uuid import uuid4

from benchmarks.record import ROOT
from benchmarks.soak.faults import Draw, Fault
from benchmarks.soak.log import Follower, Reported, Told, reports_of, told_in
from benchmarks.soak.measures import Sample, Span
from benchmarks.soak.processes import LAUNCHER, MARK, Process, held, processes
from benchmarks.soak.timetable import SETTLE_S, SPAN_S, Part
from penstock.errors import CheckpointError
from penstock.metrics.jsonl import METRICS
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint

TICK_S = 0.05
SAMPLE_S = 1.0
SAVE_S = 60.0
START_LIMIT_S = 120.0
STALL_LIMIT_S = 60.0
"""Seconds without a report after which a sitting is given up."""
FOUND_LIMIT_S = 60.0
"""Seconds in which the run must find a stopped process."""
END_LIMIT_S = 120.0
LEFT_AFTER_S = 2.0
"""Seconds after a command's end at which none of its processes may be left."""


class BrokenError(Exception):
    """The run did something after which the sitting cannot go on."""


class Ended(NamedTuple):
    """How one command ended."""

    how: str
    status: int
    left: int
    """Processes that were still there ``LEFT_AFTER_S`` later."""
    checkpoint: tuple[int, int] | None
    """Update and steps of the last checkpoint, if it is whole."""
    first: tuple[int, int]
    """Update and steps of the first report of this command."""
    said: str
    """The end of its printed output."""


@dataclass
class Watched:
    """All that a sitting has seen so far. Some fields have a list for each life."""

    faults: list[list[Fault]] = field(default_factory=list)
    told: list[list[Told]] = field(default_factory=list)
    reports: list[Reported] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    samples: dict[Process, list[Sample]] = field(default_factory=dict)
    counts: list[list[tuple[int | None, int]]] = field(default_factory=list)
    """For each life: quiet part and number of processes, at every look."""
    ended: list[Ended] = field(default_factory=list)
    run: Path | None = None


class Sitting:
    """Starts commands, watches them and sends faults.

    Args:
        folder: for the run folder, and for printed output.
        members: process -> the nodes that it runs. These processes may get faults.
        draw: chooses the faults.
        save: is called every minute, and writes what was seen so far.
    """

    def __init__(
        self, folder: Path, members: Mapping[str, Sequence[str]], draw: Draw, save: Callable[[Watched], None]
    ) -> None:
        self._folder, self._members, self._draw, self._save = folder, dict(members), draw, save
        self._mark = uuid4().hex
        self.watched = Watched()
        self._clock = {"sample": 0.0, "save": time.monotonic() + SAVE_S}
        self._quiet: int | None = None
        self._stopped: Fault | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    def begin(self, *words: str) -> None:
        """Start a command of penstock, and return once it has reported its first update."""
        watched = self.watched
        for lists in (watched.faults, watched.told, watched.counts):
            lists.append([])
        self._first = len(watched.reports)
        self._output = (self._folder / f"life-{len(watched.faults)}.txt").open("wb")
        python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [str(Path(sys.executable).parent / "penstock"), *words],
            stdout=self._output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, MARK: self._mark, "PYTHONPATH": python_path},
            # The command starts like a terminal's foreground job, so that Ctrl-C reaches its whole group. SIGINT gets
            # its default action: a shell that runs the soak in the background would let the command ignore it.
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - the sitting has one thread
        )
        limit = time.monotonic() + START_LIMIT_S
        while len(watched.reports) == self._first:
            # A short command may already have reported its first update and ended.
            ended = self._running().poll() is not None
            self._look(ends=True)
            if ended and len(watched.reports) == self._first:
                raise self._ended_early()
            if time.monotonic() > limit:
                raise BrokenError(f"no update within {START_LIMIT_S:.0f} s of its start")

    def go_through(self, parts: Sequence[Part]) -> None:
        """Do what a life's timetable says."""
        for part in parts:
            if part.faults:
                self._strike(part)
            else:
                self._rest(part)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.killpg(self._running().pid, signal.SIGINT)
        self._conclude("Ctrl-C")

    def kill(self) -> None:
        """End only the launcher, by SIGKILL, which it cannot catch."""
        self._running().kill()
        self._conclude("kill -9 of the launcher")

    def wait(self, limit_s: float) -> None:
        """Let it end by itself."""
        limit = time.monotonic() + limit_s
        while self._running().poll() is None:
            if time.monotonic() > limit:
                raise BrokenError(f"it did not end by itself within {limit_s:.0f} s")
            self._look(ends=True)
        self._conclude("by itself")

    def give_up(self) -> None:
        """End all processes of the command that are left."""
        for process in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def _rest(self, part: Part) -> None:
        """No faults: settle, then spans as long as those between faults."""
        end = time.monotonic() + part.seconds
        self._until(time.monotonic() + SETTLE_S)
        self._quiet = part.number
        while (begun := time.monotonic()) + SPAN_S <= end:
            self._until(begun + SPAN_S)
            self.watched.spans.append(Span(part.cycle, None, begun, time.monotonic()))
        self._until(end)
        self._quiet = None

    def _strike(self, part: Part) -> None:
        """Send faults, one after the other. A span goes from a reported restart to the next fault."""
        end = time.monotonic() + part.seconds
        at = time.monotonic() + self._draw.pause_s()
        while at < end:
            self._until(at)
            fault = self._fault(part)
            self._until_told(fault)
            told = time.monotonic()
            # A stopped process is found only after its time-out.
            at = self._draw.pause_s() + (told if fault.signal == signal.SIGSTOP else fault.at)
            self._until(min(at, end))
            self.watched.spans.append(Span(part.cycle, fault.process, told, time.monotonic()))
        self._until(end)

    def _fault(self, part: Part) -> Fault:
        name, number = self._draw.next(part.spared)
        process = self._find(name)
        fault = Fault(time.monotonic(), len(self.watched.faults), part.number, name, number, process.age_s)
        os.kill(process.pid, number)
        self.watched.faults[-1].append(fault)
        return fault

    def _find(self, name: str) -> Process:
        limit = time.monotonic() + FOUND_LIMIT_S
        while time.monotonic() < limit:
            found = [process for process in self._processes() if process.name == name]
            if len(found) == 1:
                return found[0]
            self._look()
        raise BrokenError(f"there is no process {name}, or several")

    def _until_told(self, fault: Fault) -> None:
        """Wait until the run has told of a restart that follows a fault."""
        wanted = set(self._members[fault.process])
        limit = time.monotonic() + FOUND_LIMIT_S
        while not wanted <= {told.node for told in self.watched.told[-1] if told.at >= fault.at}:
            if time.monotonic() > limit:
                raise BrokenError(f"{fault.process} was struck and its restart not told of in {FOUND_LIMIT_S:.0f} s")
            self._look()

    def _until(self, at: float) -> None:
        while time.monotonic() < at:
            self._look()

    def _look(self, *, ends: bool = False) -> None:
        """Watch for one tick: new lines at once, processes every second, the report every minute."""
        time.sleep(TICK_S)
        watched, now = self.watched, time.monotonic()
        self._take_lines(now)
        if now >= self._clock["sample"]:
            self._clock["sample"] = now + SAMPLE_S
            self._sample(now)
        if now >= self._clock["save"]:
            self._clock["save"] = now + SAVE_S
            self._save(watched)
        if ends:
            return
        if self._running().poll() is not None:
            raise self._ended_early()
        if len(watched.reports) > self._first and now - watched.reports[-1].at > STALL_LIMIT_S:
            raise BrokenError(f"no update for {STALL_LIMIT_S:.0f} s")

    def _take_lines(self, now: float) -> None:
        lines = self._new_lines()
        self.watched.reports += reports_of(lines, now)
        self.watched.told[-1] += told_in(lines, now)

    def _new_lines(self) -> list[dict[str, Any]]:
        if self.watched.run is None:
            found = list(self._folder.glob(f"*/{METRICS}"))
            if not found:
                return []
            self.watched.run = found[0].parent
            self._follower = Follower(found[0])
        return self._follower.poll()

    def _sample(self, now: float) -> None:
        found = self._processes()
        self.watched.counts[-1].append((self._quiet, len(found)))
        for process in found:
            if process.name in self._members or process.name in {LAUNCHER, "warden", "template"}:
                holds = held(process)
                if holds is not None:
                    self.watched.samples.setdefault(process, []).append(Sample(now, self._quiet, holds))

    def _processes(self) -> list[Process]:
        return processes(self._mark, self._process.pid if self._process else 0, self._members)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BrokenError("nothing was started")
        return self._process

    def _conclude(self, how: str) -> None:
        """Wait for the end, and note what is left and whether the last checkpoint is whole."""
        try:
            status = self._running().wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise BrokenError(f"it had not ended {END_LIMIT_S:.0f} s after {how}") from None
        end = time.monotonic() + LEFT_AFTER_S
        while (left := self._processes()) and time.monotonic() < end:
            time.sleep(TICK_S)
        # The last lines of this command do not belong to the next one.
        self._take_lines(time.monotonic())
        first = self.watched.reports[self._first]
        begun = first.update, first.steps
        self.watched.ended.append(Ended(how, status, len(left), self._checkpoint(), begun, self._said()))

    def _checkpoint(self) -> tuple[int, int] | None:
        if self.watched.run is None:
            return None
        try:
            manifest = load_checkpoint(find_checkpoint(self.watched.run)).manifest
        except CheckpointError:
            return None
        return int(manifest["update"]), int(manifest["steps"])

    def _ended_early(self) -> BrokenError:
        return BrokenError(f"the command ended with status {self._running().poll()}; it said:\n{self._said()}")

    def _said(self) -> str:
        if self._output is None:
            return ""
        self._output.flush()
        lines = Path(self._output.name).read_text(errors="replace").splitlines()
        return "\n".join(lines[-20:])
