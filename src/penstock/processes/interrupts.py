"""Ctrl-C, SIGTERM and SIGHUP as a count, for as long as a run lasts."""

import atexit
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interrupts"]

EXIT_LIMIT_S = 5.0
"""How long the end of the interpreter waits for a run in a thread."""


class Interrupts:
    """Counts interrupts inside its ``with`` block instead of raising KeyboardInterrupt.

    Args:
        patience: interrupts that are only counted. The next one raises KeyboardInterrupt. ``None``: none does.

    An ignored signal stays ignored and is not counted. Nohup and a shell's background jobs start a process like that.

    Signals reach the main thread only. In another thread nothing is counted and the process keeps its own handlers. The
    end of the interpreter counts as two interrupts there, if the thread is a daemon.

    Attributes:
        count: of interrupts.
        taken: the number of each signal that was counted.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self, patience: int | None = None) -> None:
        self.count = 0
        self.taken: list[int] = []
        self._patience = patience
        self._thread = threading.current_thread()
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in self.SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._interrupt)
        elif threading.current_thread().daemon:
            self._thread = threading.current_thread()
            atexit.register(self._end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # SIGINT last: its handler may raise as soon as it is back. None: one that was not installed by Python.
        for number, handler in reversed(self._previous.items()):
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        atexit.unregister(self._end)

    def _end(self) -> None:
        """Called when the interpreter ends. It would abort the process if a thread were still inside native code."""
        self.count = 2
        self._thread.join(EXIT_LIMIT_S)

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.taken.append(number)
        if self._patience is not None and self.count > self._patience:
            raise KeyboardInterrupt
