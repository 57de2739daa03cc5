"""FollowerNode: computes gradients on rows sampled from a table and hands them on. Commits nothing.

It works as fast as its team allows. The `ParameterNode` knows how many gradient steps are due.
"""

from dataclasses import dataclass

from penstock.nodes.contract import Ports
from penstock.nodes.learner.intake import rows_to_sample
from penstock.nodes.learner.steps import Goal, GradientSteps, StepSettings
from penstock.nodes.learner.work import Work, WorkingNode

__all__ = ["FollowerNode", "FollowerSettings"]

STEPS = 8
"""Gradient steps that sample from the same slots, so that the next minibatch can be sampled ahead."""


@dataclass(frozen=True)
class FollowerSettings:
    """What one FollowerNode learns."""

    steps: StepSettings
    timesteps: int


class FollowerNode(WorkingNode):
    """Samples from table ``rollouts`` and hands the gradients to its team."""

    def __init__(self, settings: FollowerSettings) -> None:
        self._schedule, _ = settings.steps.updater.spec.replay()
        self._settings = settings

    def _begin(self, ports: Ports) -> Work:
        """Build the updater and join the team."""
        self._steps = GradientSteps(self._settings.steps, ports)
        self._steps.start(self._steps.updater.state())
        self._parameters = ports.board_reader("parameters")
        return self._learn()

    def _learn(self) -> Work:
        stopping, table = self._ports.stopping, self._steps.table
        yield lambda: rows_to_sample(table, self._written()) >= self._schedule.min_rows or stopping()
        while not stopping():
            # The version of the published parameters is the number of gradient steps of all learners.
            progress = self._schedule.progress(self._parameters.version(), self._settings.timesteps)
            yield from self._steps.until(Goal(self._steps.done + STEPS, self._written(), progress))
            yield None
        self._steps.leave()

    def _written(self) -> tuple[int, ...]:
        table = self._steps.table
        return tuple(table.written(writer) for writer in range(table.writers))
