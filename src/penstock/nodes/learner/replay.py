"""ReplayLearnerNode: turns rows drawn from a table into new parameters.

It owns the schedule (how many gradient steps for what was collected) and knows nothing of the mathematics: that is the
algorithm's, run by an updater. Which rows a minibatch holds its sampler draws; what was learned its keeper commits.
"""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from penstock.algorithm import ReplaySchedule, UpdaterSettings
from penstock.errors import BadDataError, CheckpointError, PenstockError
from penstock.experiments.checkpoints import load_table
from penstock.node import Ports
from penstock.nodes.learner.intake import Intake
from penstock.nodes.learner.keeper import Keeper, KeeperSettings, Wake, Work
from penstock.nodes.learner.node import STEP_LIMIT_S, loss_values, refuse_bad_losses
from penstock.nodes.learner.record import account
from penstock.registry import load
from penstock.replay.contents import restore
from penstock.replay.priorities import tree_of
from penstock.replay.sampler import Sampler
from penstock.types import Array, Arrays, ReplayUpdater

__all__ = ["ReplayLearnerNode", "ReplayLearnerSettings"]


@dataclass(frozen=True)
class ReplayLearnerSettings:
    """What one ReplayLearnerNode learns."""

    keeper: KeeperSettings
    update: str
    """``module:build_replay`` of the updater: eager or compiled."""
    updater: UpdaterSettings
    order: Literal["by_lane", "by_arrival"]
    """``by_lane``: a turn begins with one rollout of every lane. ``by_arrival``: with whatever came first."""
    open_limit_s: float


