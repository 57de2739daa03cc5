"""The supervisor of a run: watches processes, restarts those that die, ends the run in order, reports the failure.

It only decides. What it sees and does goes through the contracts in ``contract.py``, so it is tested without processes.
"""

import signal
import traceback
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from enum import Enum, auto

from penstock.errors import PenstockError, ResourceError
from penstock.supervision.contract import Limits, RunProcesses, Signs
from penstock.supervision.lives import HOPELESS, Exit, Lives, Restart
from penstock.types import Cause

__all__ = ["State", "Supervisor"]

REFUSED_WAIT_S = 1.0
"""Wait after a start that the system refused: by then it may have a process or an open file to spare."""
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)
"""Exit statuses of a process that was killed from outside. Processes that the supervisor kills are not in ``exits``."""


class State(Enum):
    """Where a run is."""

    RUNNING = auto()
    STOPPING = auto()
    """No new work begins; the learner writes the last checkpoint."""
    ENDING = auto()
    """The loops of all processes end."""
    ENDED = auto()


class Supervisor:
    """Decides, tick by tick, what becomes of a run. Times are in seconds of a monotonic clock.

    Args:
        processes: of the run, all started.
        signs: of life and of progress, in shared memory.
        ends_with: the groups whose nodes end the run.
        limits: of time and of restarts.
        tell: called with each restart.
        spare: called with each process that failed when nothing was needed of it any more: the run does not fail by it.
        now: when the run began.
    """

    def __init__(
        self,
        processes: RunProcesses,
        signs: Signs,
        *,
        ends_with: Sequence[str],
        limits: Limits,
        tell: Callable[[Restart], None],
        spare: Callable[[Exit], None],
        now: float,
    ) -> None:
        self._processes = processes
        self._signs = signs
        self._ends_with = tuple(ends_with)
        self._limits = limits
        self._tell = tell
        self._spare = spare
        # Made on first use: a process on another machine may have ended before the first look at the processes.
        self._lives: defaultdict[str, Lives] = defaultdict(lambda: Lives(now))
        self._dead: dict[str, Restart | None] = {}
        """Dead groups that are not recovered yet. With a `Restart`, they are started again then."""
        self._refused: dict[str, float] = {}
        """Group -> when the system refused it last."""
        self._stuck: set[str] = set()
        """Groups whose process was killed, and that the system does not end."""
        self._progress: Hashable = None
        self._progress_at = now
        """When the progress was seen to change last."""
        self._entered_at = now
        """When the run came into its state."""
        self.state = State.RUNNING
        self.failure: Exit | None = None

    def stop(self, now: float) -> None:
        """End the run in order: no new work, the last checkpoint is written, then all loops end."""
        if self.state is State.RUNNING:
            self._signs.stop()
            self._enter(State.STOPPING, now)

    def kill(self) -> None:
        """End the run at once."""
        for group in self._running():
            self._processes.kill(group)
        self.state = State.ENDED

    def excuse(self, seconds: float) -> None:
        """Do not count the last ``seconds`` towards any limit: the machine stood still, and all processes with it."""
        self._entered_at += seconds
        self._progress_at += seconds
        self._signs.excuse(seconds)

    def tick(self, now: float) -> State:
        """Look at all processes once, and act. Returns the state of the run.

        Raises:
            ResourceError: the system refused the first start of a process, so the run has not begun.
        """
        self._take_exits(now)
        self._take_silence(now)
        self._revive(now)
        self._take_stall(now)
        if self.state is State.RUNNING and self._signs.finished():
            self.stop(now)
        living = self._living()
        if self.state is State.STOPPING and self._signs.finished() and self._signs.drained(living):
            self._signs.end()
            self._enter(State.ENDING, now)
        if self.state is State.STOPPING and self.failure is not None and self._signs.deserted(living):
            self._signs.end()
            self._enter(State.ENDING, now)
        if self.state is State.ENDING and not self._running():
            self.state = State.ENDED
        limit = {State.STOPPING: self._limits.drain_s, State.ENDING: self._limits.end_s}.get(self.state)
        if limit is not None and now - self._entered_at > limit:
            self._give_up(limit, now)
        return self.state

    def _give_up(self, limit: float, now: float) -> None:
        """End what takes too long. If the last checkpoint was not written in time, the run has failed."""
        if self.state is State.STOPPING and self._signs.saved():
            # Another node is still busy, as one that opens a slow simulator to evaluate. Nothing is lost without it.
            self._signs.end()
            self._enter(State.ENDING, now)
            return
        left = ", ".join(self._processes.running())
        if self.state is State.STOPPING:
            text = f"{left} did not write the last checkpoint within {limit:.0f} s; the checkpoint before it is good"
            self.failure = self.failure or Exit(left, -signal.SIGKILL, text)
        self.kill()

    def _take_exits(self, now: float) -> None:
        """Note the processes that have ended, and plan their restarts."""
        for ended in self._processes.exits():
            charged = ended.status not in _FROM_OUTSIDE
            if self.state is not State.ENDING:
                self._lose(ended, now, charged=charged)
            elif ended.status != 0 and charged and ended.cause is not Cause.REFUSED:
                # All is saved. But one that wrote files of the run may have failed to close them.
                saves = ended.group in self._ends_with or self._signs.needed(ended.group)
                self._fail(ended, now) if saves else self._spare(ended)

    def _lose(self, ended: Exit, now: float, *, charged: bool) -> None:
        """A process has died before the end: plan its restart, or fail the run.

        Args:
            ended: how it died.
            now: the present time.
            charged: the process is to blame: its death counts towards ``--max_restarts``.
        """
        lives, goes_on = self._lives[ended.group], self.state is State.RUNNING and not self._signs.finished()
        if ended.cause is Cause.REFUSED and not lives.restarts:
            raise ResourceError(ended.detail)
        if ended.cause is Cause.REFUSED:
            self._refused[ended.group] = now
        # Recover it in any case: other nodes may wait for a slot that it held.
        self._dead[ended.group] = None
        if not goes_on and not self._signs.needed(ended.group):
            # It fails the run no more: what was learned is saved without it.
            if charged and ended.cause is not Cause.REFUSED:
                self._spare(ended)
            return
        if ended.status == HOPELESS or self._limits.max_restarts == 0:
            self._fail(ended, now)
            return
        lives.end(self._signs.achieved(ended.group), charged=charged)
        failure = lives.in_vain(ended, self._limits.max_restarts)
        if failure is not None:
            self._fail(failure, now)
        else:
            self._dead[ended.group] = Restart(ended, now - lives.begun, lives.restarts + 1)

    def _revive(self, now: float) -> None:
        """Recover dead groups, and restart those that are to be restarted."""
        for group, restart in list(self._dead.items()):
            refused = restart is not None and restart.ended.cause is Cause.REFUSED
            # Check the time first. `recover` would wake all processes at each tick, and a process that the system has
            # refused never ran, so it holds nothing to recover.
            if (refused and now < self._refused[group] + REFUSED_WAIT_S) or not self._processes.recover(group):
                continue
            del self._dead[group]
            again = self.state is State.RUNNING or (self.state is State.STOPPING and self._signs.needed(group))
            if restart is not None and again:
                self._lives[group].begin(now)
                try:
                    self._processes.start(group)
                except ResourceError as error:
                    self._lose(Exit(group, 1, str(error), Cause.REFUSED), now, charged=True)
                except PenstockError as error:
                    # No machine that is left can run it. What was learned is saved.
                    self._fail(Exit(group, HOPELESS, "".join(traceback.format_exception_only(error))), now)
                    continue
                self._tell(restart)

    def _take_stall(self, now: float) -> None:
        """End a run that makes no progress although every process is alive."""
        progress = self._signs.progress()
        if progress != self._progress or self.state is not State.RUNNING:
            self._progress, self._progress_at = progress, now
        if now - self._progress_at <= self._limits.stall_s:
            return
        stood = f"the run came no further for {now - self._progress_at:.0f} s, longer than --stall_timeout allows"
        parts = [stood, self._signs.waits(self._living())]
        parts += [f"{group}:\n{stacks}" for group, stacks in self._processes.stacks(self._processes.running()).items()]
        self.failure = self.failure or Exit("", -signal.SIGKILL, "\n".join(parts))
        self.stop(now)

    def _fail(self, ended: Exit, now: float) -> None:
        """Let the run fail with this end of a process, if it has not failed yet, and end it in order."""
        self.failure = self.failure or ended
        if ended.group in self._ends_with:
            # No process is left that could write another checkpoint.
            self._signs.end()
            self._enter(State.ENDING, now)
        else:
            self.stop(now)

    def _take_silence(self, now: float) -> None:
        """Kill a process whose node gives no sign of life, and plan its restart."""
        watched = self.state in {State.RUNNING, State.STOPPING}
        silence = self._signs.silent(self._running()) if watched else None
        if silence is None:
            return
        stacks = self._processes.stacks([silence.group])[silence.group]
        try:
            self._processes.kill(silence.group)
        except ResourceError as error:
            # It may still write into what it holds, so nothing is taken back. All others end in order.
            self._stuck.add(silence.group)
            self._fail(Exit(silence.group, -signal.SIGKILL, f"{error}\n{stacks}", silence.cause), now)
            return
        lines = f"{silence.text()}; its process was ended.\n{stacks}"
        # While the run stops, a node that the last checkpoint does not need costs nothing: all is saved without it.
        charged = self.state is State.RUNNING or self._signs.needed(silence.group)
        self._lose(Exit(silence.group, -signal.SIGKILL, lines, silence.cause), now, charged=charged)

    def _running(self) -> list[str]:
        return [group for group in self._processes.running() if group not in self._stuck]

    def _living(self) -> set[str]:
        """The groups that run, and those that are to be started again."""
        return {*self._running(), *(group for group, restart in self._dead.items() if restart is not None)}

    def _enter(self, state: State, now: float) -> None:
        self.state, self._entered_at = state, now
