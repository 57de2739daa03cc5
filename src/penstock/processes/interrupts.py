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
        patience: after so many, the next one raises KeyboardInterrupt all the same; ``None``: none ever does.

    A signal that is ignored stays ignored, and is not counted: whoever started the process has asked for that, as nohup
    does, or a shell for its background jobs.

    Signals reach only the main thread; in another thread this counts none and the process keeps its own handlers. There
    the end of the interpreter counts as two, if it would not wait for the thread by itself.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self, patience: int | None = None) -> None:
        self.count = 0
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
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        atexit.unregister(self._end)

    def _end(self) -> None:
        """The interpreter ends. A thread that it leaves within native code would end the whole process by an abort."""
        self.count = 2
        self._thread.join(EXIT_LIMIT_S)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self._patience is not None and self.count > self._patience:
            raise KeyboardInterrupt
