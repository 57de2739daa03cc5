"""Writes the log of a run, ``RUN/run.log``: the lines of the display, all notes, and what processes log, with times.

A resume adds to it. No line is ever removed, so it tells what the run did each time it was started or resumed.
"""

import contextlib
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from penstock.errors import RunFolderError
from penstock.metrics.progress import Lines
from penstock.metrics.report import Report

__all__ = ["RUN_LOG", "ProcessLines", "RunLog", "add_to_log"]

RUN_LOG = "run.log"
KNOWN_LINES = 1000
"""Different lines of processes that are remembered, so that a repeated one is counted and not written again."""


class RunLog:
    """Appends the lines of reports, and flushes each.

    Args:
        folder: the run folder.
        lines: of this log alone.

    Raises:
        RunFolderError: the log cannot be written.
    """

    def __init__(self, folder: Path, lines: Lines) -> None:
        self._folder = folder
        self._lines = lines
        # A folder that cannot be written is to be known now, and not at the first line.
        add_to_log(folder)

    def write(self, report: Report) -> None:
        """Append the report's note, and a line if its update is due."""
        add_to_log(self._folder, *self._lines.of(report))

    def close(self) -> None:
        """Append the last update, if it has no line yet."""
        add_to_log(self._folder, *self._lines.last())


def add_to_log(folder: Path, *lines: str) -> None:
    """Append lines of text to a run's log, each behind the present time: ``2026-01-01T12:00:00+00:00 ...``.

    Raises:
        RunFolderError: the log cannot be written.
    """
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    text = "".join(f"{now} {line}\n" for lines_of_one in lines for line in lines_of_one.splitlines())
    try:
        with (folder / RUN_LOG).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        raise RunFolderError(f"cannot write {folder / RUN_LOG}: {error.strerror or error}") from error


@dataclass
class _Known:
    """A line of processes, and how often it came."""

    level: str
    text: str
    count: int = 0
    process: str = ""
    """The process that it came from last."""
    processes: set[str] = field(default_factory=set)
    written: int = 0
    """The count that the log has."""
    due: int = 1
    """The count at which the line is written next: 1, 10, 100, ..."""


class ProcessLines:
    """Appends what processes log, such as the warnings of an environment: ``WARNING env.0: text``.

    A line is written when it comes for the first time, for the 10th time, for the 100th time, ..., whichever process it
    comes from, and at the end. The run does not need these lines, so a full disk does not end it.

    Args:
        folder: the run folder. ``None``: nothing is written.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[tuple[str, str], _Known] = {}

    def add(self, process: str, level: str, text: str, times: int) -> None:
        """Take a line that a process has logged so many times since it was taken before."""
        if (level, text) not in self._known and len(self._known) >= KNOWN_LINES:
            # The oldest one is forgotten. If it comes again, it is written again.
            self._write_rest(self._known.pop(next(iter(self._known))))
        known = self._known.setdefault((level, text), _Known(level, text))
        known.count += times
        known.process = process
        known.processes.add(process)
        if known.count >= known.due:
            self._write(known, "so far")
            known.due = 10 ** len(str(known.count))

    def close(self) -> None:
        """Append how often each line came, as far as the log does not say it."""
        for known in self._known.values():
            self._write_rest(known)
        self._known.clear()

    def _write_rest(self, known: _Known) -> None:
        if known.count > known.written:
            self._write(known, "in all")

    def _write(self, known: _Known, until: str) -> None:
        known.written = known.count
        often = f"{known.count:,} times {until}"
        if len(known.processes) > 1:
            often += f", in {len(known.processes):,} processes"
        text = known.text if known.count == 1 else f"{known.text} ({often})"
        if self._folder is not None:
            with contextlib.suppress(RunFolderError):
                add_to_log(self._folder, f"{known.level} {known.process}: {text}")
