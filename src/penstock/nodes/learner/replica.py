"""ReplicaNode: a learner that takes each gradient step together with the `ReplayLearnerNode`, on rows of its own.

Its state equals the other learners' bit for bit. So it commits nothing: its next life gets the state from them.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.algorithm.first_state import first_state
from penstock.errors import CheckpointError
from penstock.nodes.contract import Ports
from penstock.nodes.learner.goals import TurnGoal, turn_goal_specs
from penstock.nodes.learner.steps import GradientSteps, StepSettings
from penstock.nodes.learner.work import Work, WorkingNode
from penstock.saved_runs.checkpoints import last_good, load_checkpoint
from penstock.types import Arrays
from penstock.updates.team import DissolvedError

__all__ = ["ReplicaNode", "ReplicaSettings"]


@dataclass(frozen=True)
class ReplicaSettings:
    """What one ReplicaNode learns."""

    steps: StepSettings
    checkpoint: Path | None
    """Begin with the state of this checkpoint instead. All learners that form a team begin with the same state."""


class ReplicaNode(WorkingNode):
    """Takes the gradient steps up to each goal of board ``goals``."""

    def __init__(self, settings: ReplicaSettings) -> None:
        self._settings = settings

    def _begin(self, ports: Ports) -> Work:
        """Build the updater and join the other learners."""
        self._goals = ports.board_reader("goals")
        self._steps = GradientSteps(self._settings.steps, ports)
        self._steps.start(self._first_state())
        self._statistics = self._settings.steps.updater.spec.policy.statistics()
        specs = turn_goal_specs(ports.table("rollouts").writers, self._statistics)
        self._told = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}
        self._version = -1
        return self._learn()

    def _first_state(self) -> Arrays:
        """The state with which this node forms a team. Where the others have formed one, only its layout counts."""
        settings, updater = self._settings, self._settings.steps.updater
        # Once there is a team, the checkpoint may be gone: it makes room for later ones.
        if settings.checkpoint is not None and not self._ports.rounds("gradients").first_round_is_over():
            return _resumed(settings.checkpoint)
        return first_state(settings.steps.initial, updater.spec, updater.spaces, updater.config, updater.seed)

    def _learn(self) -> Work:
        while not self._ports.stopping():
            if self._steps.lost():
                self._steps.give_up(self._first_state())
            elif not self._told_anew():
                yield lambda: self._steps.lost() or self._told_anew() or self._ports.stopping()
            else:
                yield from self._turn()
        self._steps.leave()

    def _turn(self) -> Work:
        """Take the gradient steps up to the latest goal, unless that was for learners that met before."""
        self._version = self._goals.read(self._told)
        if int(self._told["meeting"]) != self._steps.meeting():
            return
        taken = tuple(map(int, self._told["taken"]))
        if self._statistics:
            self._steps.updater.load({part.name: self._told[part.name] for part in self._statistics})
        try:
            with self._ports.span("turn"):
                yield from self._steps.until(TurnGoal(int(self._told["last"]), taken, float(self._told["progress"])))
            self._ports.count("handed_on")
        except DissolvedError:
            # The keeper gives its last commit to all that meet again.
            self._steps.give_up(self._first_state())

    def _told_anew(self) -> bool:
        # The ReplayLearnerNode may have died meanwhile. It publishes its next goal only after it has joined again.
        self._steps.attend()
        return self._goals.version() != self._version


def _resumed(checkpoint: Path) -> Arrays:
    """The arrays of a checkpoint. If it is gone, because it made room for later ones: those of the latest good one.

    While the table holds too few rows, turns are committed without a gradient step, so without this learner. Then all
    later checkpoints have the same networks. Running statistics come with each goal.
    """
    try:
        return load_checkpoint(checkpoint).arrays
    except CheckpointError:
        later = None if checkpoint.exists() else last_good(checkpoint.parent.parent)
        if later is None:
            raise
        return later.arrays
