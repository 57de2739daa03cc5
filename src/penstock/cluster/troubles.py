"""Errors of threads that a run keeps beside its own work: written to its log of deaths, and tried again."""

import contextlib
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["Troubles", "write_down"]


class Troubles:
    """The errors of one thread.

    Args:
        deaths: the run's log of deaths; ``None``: nothing is written.
        doing: what the thread does, for the line above a traceback.
    """

    def __init__(self, deaths: Path | None, doing: str) -> None:
        self._deaths = deaths
        self._doing = doing
        self._last = ""

    def survived(self, turn: Callable[[], None]) -> bool:
        """Do one turn of the thread. False if it failed, whatever the error: the thread goes on with the next turn."""
        try:
            turn()
        except Exception as error:  # noqa: BLE001 - a thread that died would leave the run without what it does
            # The same error may come back at each turn. It is written once.
            if self._last != (said := repr(error)):
                self._last = said
                self._write(traceback.format_exc())
            return False
        self._last = ""
        return True

    def _write(self, text: str) -> None:
        if self._deaths is None:
            return
        # The run does not need this file, so a full disk must not end it.
        with contextlib.suppress(OSError), self._deaths.open("a", encoding="utf-8") as log:
            log.write(f"{self._doing} failed, and is tried again:\n{text}\n")


def write_down(deaths: Path | None, lines: Sequence[str]) -> None:
    """Add lines to the run's log of deaths."""
    if lines and deaths is not None:
        # The run does not need this file, so a full disk must not end it.
        with contextlib.suppress(OSError), deaths.open("a", encoding="utf-8") as log:
            log.writelines(f"{line}\n\n" for line in lines)
