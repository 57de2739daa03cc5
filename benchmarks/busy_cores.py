"""The processor time that this machine's cores take while a run goes on: of all processes, so nothing else may run.

Adds up the processes in `/proc`, so it needs Linux. `/proc/stat` says the time of each core, but on many kernels it
counts which cores are busy at each tick of the clock, 250 times a second. Environments that wake up for 50 us are seen
by chance there. The time of a process is counted in nanoseconds. A run's log says when its reports came.
"""

import threading
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from benchmarks.processes import cpu_s

__all__ = ["BusyCores"]

EVERY_S = 0.25
"""Between two looks. One takes 2 ms with 150 processes."""
LOGS = "[!.]*/metrics.jsonl"


class Sample(NamedTuple):
    """What was known at one moment."""

    log_bytes: int
    """Length of the run's log."""
    busy_s: float
    """Processor time of all processes, ended ones included."""


class BusyCores:
    """Watches the run that begins in a folder, while this is entered.

    Args:
        folder: where the only run folder will be made.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._samples: list[Sample] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "BusyCores":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def a_report(self, log: bytes, skip: int) -> float:
        """Mean processor seconds from one report of the log to the next, from report number ``skip`` to the last.

        Raises:
            RuntimeError: the run was too short to be seen twice.
        """
        return between_reports(self._samples, log, skip)

    def _watch(self) -> None:
        while not self._over.wait(EVERY_S):
            for log in self._folder.glob(LOGS):
                self._samples.append(Sample(log.stat().st_size, _busy_s()))


def between_reports(samples: list[Sample], log: bytes, skip: int) -> float:
    """See `BusyCores.a_report`."""
    first = len(b"".join(log.splitlines(keepends=True)[: skip + 1]))
    # Once the log has its whole length, the run is about to end.
    seen = [sample for sample in samples if first <= sample.log_bytes < len(log)]
    reports = [log[: sample.log_bytes].count(b"\n") for sample in (seen[0], seen[-1])] if seen else [0, 0]
    if reports[0] == reports[1]:
        raise RuntimeError("the run has too few reports to tell what they cost")
    return (seen[-1].busy_s - seen[0].busy_s) / (reports[1] - reports[0])


def _busy_s() -> float:
    return sum(map(_with_ended_s, Path("/proc").glob("[0-9]*")))


def _with_ended_s(process: Path) -> float:
    """Of a process and its children that have ended; 0 for one that ends meanwhile, because its parent has its time."""
    try:
        return cpu_s((process / "stat").read_text("utf-8", "replace"), ended_children=True)
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
