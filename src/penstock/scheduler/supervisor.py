"""The supervisor of a run: watches processes, ends the run in order, reports who failed.

It starts and kills nothing itself: a process table does, so that its decisions are tested without processes.
"""

import signal
from collections.abc import Collection, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

__all__ = ["Exit", "ProcessTable", "Signs", "Silence", "State", "Supervisor", "describe"]


class Exit(NamedTuple):
    """How a process ended."""

    group: str
    status: int
    """Exit status, or minus the signal's number."""
    detail: str
    """Its traceback, if it could still send one."""


class Silence(NamedTuple):
    """A node that gives no sign of life."""

    node: str
    group: str
    seconds: float


class ProcessTable(Protocol):
    """The processes of a run."""

    def exits(self) -> Sequence[Exit]:
        """Processes that have ended since the last call."""
        ...

    def running(self) -> Sequence[str]:
        """Groups whose process still runs."""
        ...

    def stacks(self, group: str) -> str:
        """Where the threads of a process stand, as Python stacks."""
        ...

    def kill(self, group: str) -> None:
        """End a process now (SIGKILL) and reap it."""
        ...


class Signs(Protocol):
    """What the supervisor reads and writes in shared memory."""

    def finished(self) -> bool:
        """True once the nodes that the run ends with have nothing left to do."""
        ...

    def drained(self, running: Collection[str]) -> bool:
        """True once none of the ``running`` groups has anything left to write down."""
        ...

    def deserted(self, running: Collection[str]) -> bool:
        """True if somebody may be waiting for a slot that none of the ``running`` groups will ever free."""
        ...

    def silent(self) -> Silence | None:
        """A node whose loop has not gone round for longer than it may, if there is one."""
        ...

    def stop(self) -> None:
        """Ask all nodes to begin nothing new."""
        ...

    def end(self) -> None:
        """Ask all loops to end."""
        ...


class State(Enum):
    """Where a run is."""

    RUNNING = auto()
    STOPPING = auto()
    """The learner writes down what it has."""
    ENDING = auto()
    """The loops end."""
    ENDED = auto()


class Supervisor:
    """Decides, tick by tick, what becomes of a run. Times are in seconds of a monotonic clock.

    ``last`` names the groups whose nodes end the run.
    """

    def __init__(
        self, table: ProcessTable, signs: Signs, *, last: Sequence[str], drain_limit_s: float, end_limit_s: float
    ) -> None:
        self._table = table
        self._signs = signs
        self._last = tuple(last)
        self._limits = {State.STOPPING: drain_limit_s, State.ENDING: end_limit_s}
        self._since = 0.0
        self.state = State.RUNNING
        self.failure: Exit | None = None

    def stop(self, now: float) -> None:
        """End the run in order: no new work, what is committed is written down, then all loops end."""
        if self.state is State.RUNNING:
            self._signs.stop()
            self._enter(State.STOPPING, now)

    def kill(self) -> None:
        """End the run at once."""
        for group in self._table.running():
            self._table.kill(group)
        self.state = State.ENDED

    def tick(self, now: float) -> State:
        """Look at everything once; returns where the run is now."""
        self._take_exits(now)
        self._take_silence(now)
        if self.state is State.RUNNING and self._signs.finished():
            self.stop(now)
        if self.state is State.STOPPING and self._signs.finished() and self._signs.drained(self._table.running()):
            self._signs.end()
            self._enter(State.ENDING, now)
        if self.state is State.STOPPING and self.failure is not None and self._signs.deserted(self._table.running()):
            self._signs.end()
            self._enter(State.ENDING, now)
        if self.state is State.ENDING and not self._table.running():
            self.state = State.ENDED
        limit = self._limits.get(self.state)
        if limit is not None and now - self._since > limit:
            self._give_up(limit)
        return self.state

    def _give_up(self, limit: float) -> None:
        """What was to be written down in time was not: that is a failure, whatever else went well."""
        left = ", ".join(self._table.running())
        if self.state is State.STOPPING:
            text = f"{left} had not written down what was learned after {limit:.0f} s; its last checkpoint stands"
            self.failure = self.failure or Exit(left, -signal.SIGKILL, text)
        self.kill()

    def _take_exits(self, now: float) -> None:
        for ended in self._table.exits():
            if self.state is not State.ENDING or ended.status != 0:
                self._fail(ended, now)

    def _fail(self, ended: Exit, now: float) -> None:
        self.failure = self.failure or ended
        if ended.group in self._last:
            # Nobody is left who could write down what was learned; the last checkpoint stands.
            self._signs.end()
            self._enter(State.ENDING, now)
        else:
            self.stop(now)

    def _take_silence(self, now: float) -> None:
        silence = self._signs.silent() if self.state in {State.RUNNING, State.STOPPING} else None
        if silence is None or silence.group not in self._table.running():
            return
        stacks = self._table.stacks(silence.group)
        self._table.kill(silence.group)
        lines = f"no sign of life from {silence.node} for {silence.seconds:.0f} s; its process was ended.\n{stacks}"
        self._fail(Exit(silence.group, -signal.SIGKILL, lines), now)

    def _enter(self, state: State, now: float) -> None:
        self.state, self._since = state, now


def describe(ended: Exit) -> str:
    """One line on how a process ended."""
    if ended.status < 0:
        return f"process {ended.group} was ended by {signal.Signals(-ended.status).name}"
    return f"process {ended.group} ended with status {ended.status}"
