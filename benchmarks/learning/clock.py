"""Measures when a run first reaches a threshold. Reads only the run's log, so the run is not disturbed."""

import json
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.metrics.jsonl import METRICS
from penstock.metrics.report import EVAL_RETURN

PERIOD_S = 0.1


class Clock:
    """Seconds from the clock's creation until an evaluation reached a threshold, and until the block was left.

    The run is the new folder in ``log_dir``. An evaluation counts as soon as it is in the run's log. So the time of the
    evaluation is part of the result.
    """

    def __init__(self, log_dir: Path, threshold: float) -> None:
        self._log_dir, self._threshold = log_dir, threshold
        self._before = set(log_dir.glob("*/"))
        self._position = 0
        self._lock = threading.Lock()
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._begun = time.perf_counter()
        self.seconds = 0.0
        """Seconds of the whole command."""
        self.reached_s: float | None = None
        """Seconds until the threshold was reached; ``None`` if it was not."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.look()
        self.seconds = time.perf_counter() - self._begun
        self._left.set()
        self._thread.join()

    def look(self) -> None:
        """Read what is new in the log."""
        with self._lock:
            for log in (folder / METRICS for folder in set(self._log_dir.glob("*/")) - self._before):
                if not log.exists():
                    continue
                with log.open("rb") as file:
                    file.seek(self._position)
                    whole, newline, _ = file.read().rpartition(b"\n")
                self._position += len(whole) + len(newline)
                found = [json.loads(line).get(EVAL_RETURN, -float("inf")) for line in whole.splitlines()]
                if self.reached_s is None and max(found, default=-float("inf")) >= self._threshold:
                    self.reached_s = time.perf_counter() - self._begun

    def _watch(self) -> None:
        while not self._left.wait(PERIOD_S):
            self.look()
