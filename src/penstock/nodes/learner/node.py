"""LearnerNode: turns rollouts of a stream into new parameters.

It chooses the rollouts of each batch. `Epochs` learns from them, alone or together with other learners. A keeper
commits and publishes the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.nodes.contract import Ports
from penstock.nodes.learner.batch import Assembly
from penstock.nodes.learner.epochs import EpochSettings
from penstock.nodes.learner.goals import BatchGoal, batch_goal_values
from penstock.nodes.learner.handed_on_epochs import HandedOnEpochSettings
from penstock.nodes.learner.keeper import Keeper, KeeperSettings
from penstock.nodes.learner.losses import lag_values, loss_values
from penstock.nodes.learner.record import consumed_sequences, fill_dropped, fill_learned
from penstock.nodes.learner.work import Task, Work, WorkingNode
from penstock.types import Arrays

__all__ = ["LearnerNode", "LearnerSettings"]


@dataclass(frozen=True)
class LearnerSettings:
    """What one LearnerNode learns."""

    keeper: KeeperSettings
    epochs: EpochSettings | HandedOnEpochSettings
    """How the gradient steps of a batch are taken: by this node and its replicas, or by what its followers find."""
    rollouts_per_batch: int
    assemble: Literal["by_lane", "by_arrival"]
    """``by_lane``: one rollout of every lane, all of the published version. ``by_arrival``: whatever came first."""


class LearnerNode(WorkingNode):
    """Learns from stream ``rollouts`` and publishes on board ``policy``.

    With several learners this is the one that has the keeper. It shows each `StreamReplicaNode` the next batch on board
    ``goals``.
    """

    def __init__(self, settings: LearnerSettings) -> None:
        self._settings = settings

    def _begin(self, ports: Ports) -> Work:
        """Build the updater; take the initial or the checkpoint's state, commit and publish it."""
        settings = self._settings
        kept = settings.keeper
        self._rollouts = ports.stream_reader("rollouts")
        self._keeper = Keeper(kept, ports)
        self._epochs = settings.epochs.make(ports, self._rollouts)
        self._updater = self._epochs.updater
        self._team = self._epochs.team
        if self._team is not None:
            self._goals, self._goals_shown = ports.board_writer("goals"), ports.board_reader("goals")
        self._assembly = Assembly(
            self._rollouts,
            settings.rollouts_per_batch,
            settings.assemble,
            kept.run.max_policy_lag,
            drop=self._drop,
        )
        self._start()
        return self._learn()

    def _start(self) -> None:
        """Begin, or go on after an earlier life's last commit: free the slots that it used, learn from the others."""
        committed = self._keeper.former()
        if committed is None:
            self._updater.load(self._keeper.begin())
            return
        self._rollouts.release_consumed(consumed_sequences(committed))
        self._keeper.take_over(committed)
        self._updater.load(self._keeper.state())

    def _learn(self) -> Work:
        """The whole life of the learner. Yields at least every ``STEP_LIMIT_S``, and while it waits."""
        keeper, ports = self._keeper, self._ports
        if ports.former:
            yield from keeper.after_takeover()
        yield from self._join_team()
        while not keeper.done() and not ports.stopping():
            slots = self._assembly.gather(int(keeper.committed["update"]))
            if slots is not None:
                with ports.span("update"):
                    yield from keeper.saving_if_bad(self._update(slots))
            if ports.stopping():
                break
            if slots is None:
                yield lambda: self._rollouts.ready() > 0 or ports.stopping()
                continue
            yield from keeper.after_commit()
        if self._team is not None:
            self._team.leave()
        yield from keeper.end()

    def _join_team(self) -> Work:
        """Become a member. If this is a new life, the others first give up what the dead one had begun, and leave."""
        team, ports = self._team, self._ports
        if team is not None and team.enter(self._shared()) is None:
            yield lambda: ports.stopping() or team.enter(self._shared()) is not None

    def _shared(self) -> Arrays:
        """What a learner needs that joins: the committed state, and the number of the next goal."""
        goal = np.array(self._goals_shown.version() + 1)
        return {**self._keeper.state(), "update": self._keeper.committed["update"], "goal": goal}

    def _update(self, slots: Sequence[int]) -> Work:
        """One batch: gradient steps; then commit, publish, free, report.

        If the run is to stop, the batch is abandoned and the last commit stands.
        """
        keeper = self._keeper
        committed = keeper.committed
        update = int(committed["update"])
        lags = [self._assembly.lag(slot, update) for slot in slots]
        batch = BatchGoal(tuple(slots), update, keeper.progress())
        while not (yield from self._learn_together(batch)) and not self._ports.stopping():
            yield from self._go_back_and_join()
        # A replica that saw the end of the run before this node did has left, and its rows are missing.
        if self._ports.stopping():
            return
        with self._ports.span("commit"):
            new = keeper.next_record()
            fill_learned(new, committed, self._rollouts, slots)
            keeper.commit(new, self._updater.state())
        for slot in slots:
            self._rollouts.release(slot)
        with self._ports.span("report"):
            metrics = self._epochs.metrics
            # None, if no row of the batch could be learned from.
            names = metrics[0] if metrics else ()
            means = {name: float(np.mean([epoch[name] for epoch in metrics])) for name in names}
            keeper.report(loss_values(means) | lag_values("policy", lags) | self._epochs.sent())

    def _learn_together(self, batch: BatchGoal) -> Task:
        """Take the gradient steps of a batch. Returns false if the run is to stop, or the team has dissolved."""
        if self._team is not None:
            self._team.admit(self._shared())
            self._goals.publish(batch_goal_values(batch), self._goals_shown.version() + 1)
        return (yield from self._epochs.learn(batch, self._ports.stopping))

    def _go_back_and_join(self) -> Work:
        """Go back to the last commit and form the team again: the batch is learned again."""
        self._updater.load(self._keeper.state())
        if self._team is not None:
            self._team.leave()
        yield from self._join_team()

    def _drop(self, index: int) -> None:
        """Drop a rollout that is too old, and commit that: after a death it is either still waiting or counted."""
        new = self._keeper.next_record()
        fill_dropped(new, self._keeper.committed, self._rollouts, [index])
        self._keeper.make_current(new)
        self._rollouts.release(index)
