"""Ctrl-C, SIGTERM and SIGHUP as a count, for as long as a run lasts."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interrupts"]


class Interrupts:
    """Counts interrupts inside its ``with`` block instead of raising KeyboardInterrupt.

    Args:
        patience: after so many, the next one raises KeyboardInterrupt all the same; ``None``: none ever does.

    Signals reach only the main thread; in another thread this counts nothing and the process keeps its own handlers.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self, patience: int | None = None) -> None:
        self.count = 0
        self._patience = patience
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in self.SIGNALS:
                self._previous[number] = signal.signal(number, self._interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self._patience is not None and self.count > self._patience:
            raise KeyboardInterrupt
