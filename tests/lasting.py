"""Processes that serve one run after the other, as those of a command serve its probe, its run and its evaluation."""

import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType

from penstock.processes.starts import Processes

__all__ = ["LastingProcesses", "lasting"]


class LastingProcesses(Processes):
    """Their warden and templates outlast each run, so that torch is imported once for many runs: 2 s each."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def close(self) -> None:
        """End nothing: a run whose runtime needs no processes calls this."""

    def are_gone(self) -> bool:
        """Whether something has ended their warden, and so them."""
        return self._warden is not None and self._warden.poll() is not None

    def end(self) -> None:
        """End them all."""
        super().close()


@contextlib.contextmanager
def lasting() -> Iterator[Callable[[], LastingProcesses]]:
    """Gives the same processes at every call, for as long as the body runs. A failed test ends them: then new ones."""
    made: list[LastingProcesses] = []

    def current() -> LastingProcesses:
        if not made or made[-1].are_gone():
            made.append(LastingProcesses())
        return made[-1]

    try:
        yield current
    finally:
        if made:
            made[-1].end()
