"""StreamReplicaNode: learns from each batch of a stream together with the `LearnerNode`, on a share of its own.

Its state equals the other learners' bit for bit. So it commits nothing: its next life gets the state from them.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.algorithm.first_state import first_state
from penstock.errors import BadDataError, PenstockError
from penstock.nodes.contract import Ports
from penstock.nodes.learner.epochs import Epochs, EpochSettings
from penstock.nodes.learner.goals import BatchGoal, batch_goal_specs
from penstock.nodes.learner.work import Task, Work, WorkingNode
from penstock.saved_runs.checkpoints import load_checkpoint
from penstock.types import Arrays
from penstock.updates.team import Members

__all__ = ["StreamReplicaNode", "StreamReplicaSettings"]


@dataclass(frozen=True)
class StreamReplicaSettings:
    """What one StreamReplicaNode learns."""

    epochs: EpochSettings
    rollouts_per_batch: int
    initial: str
    """``module:init_state`` of the algorithm: makes the first state, without torch."""
    checkpoint: Path | None
    """Begin with the state of this checkpoint instead. All learners that form a team begin with the same state."""


class StreamReplicaNode(WorkingNode):
    """Learns from its share of each batch on board ``goals``.

    The keeper may die in the middle of a batch. Its next life goes on from its last commit, so this node does too:

    1. The rounds go on without the keeper. This node sees that it is gone, gives up the batch and leaves.
    2. Once all have left, the keeper's next life forms the rounds anew, with the committed state.
    3. It admits the others at its next batch.
    """

    def __init__(self, settings: StreamReplicaSettings) -> None:
        self._settings = settings

    def _begin(self, ports: Ports) -> Work:
        """Build the updater."""
        settings = self._settings
        self._goals = ports.board_reader("goals")
        self._epochs = Epochs(settings.epochs, ports, ports.stream_reader("rollouts"))
        if self._epochs.team is None:
            raise PenstockError("a replica learns together with others")
        self._team: Members = self._epochs.team
        self._told = {
            spec.name: np.zeros(spec.shape, spec.dtype) for spec in batch_goal_specs(settings.rollouts_per_batch)
        }
        self._version = -1
        self._update = self._first_goal = -1
        return self._learn()

    def _first_state(self) -> Arrays:
        """The state with which this node forms a team. Where the others have formed one, only its layout counts."""
        settings, updater = self._settings, self._settings.epochs.updater
        # Once there is a team, the checkpoint may be gone: it makes room for later ones.
        if settings.checkpoint is not None and not self._ports.rounds("gradients").first_round_is_over():
            saved = load_checkpoint(settings.checkpoint).arrays
            return {**{spec.name: saved[spec.name] for spec in updater.spec.state}, **_forming(int(saved["update"]))}
        first = first_state(settings.initial, updater.spec, updater.spaces, updater.config, updater.seed)
        return {**first, **_forming(0)}

    def _learn(self) -> Work:
        """Join, learn from one batch after the other, and join again whenever a batch was given up."""
        stopping, first = self._ports.stopping, self._first_state()
        while not stopping():
            if not self._entered(first):
                yield lambda: self._entered(first) or stopping()
            done = True
            while done and not stopping():
                yield lambda: self._due() or stopping()
                with self._ports.span("update"):
                    done = not stopping() and (yield from self._share())
                if done:
                    self._ports.count("handed_on")
            self._team.leave()

    def _entered(self, first: Arrays) -> bool:
        """True once this node is a member, with the state of the others."""
        found = self._team.enter(first)
        if found is None:
            return False
        self._update, self._first_goal = int(found["update"]), int(found["goal"])
        self._epochs.updater.load({spec.name: found[spec.name] for spec in self._settings.epochs.updater.spec.state})
        return True

    def _due(self) -> bool:
        """True if there is a batch to learn from, or the keeper has gone."""
        if self._team.lost():
            return True
        # Batches before the first goal are those of learners that met before.
        version = self._goals.version()
        if version == self._version or version < self._first_goal:
            return False
        self._version = self._goals.read(self._told)
        # A batch of an earlier update began before this node was a member.
        return int(self._told["update"]) == self._update

    def _share(self) -> Task:
        """Learn from this node's share of the batch. Returns false if that counts for nothing."""
        if self._given_up():
            return False
        batch = BatchGoal(tuple(self._told["slots"].tolist()), self._update, float(self._told["progress"]))
        try:
            done = yield from self._epochs.learn(batch, self._given_up)
        except BadDataError:
            # The keeper has found the same: it ends the run.
            return False
        self._update += 1
        return done

    def _given_up(self) -> bool:
        return self._ports.stopping() or self._team.lost() or self._goals.version() != self._version


def _forming(update: int) -> Arrays:
    """The arrays of `JOINING` for a learner that forms a team."""
    return {"update": np.array(update, np.int64), "goal": np.zeros((), np.int64)}
