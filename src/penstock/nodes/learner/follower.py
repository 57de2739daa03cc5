"""FollowerNode: computes gradients on rows sampled from a table and hands them on. Commits nothing.

It works as fast as its team allows. The `ParameterNode` knows how many gradient steps are due.
"""

import numpy as np

from penstock.errors import ResourceError
from penstock.nodes.contract import Ports
from penstock.nodes.learner.goals import TurnGoal
from penstock.nodes.learner.intake import rows_to_sample
from penstock.nodes.learner.steps import GradientSteps, StepSettings
from penstock.nodes.learner.work import Work, WorkingNode
from penstock.types import Array

__all__ = ["FollowerNode"]

STEPS = 8
"""Gradient steps that sample from the same slots, so that the next minibatch can be sampled ahead."""


class FollowerNode(WorkingNode):
    """Samples from table ``rollouts`` and hands the gradients to its team."""

    def __init__(self, settings: StepSettings) -> None:
        self._schedule, _ = settings.updater.spec.replay()
        self._settings = settings

    def _begin(self, ports: Ports) -> Work:
        """Build the updater and join the team."""
        self._steps = GradientSteps(self._settings, ports)
        self._steps.start(self._steps.updater.state())
        self._parameters = ports.board_reader("parameters")
        return self._learn()

    def _learn(self) -> Work:
        stopping = self._ports.stopping
        yield self._may_sample
        while not stopping():
            goal = TurnGoal(self._steps.done + STEPS, self._written(), self._progress())
            try:
                yield from self._steps.until(goal)
            except ResourceError:
                if rows_to_sample(self._steps.table, goal.taken):
                    raise
                # A machine that fell behind begins its rings anew. All their slots are later than those of the goal.
                yield self._may_sample
            yield None
        self._steps.leave()

    def _may_sample(self) -> bool:
        enough = rows_to_sample(self._steps.table, self._written()) >= self._schedule.min_rows
        return enough or self._ports.stopping()

    def _progress(self) -> float:
        """Of the run, by its rows. Gradient steps may be ahead of them (``reuse``)."""
        told: Array = np.zeros(())
        self._parameters.read({"progress": told})
        return float(told)

    def _written(self) -> tuple[int, ...]:
        table = self._steps.table
        return tuple(table.written(writer) for writer in range(table.writers))
