"""What a supervisor needs of a run: its limits, its processes, and its signs of life and progress. Decides nothing."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.supervision.lives import Exit
from penstock.types import Cause

__all__ = ["Limits", "RunProcesses", "Signs", "Silence"]


class Silence(NamedTuple):
    """A node that gives no sign of life."""

    node: str
    group: str
    seconds: float
    cause: Cause = Cause.SILENT

    def text(self) -> str:
        """What its process did not do, and for how long."""
        if self.cause is Cause.SLOW_START:
            return f"{self.node} did not start within {self.seconds:.0f} s"
        limit = ", longer than --env_timeout allows" if self.cause is Cause.SLOW_STEP else ""
        return f"no sign of life from {self.node} for {self.seconds:.0f} s{limit}"


class Limits(NamedTuple):
    """How long the parts of a run may take, and how often its processes may be restarted."""

    drain_s: float
    """To write the last checkpoint."""
    end_s: float
    """To end all loops."""
    max_restarts: int
    """Restarts of a process without progress between them. 0: its death ends the run."""
    stall_s: float
    """How long the run may make no progress."""


class RunProcesses(Protocol):
    """The processes of a run."""

    def exits(self) -> Sequence[Exit]:
        """Processes that have ended since the last call."""
        ...

    def running(self) -> Sequence[str]:
        """Groups whose process is running."""
        ...

    def stacks(self, groups: Sequence[str]) -> Mapping[str, str]:
        """Group -> the Python stacks of all threads of its process. All processes are asked at once."""
        ...

    def kill(self, group: str) -> None:
        """Kill a process (SIGKILL) and reap it.

        Raises:
            ResourceError: the system does not end it.
        """
        ...

    def recover(self, group: str) -> bool:
        """Take back what a dead process held; false if that has to be tried again."""
        ...

    def start(self, group: str) -> None:
        """Restart a process that was recovered: the same nodes, in their next life.

        Raises:
            ResourceError: the system refuses it. ``exits`` may tell this later.
        """
        ...


class Signs(Protocol):
    """What the supervisor reads and writes in shared memory: signs of life, progress, and the order to end."""

    def finished(self) -> bool:
        """True once the nodes that end the run have finished."""
        ...

    def drained(self, running: Collection[str]) -> bool:
        """True once the running groups have read all that was written for them."""
        ...

    def saved(self) -> bool:
        """True once the last checkpoint is written."""
        ...

    def deserted(self, running: Collection[str]) -> bool:
        """True if a node may wait for a slot that no running group will ever free."""
        ...

    def silent(self, running: Collection[str]) -> Silence | None:
        """A node of the running groups that gave no sign of life for longer than it may, if there is one."""
        ...

    def achieved(self, group: str) -> int:
        """A number that grows with the progress of a group, over all its lives."""
        ...

    def needed(self, group: str) -> bool:
        """True if the last checkpoint cannot be written without this group."""
        ...

    def progress(self) -> Hashable:
        """A value that changes while the run makes progress."""
        ...

    def waits(self, groups: Collection[str]) -> str:
        """A line for each node of these groups: what it waits for."""
        ...

    def excuse(self, seconds: float) -> None:
        """Let so many seconds until now count for no node's silence."""
        ...

    def stop(self) -> None:
        """Ask all nodes to begin nothing new."""
        ...

    def end(self) -> None:
        """Ask all loops to end."""
        ...
