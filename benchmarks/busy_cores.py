"""The processor time that this machine's cores take while a run goes on: of all processes, so nothing else may run.

Reads `/proc/stat`, so it needs Linux. A run's log says when its reports came.
"""

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

__all__ = ["BusyCores"]

EVERY_S = 0.1
LOGS = "[!.]*/metrics.jsonl"


class Sample(NamedTuple):
    """What was known at one moment."""

    log_bytes: int
    """Length of the run's log."""
    busy_s: float
    """Processor time of all cores since the machine started."""


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
    every = Path("/proc/stat").read_text("ascii").splitlines()[0]
    user, nice, system, _idle, _waiting, *interrupts = map(int, every.split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
