"""LauncherThread: a thread that the launcher keeps beside its own work, for a ``with`` block."""

import abc
import threading
from types import TracebackType
from typing import Self

__all__ = ["LauncherThread"]


class LauncherThread(abc.ABC):
    """The thread. At the end of the block it is told to end, and waited for.

    Args:
        name: of the thread.
        end_s: seconds to wait for its end; ``None``: any time.
    """

    def __init__(self, name: str, end_s: float | None = None) -> None:
        self._over = threading.Event()
        """Set when the thread has to end."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._end_s = end_s

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(self._end_s)
        self._ended(error)

    @abc.abstractmethod
    def _run(self) -> None:
        """What the thread does until `_over` is set."""

    def _ended(self, error: BaseException | None) -> None:  # noqa: B027 - most have nothing to do
        """What is to be done once the thread has ended, or was waited for in vain.

        Args:
            error: that has ended the block; ``None``: none has.
        """
