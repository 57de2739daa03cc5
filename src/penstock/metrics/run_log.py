"""Writes the log of a run, ``RUN/run.log``: the lines of the display and all notes, each with its time.

A resume adds to it. No line is ever removed, so it tells what every life of the run has done.
"""

from datetime import datetime
from pathlib import Path

from penstock.errors import RunFolderError
from penstock.metrics.progress import Lines
from penstock.metrics.report import Report

__all__ = ["RUN_LOG", "RunLog", "add_to_log"]

RUN_LOG = "run.log"


class RunLog:
    """Appends the lines of reports, and flushes each.

    Args:
        folder: the run folder.
        timesteps: environment steps of the whole run.
        log_interval: updates from one line to the next.

    Raises:
        RunFolderError: the log cannot be written.
    """

    def __init__(self, folder: Path, timesteps: int, log_interval: int) -> None:
        self._folder = folder
        self._lines = Lines(timesteps, log_interval)
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
