"""Reads a run's log while the run goes on: its reports, and the restarts that it tells of."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from penstock.metrics.report import RESTARTS, STEPS_PER_SECOND
from penstock.nodes.contract import Balance


class Reported(NamedTuple):
    """One update, as it was reported."""

    at: float
    """When it arrived, in seconds of the watcher's clock. It is late if the monitor was being restarted."""
    update: int
    steps: int
    time_s: float
    """Seconds by the learner's clock."""
    unbalanced: int | None = None
    """Collected transitions that the line does not account for; nothing if the line has no sum."""


class Told(NamedTuple):
    """One restart, as it was told of."""

    at: float
    node: str
    number: int
    """Number of its restarts by then, since the command began."""
    status: int
    """Exit status of the life before, or minus the signal's number."""
    uptime_s: float
    note: str


class Follower:
    """Reads new lines of a log. Lines at the log's end may be cut off and written anew meanwhile.

    Args:
        path: ``metrics.jsonl``; it need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._offset = 0
        self._seen: list[int] = []
        """A hash of each line so far."""

    def poll(self) -> list[dict[str, Any]]:
        """Every whole line since the last call."""
        try:
            with self._path.open("rb") as file:
                if (found := os.fstat(file.fileno()).st_ino) != self._file:
                    self._file, self._offset = found, self._common(file.read())
                file.seek(self._offset)
                new = file.read()
        except OSError:
            return []
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        lines = whole.splitlines()
        self._seen += map(hash, lines)
        return [line for raw in lines if isinstance(line := _parsed(raw), dict)]

    def _common(self, content: bytes) -> int:
        """The number of bytes of a rewritten file that were read before. Lines that were cut off are forgotten."""
        offset = 0
        for number, line in enumerate(content.splitlines(keepends=True)):
            if number == len(self._seen) or hash(line.rstrip(b"\n")) != self._seen[number]:
                del self._seen[number:]
                return offset
            offset += len(line)
        del self._seen[len(content.splitlines()) :]
        return offset


def reports_of(lines: list[dict[str, Any]], at: float) -> list[Reported]:
    """The updates among some lines, without evaluations and restarts."""
    return [
        Reported(at, line["update"], line["steps"], line["time_s"], _unbalanced(line))
        for line in lines
        if STEPS_PER_SECOND in line
    ]


def told_in(lines: list[dict[str, Any]], at: float) -> list[Told]:
    """The restarts among some lines."""
    return [
        Told(at, key.removeprefix(RESTARTS), int(line[key]), line["death/status"], line["death/uptime_s"], line["note"])
        for line in lines
        for key in line
        if key.startswith(RESTARTS)
    ]


def _unbalanced(line: dict[str, Any]) -> int | None:
    """The missing transitions of a line. Runs that learn from tables have no such sum: they sample rows repeatedly."""
    rows = {name: int(line[f"rows/{name}"]) for name in Balance._fields if f"rows/{name}" in line}
    if len(rows) < len(Balance._fields):
        return None
    return abs(2 * rows["collected"] - sum(rows.values()))


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None