class ReplayLearnerNode:
    """Learns from table ``rollouts`` and publishes on board ``policy``.

    It goes on in turns: it takes note of the rollouts that are new, takes as many gradient steps as they make due, then
    commits. In lock step every environment node waits for that commit, so each turn finds the same rows.
    """

    def __init__(self, settings: ReplayLearnerSettings) -> None:
        spec = settings.keeper.spec
        if not isinstance(spec.schedule, ReplaySchedule) or spec.table is None:
            raise PenstockError("a table is learned from by a replay schedule")
        self._schedule = spec.schedule
        self._table_spec = spec.table
        self._settings = settings
        self._work: Work | None = None
        self._wake: Wake | None = None

    def open(self, ports: Ports) -> None:
        """Build the updater, take the initial or the checkpoint's state, publish and commit it."""
        settings, spec = self._settings, self._settings.keeper.spec
        self._ports = ports
        self._table = ports.table("rollouts")
        self._keeper = Keeper(settings.keeper, ports)
        with ports.busy("build the update", settings.open_limit_s):
            self._updater: ReplayUpdater = load(settings.update)(settings.updater)
        lanes = settings.keeper.run.num_envs // self._table.writers
        fields = tuple(name for name, _ in settings.keeper.spaces.obs)
        ranks = ports.priorities("rollouts")
        self._tree = None if ranks is None else tree_of(self._table, ranks)
        self._sampler = Sampler(
            self._table,
            lanes,
            fields,
            n_step=self._table_spec.n_step,
            gamma=self._table_spec.gamma,
            stack={},
            tree=self._tree,
        )
        size = self._schedule.mini_batch_size
        self._minibatch: Arrays = {
            part.name: np.zeros((size, *part.shape), part.dtype) for part in spec.drawn(settings.keeper.spaces)
        }
        self._places: Arrays = {name: np.zeros(size, np.int64) for name in ("index", "stamp")}
        self._intake = Intake(self._table, settings.order)
        self._start()
        self._work = self._learn()

    def _start(self) -> None:
        """Go on behind what an earlier life committed, or begin."""
        committed, checkpoint = self._keeper.former(), self._settings.keeper.checkpoint
        if committed is None:
            self._updater.load(self._keeper.begin(taken=0 if checkpoint is None else self._refill(checkpoint)))
        else:
            self._updater.load({part.name: committed[part.name] for part in self._settings.keeper.spec.state})
            self._keeper.take_over(committed)

    def _refill(self, checkpoint: Path) -> int:
        """Put back what the table held, where that was kept; how many slots each writer then has."""
        with self._ports.busy("refill the table", self._settings.open_limit_s):
            held = load_table(checkpoint)
            if held is None:
                return 0
            try:
                count = restore(self._table, held, self._tree)
            except ValueError as error:
                raise CheckpointError(f"the table of checkpoint {checkpoint} does not fit this run: {error}") from None
        return count

    def ready(self) -> bool:
        """True while a turn is under way, or once what the learner waits for is there."""
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
        """The whole life of a learner; yields at least every ``STEP_LIMIT_S``, and while it waits."""
        keeper, ports = self._keeper, self._ports
        if ports.former:
            yield from keeper.again_behind_commit()
        while not keeper.done() and not ports.stopping():
            if self._new() == 0:
                yield lambda: self._new() > 0 or ports.stopping()
                continue
            with ports.span("turn"):
                yield from self._turn_or_keep()
            if not ports.stopping():
                yield from keeper.behind_commit()
        yield from keeper.checkpoint()

    def _new(self) -> int:
        return self._intake.waiting(self._keeper.committed["taken"])

    def _turn_or_keep(self) -> Work:
        """A turn; where it breaks the numbers, see that what was committed before is on the disk, then fail."""
        try:
            yield from self._turn()
        except BadDataError:
            yield from self._keeper.checkpoint()
            yield from self._keeper.written_down()
            raise

    def _turn(self) -> Work:
        """Take note of new rollouts, take the gradient steps that they make due, commit, publish, report.

        A run that is asked to stop abandons the turn: the last commit stays what it was.
        """
        keeper, run = self._keeper, self._settings.keeper.run
        committed = keeper.committed
        taken = committed["taken"].copy()
        slots = self._intake.take(taken)
        collected = int(sum(slot["valid"][:-1].sum() for slot in slots))
        lag = float(np.mean([int(committed["update"]) - slot["policy_version"][0, 0] for slot in slots]))
        first, last = self._due(int(committed["steps"])), self._due(int(committed["steps"]) + collected)
        if self._held(taken) < self._schedule.min_rows:
            last = first
        progress = min(1.0, float(committed["steps"]) / run.timesteps)
        yield from self._gradient_steps(first, last, taken.tolist(), progress)
        if self._ports.stopping():
            return
        if self._settings.order == "by_lane":
            # Until the checkpoint before is written: the next commit lets the table's oldest rows be overwritten.
            yield from keeper.written_down()
        metrics = self._updater.metrics()
        refuse_bad_losses(metrics, int(committed["update"]) + 1)
        with self._ports.span("commit"):
            new = keeper.next()
            account(new, committed, slots)
            new["taken"][...] = taken
            keeper.commit(new, self._updater.state())
        with self._ports.span("report"):
            ratio = {"replay/ratio": last * self._schedule.mini_batch_size / max(1, int(new["steps"]))}
            keeper.report(loss_values(metrics) | {"policy/lag": lag} | ratio)

    def _rank(self, per_row: Arrays) -> None:
        """Rows that were just learned from are ranked anew, where they still lie where they were drawn."""
        ranking = self._table_spec.priorities
        if self._tree is not None and ranking is not None:
            priority = np.power(per_row["priority"].astype(np.float64), ranking.alpha)
            self._tree.update(self._places["index"], self._places["stamp"], priority)

    def _due(self, rows: int) -> int:
        """Gradient steps that so many collected rows make due."""
        return max(0, math.floor((rows - self._schedule.min_rows) * self._schedule.updates_per_step))

    def _held(self, taken: Array) -> int:
        """How many rows there are to draw from: fewer than were collected, if a resume found no table."""
        slots = int(np.minimum(taken, self._table.slots - 1).sum())
        rows, lanes = map(int, self._table.arrays["valid"].shape[1:])
        return slots * (rows - 1) * lanes

    def _gradient_steps(self, first: int, last: int, taken: list[int], progress: float) -> Work:
        """Gradient steps number ``first .. last - 1``, on rows of slots below ``taken``."""
        ranking = self._table_spec.priorities
        beta = 0.0 if ranking is None else ranking.beta + progress * (1.0 - ranking.beta)
        seed, deadline = self._settings.keeper.run.seed, time.monotonic() + STEP_LIMIT_S
        for number in range(first, last):
            if self._ports.stopping():
                return
            self._sampler.sample((seed, number), self._minibatch | self._places, taken, beta)
            with self._ports.busy("gradient step", self._settings.open_limit_s):
                per_row = self._updater.learn(self._minibatch, progress)
            self._rank(per_row)
            self._ports.count("drawn", self._schedule.mini_batch_size)
            if time.monotonic() > deadline:
                yield None
                deadline = time.monotonic() + STEP_LIMIT_S
