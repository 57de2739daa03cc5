"""Epochs: takes the gradient steps of one batch of a stream, alone or together with other learners.

Learner k of K owns a share of the batch's rollouts, and brings 1/K of each minibatch from them. It knows which rows
come in which minibatch. It commits nothing and takes no rollouts.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.algorithm import APPROX_KL, Schedule
from penstock.metrics.report import SENT_BYTES
from penstock.nodes.contract import STEP_LIMIT_S, Ports
from penstock.nodes.learner.batch import Minibatches, minibatches, valid_rows, whole_lanes
from penstock.nodes.learner.goals import BatchGoal
from penstock.nodes.learner.losses import refuse_bad_losses
from penstock.nodes.learner.penalty import adapt
from penstock.nodes.learner.work import Task
from penstock.nodes.ports import StreamReader
from penstock.registry import load
from penstock.types import Array
from penstock.updates.contract import Updater
from penstock.updates.settings import UpdaterSettings
from penstock.updates.team import DissolvedError, Members

__all__ = ["EpochSettings", "Epochs", "shares_of"]


@dataclass(frozen=True)
class EpochSettings:
    """How one learner takes the gradient steps of a batch."""

    build: str
    """``module:build`` of the updater; eager, compiled or fused."""
    updater: UpdaterSettings
    """Settings of the updater. This learner has a share of each minibatch, in ``accumulate`` parts. The schedule's
    ``mini_batch_size`` is that of one part."""
    schedule: Schedule
    """Of the algorithm: whole minibatches."""
    learners: int
    """Number of learners; ``updater.learner`` is the index of this one."""
    team: str | None
    """``module:build`` of the `Members`: ``(ports, updater settings, learners)``. ``None``: the learner is alone."""
    work_limit_s: float

    def make(self, ports: Ports, rollouts: StreamReader) -> "Epochs":
        """The epochs of the learner that takes these rollouts."""
        return Epochs(self, ports, rollouts)


class Epochs:
    """One learner's updater and its part in the epochs of each batch.

    Attributes:
        updater: holds the state.
        team: the other learners; ``None`` if there are none.
        metrics: means over the minibatches of each epoch of the last batch.
    """

    def __init__(self, settings: EpochSettings, ports: Ports, rollouts: StreamReader) -> None:
        updater = settings.updater
        self._settings = settings
        self._ports = ports
        self._rollouts = rollouts
        self._seconds_per_minibatch = 0.0
        self.metrics: list[dict[str, float]] = []
        self.team: Members | None = None
        with ports.busy("build the update", settings.work_limit_s):
            if settings.team is None:
                self.updater: Updater = load(settings.build)(updater, rollouts.arrays)
            else:
                self.team = load(settings.team)(ports, updater, settings.learners)
                self.updater = load(settings.build)(updater, rollouts.arrays, self.team)

    def learn(self, batch: BatchGoal, given_up: Callable[[], bool]) -> Task:
        """Targets, statistics, epochs of minibatches. All learners then have the same state, bit for bit.

        Args:
            batch: what to learn from. Its slots are not freed before the keeper has committed.
            given_up: true once this learner is to give up the batch. Its state counts for nothing then.

        Returns:
            False if the batch was given up, also because the team has dissolved.

        Raises:
            BadDataError: a loss is infinite or NaN.
        """
        try:
            done = yield from self._steps(batch, given_up)
        except DissolvedError:
            done = False
        if not done:
            # Forget the metrics of gradient steps that count for nothing.
            self.updater.metrics()
        return done

    def _steps(self, batch: BatchGoal, given_up: Callable[[], bool]) -> Task:
        settings, schedule = self._settings, self._settings.schedule
        with self._ports.span("targets"):
            self.updater.begin(batch.slots, batch.progress)
        with self._ports.span("statistics"):
            self.updater.merge(batch.slots)
        shares = shares_of(batch.slots, settings.learners, settings.updater.spec.unit, self._rollouts)
        mine, size = shares[settings.updater.learner], schedule.mini_batch_size // settings.learners
        count = max(-(-len(share) // size) for share in shares)
        self.metrics = []
        for epoch in range(schedule.epochs):
            with self._ports.span("permute"):
                key = (settings.updater.seed, batch.update, epoch)
                permuted = minibatches(mine, size, key, learner=settings.updater.learner, count=count)
            if not (yield from self._epoch(permuted, given_up)):
                return False
            self.metrics.append(self._agreed(self.updater.metrics(), len(mine)))
            refuse_bad_losses(self.metrics[-1], batch.update + 1, settings.updater.spec.policy)
            # A batch of reset rows alone has no divergence.
            if schedule.ends_epochs(self.metrics[-1].get(APPROX_KL, 0.0)):
                break
        self.updater.finish()
        adapt(self.updater, schedule, self.metrics[-1])
        if self.team is not None:
            # All have read the batch: the keeper may free its slots.
            self.team.settle(self.updater)
        # A replica must not look for a newer goal here. 1. All learners have come to the end. 2. The keeper goes on and
        # shows the next batch. 3. A replica that looked now would take that for a sign that this batch was given up.
        return True

    def sent(self) -> dict[str, float]:
        """Bytes that this learner has sent to others since the last call, by its name in a report; empty if alone."""
        return {} if self.team is None else {SENT_BYTES: float(self.team.sent())}

    def _epoch(self, epoch: Minibatches, given_up: Callable[[], bool]) -> Task:
        """Run the minibatches of one epoch, as many in one call as fit into ``STEP_LIMIT_S``."""
        done, count = 0, len(epoch.indices)
        while done < count:
            if given_up():
                return False
            # The first minibatch of a run is run alone, to measure it.
            fit = int(STEP_LIMIT_S / self._seconds_per_minibatch) if self._seconds_per_minibatch else 1
            part = slice(done, min(count, done + max(1, fit)))
            begun = time.monotonic()
            with self._ports.busy("minibatches", self._settings.work_limit_s):
                self.updater.minibatches(epoch.indices[part], epoch.weights[part])
            self._seconds_per_minibatch = (time.monotonic() - begun) / (part.stop - part.start)
            done = part.stop
            yield None
        return not given_up()

    def _agreed(self, metrics: dict[str, float], units: int) -> dict[str, float]:
        """The means of the metrics over all learners, each by its number of rows or lanes."""
        if self.team is None:
            return metrics
        found = self.team.mean({"metrics": np.array(list(metrics.values()), np.float32)}, float(units))
        return dict(zip(metrics, found["metrics"].tolist(), strict=True))


def shares_of(slots: Sequence[int], learners: int, unit: Literal["row", "lane"], rollouts: StreamReader) -> list[Array]:
    """What each learner owns of the rollouts in these slots: flat valid rows, or row 0 of whole lanes."""
    count, units = len(slots) // learners, valid_rows if unit == "row" else whole_lanes
    return [units(rollouts, slots[number * count :][:count]) for number in range(learners)]
