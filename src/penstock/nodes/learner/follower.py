"""FollowerNode: finds gradients on rows drawn from a table and hands them on; commits nothing.

It takes gradient steps as fast as its team lets it. How many are due, who applies the gradients knows.
"""

from dataclasses import dataclass

from penstock.algorithm import ReplaySchedule
from penstock.errors import PenstockError
from penstock.node import Ports
from penstock.nodes.learner.keeper import Wake, Work
from penstock.nodes.learner.steps import GradientSteps, StepSettings, Turn

__all__ = ["FollowerNode", "FollowerSettings"]


@dataclass(frozen=True)
class FollowerSettings:
    """What one FollowerNode learns."""

    steps: StepSettings
    timesteps: int


class FollowerNode:
    """Draws from table ``rollouts`` and hands what it finds to its team."""

    def __init__(self, settings: FollowerSettings) -> None:
        schedule = settings.steps.updater.spec.schedule
        if not isinstance(schedule, ReplaySchedule):
            raise PenstockError("a table is learned from by a replay schedule")
        self._schedule = schedule
        self._settings = settings
        self._work: Work | None = None
        self._wake: Wake | None = None

    def open(self, ports: Ports) -> None:
        """Build the updater, and join the team."""
        self._ports = ports
        self._steps = GradientSteps(self._settings.steps, ports)
        self._steps.start(self._steps.updater.state())
        self._work = self._learn()

    def ready(self) -> bool:
        """True while gradients are found, or once there are rows to draw from."""
        return self._work is not None and (self._wake is None or self._wake())

    def step(self) -> None:
        """Go on learning."""
        if self._work is None:
            return
        try:
            self._wake = next(self._work)
        except StopIteration:
            self._work = None
            self._ports.finished()

    def close(self) -> None:
        """Nothing outlives the process."""

    def _learn(self) -> Work:
        stopping = self._ports.stopping
        yield lambda: self._held() >= self._schedule.min_rows or stopping()
        while not stopping():
            table, steps = self._steps.table, self._steps.updater.gradient_steps
            written = tuple(table.written(writer) for writer in range(table.writers))
            progress = self._schedule.progress(steps, self._settings.timesteps)
            yield from self._steps.until(Turn(self._steps.done + 1, written, progress))
            yield None
        self._steps.leave()

    def _held(self) -> int:
        """How many rows there are to draw from."""
        table = self._steps.table
        slots = sum(min(table.written(writer), table.slots - 1) for writer in range(table.writers))
        rows, lanes = map(int, table.arrays["valid"].shape[1:])
        return slots * (rows - 1) * lanes
