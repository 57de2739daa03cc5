"""ReplayLearnerNode: turns rows sampled from a table into new parameters.

It owns the schedule: how many gradient steps the collected rows make due. The mathematics is the algorithm's, run by an
updater. A sampler chooses the rows of each minibatch; a keeper commits and publishes the result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.errors import BadDataError
from penstock.metrics.report import SENT_BYTES
from penstock.nodes.contract import Ports
from penstock.nodes.learner.goals import TurnGoal, turn_goal_values
from penstock.nodes.learner.intake import Intake, refill, rows_to_sample
from penstock.nodes.learner.keeper import Keeper, KeeperSettings
from penstock.nodes.learner.losses import lag_values, loss_values, refuse_bad_losses
from penstock.nodes.learner.record import fill_learned_from_table
from penstock.nodes.learner.steps import GradientSteps, StepSettings
from penstock.nodes.learner.work import Task, Work, WorkingNode
from penstock.ops.statistics import obs_statistics
from penstock.replay.limiter import RateLimiter
from penstock.types import Array, Arrays
from penstock.updates.team import DissolvedError

__all__ = ["ReplayLearnerNode", "ReplayLearnerSettings"]

SPARE_STEPS = 8
"""Gradient steps of a turn without new rollouts. Few, because a rollout that arrives meanwhile has to wait."""


@dataclass(frozen=True)
class ReplayLearnerSettings:
    """What one ReplayLearnerNode learns."""

    keeper: KeeperSettings
    steps: StepSettings
    limiter: RateLimiter
    order: Literal["by_lane", "by_arrival"]
    """``by_lane``: a turn begins with one rollout of every lane. ``by_arrival``: with whatever came first."""


class ReplayLearnerNode(WorkingNode):
    """Learns from table ``rollouts`` and publishes on board ``policy``.

    Its life is a sequence of turns:

    1. It takes note of new rollouts, and of their observations where running statistics normalise them.
    2. It takes the gradient steps that they make due.
    3. It commits.

    While no rollout comes it may take spare steps, as far as the limiter allows. In lock step every environment node
    waits for the commit, so each turn finds the same rows. Board ``goals`` tells replicas the goal of each turn.
    """

    def __init__(self, settings: ReplayLearnerSettings) -> None:
        self._schedule, _ = settings.keeper.spec.replay()
        self._settings = settings

    def _begin(self, ports: Ports) -> Work:
        """Build the updater; take the initial or the checkpoint's state, commit and publish it."""
        settings = self._settings
        self._keeper = Keeper(settings.keeper, ports)
        self._steps = GradientSteps(settings.steps, ports)
        self._table = ports.table("rollouts")
        if settings.steps.learners > 1:
            self._goals, self._goals_shown = ports.board_writer("goals"), ports.board_reader("goals")
        self._intake = Intake(self._table, settings.order)
        self._start()
        return self._learn()

    def _start(self) -> None:
        """Begin, or go on after the last commit of an earlier life."""
        committed = self._keeper.former()
        if committed is None:
            with self._ports.busy("refill the table", self._settings.steps.work_limit_s):
                ranks = self._ports.priorities("rollouts")
                taken = refill(self._table, ranks, self._settings.keeper.checkpoint)
            self._steps.start(self._keeper.begin(taken=taken))
        else:
            self._steps.start(committed)
            self._keeper.take_over(committed)
        self._note_paid(int(self._keeper.committed["steps"]))

    def _learn(self) -> Work:
        """The whole life of the learner. Yields at least every ``STEP_LIMIT_S``, and while it waits."""
        keeper, ports = self._keeper, self._ports
        if ports.former:
            yield from keeper.after_takeover()
        while not (keeper.done() and self._left() == 0) and not ports.stopping():
            if self._new() == 0 and self._left() == 0 and self._spare() == 0:
                yield lambda: self._new() > 0 or ports.stopping()
                continue
            with ports.span("turn"):
                yield from keeper.saving_if_bad(self._turn())
            if not ports.stopping():
                yield from keeper.after_commit()
        self._steps.leave()
        yield from keeper.end()

    def _spare(self) -> int:
        """Gradient steps that may be taken while no rollout comes."""
        committed = self._keeper.committed
        if not self._enough(committed["taken"]):
            return 0
        return self._settings.limiter.spare(int(committed["steps"]), int(committed["gradient_steps"]))

    def _enough(self, taken: Array) -> bool:
        """True if the table holds enough rows to sample from, and each of its shards as many as the others."""
        return rows_to_sample(self._table, taken, self._settings.steps.shards) >= self._schedule.min_rows

    def _left(self) -> int:
        """Gradient steps that a turn has left to the next one, if there are rows to take them on."""
        committed = self._keeper.committed
        owed = int(committed["owed"])
        return owed if owed and self._enough(committed["taken"]) else 0

    def _new(self) -> int:
        return 0 if self._keeper.done() else self._intake.waiting(self._keeper.committed["taken"])

    def _turn(self) -> Work:
        """Take note of new rollouts, take the gradient steps that they make due, commit, publish, report.

        If the run is to stop, the turn is abandoned and the last commit stands.
        """
        keeper = self._keeper
        committed = keeper.committed
        taken = committed["taken"].copy()
        slots = self._intake.take(taken) if self._new() > 0 else []
        lags = [int(committed["update"]) - int(slot["policy_version"][0, 0]) for slot in slots]
        collected = sum(int(slot["valid"][:-1].sum()) for slot in slots)
        goal, owed = self._goal(collected, taken)
        statistics = self._statistics(slots)
        if statistics:
            self._steps.updater.load(statistics)
        in_order = self._settings.order == "by_lane"
        if in_order and self._steps.tree is not None:
            # Wait for the last checkpoint: it copies the priorities, and the steps change them.
            yield from keeper.checkpoints_written()
        try:
            while not (yield from self._learn_together(goal, statistics)) and not self._ports.stopping():
                self._go_back_and_join(statistics)
                # A machine that was lost may have taken rows of its shard with it. Then the steps wait for more rows.
                goal, owed = self._goal(collected, taken)
            metrics = self._steps.updater.metrics()
            refuse_bad_losses(metrics, int(committed["update"]) + 1, self._settings.keeper.spec.policy)
            if self._ports.stopping():
                self._abandon()
                return
            if in_order:
                # Wait for the last checkpoint: after the next commit the table's oldest rows may be overwritten.
                yield from keeper.checkpoints_written()
            self._commit(slots, taken, owed)
        except BadDataError:
            self._abandon()
            raise
        self._report(goal, loss_values(metrics) | lag_values("policy", lags))

    def _commit(self, slots: Sequence[Arrays], taken: Array, owed: int) -> None:
        """Commit the state after a turn, and publish it.

        Args:
            slots: the turn's new rollouts.
            taken: how many rollouts of each writer were taken so far.
            owed: gradient steps that are due and not taken.

        Raises:
            BadDataError: published parameters are infinite or NaN.
        """
        keeper = self._keeper
        with self._ports.span("commit"):
            new = keeper.next_record()
            fill_learned_from_table(new, keeper.committed, slots)
            new["taken"][...] = taken
            new["owed"][...] = owed
            # Straight into the record: networks are large, and a native update would copy them twice.
            self._steps.updater.write_state(new)
            keeper.commit_unpublished(new, {})
            self._note_paid(int(new["steps"]))
            keeper.publish()

    def _report(self, goal: TurnGoal, values: Mapping[str, float]) -> None:
        """Report a turn that is committed."""
        with self._ports.span("report"):
            sampled = goal.last * self._settings.keeper.sampled_rows()
            found = {"replay/ratio": sampled / max(1, int(self._keeper.committed["steps"]))}
            if self._settings.steps.learners > 1:
                found[SENT_BYTES] = float(self._steps.sent())
            self._keeper.report({**values, **found})

    def _learn_together(self, goal: TurnGoal, statistics: Arrays) -> Task:
        """Take the gradient steps up to a goal, with all learners. Returns false if the team has dissolved."""
        if self._settings.steps.learners > 1:
            # Learners that wait join now. Then they take part from the first goal on.
            self._steps.attend()
            values = turn_goal_values(goal, self._steps.meeting()) | statistics
            self._goals.publish(values, self._goals_shown.version() + 1)
        try:
            yield from self._steps.until(goal)
        except DissolvedError:
            return False
        return True

    def _go_back_and_join(self, statistics: Arrays) -> None:
        """Go back to the last commit and form the team again: the turn is learned again."""
        self._steps.give_up(self._keeper.committed)
        # Only now: no other learner takes a step of the turn that was given up.
        self._steps.take_back()
        if statistics:
            self._steps.updater.load(statistics)

    def _statistics(self, slots: Sequence[Arrays]) -> Arrays:
        """The running statistics of observations with the rows of these rollouts; empty if nothing is normalised.

        A turn's rows count before its gradient steps. Otherwise the first steps would see observations of any scale.
        """
        graph, committed = self._settings.keeper.spec.policy, self._keeper.committed
        found: Arrays = {part.name: committed[part.name] for part in graph.statistics()}
        for slot in slots:
            found |= obs_statistics(graph, found, slot)
        return found

    def _abandon(self) -> None:
        """Undo the turn's priorities, for a single learner in lock step. Other runs are not repeatable anyway."""
        if self._settings.order == "by_lane" and self._settings.steps.learners == 1:
            self._steps.take_back()

    def _note_paid(self, rows: int) -> None:
        """Note that all gradient steps of the first ``rows`` rows are done: of each shard its share.

        Call it after their commit: until then a life that takes over needs the slots. Publishing then rings the bells
        of the environment nodes.
        """
        self._ports.note("paid", self._settings.limiter.paid(rows, 0) // self._settings.steps.shards)

    def _goal(self, collected: int, taken: Array) -> tuple[TurnGoal, int]:
        """The goal of a turn with ``collected`` new rows, and the steps that are due and not taken in it.

        Without new rows the turn takes steps that were left, or some spare ones. Steps that are due wait until every
        shard has its part of ``min_rows``.
        """
        committed = self._keeper.committed
        before, done, owed = (int(committed[name]) for name in ("steps", "gradient_steps", "owed"))
        limiter = self._settings.limiter
        if rows_to_sample(self._table, taken) >= self._schedule.min_rows:
            owed += limiter.due(before + collected) - limiter.due(before)
        due = owed if self._enough(taken) else 0
        if collected == 0 and due == 0:
            due = min(SPARE_STEPS, self._spare())
        last = self._under_way() or done + due
        return TurnGoal(last, tuple(map(int, taken)), self._keeper.progress()), max(0, owed - (last - done))

    def _under_way(self) -> int:
        """The last gradient step of the turn that the other learners have begun; 0: they have begun none.

        Race: an earlier life has died in the middle of a turn. More rollouts have come since.

        1. This life joins. The other learners go on at once, to the goal of the earlier life.
        2. They end their turn with a round. If this life had a later goal, it would take this round for a gradient.

        Learners on several machines give the turn up instead, and wait for the first goal of this life.
        """
        if self._settings.steps.learners == 1 or self._settings.steps.spread:
            return 0
        shown: Array = np.zeros((), np.int64)
        self._goals_shown.read({"last": shown})
        return int(shown) if shown > self._steps.done else 0
