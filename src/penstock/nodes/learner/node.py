"""LearnerNode: turns rollouts of a stream into new parameters.

It owns the schedule: which rows, in which minibatches, for how many epochs. The mathematics is the algorithm's, run by
an updater. A keeper commits and publishes the result.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.algorithm import Schedule, UpdaterSettings
from penstock.errors import BadDataError, PenstockError
from penstock.nodes.contract import Ports
from penstock.nodes.learner.batch import Assembly, Minibatches, minibatches, valid_rows, whole_lanes
from penstock.nodes.learner.keeper import NOTHING_KEPT, Keeper, KeeperSettings
from penstock.nodes.learner.record import drop, follow
from penstock.nodes.learner.work import STEP_LIMIT_S, Work, WorkingNode
from penstock.registry import load
from penstock.updates.contract import Updater

__all__ = ["LearnerNode", "LearnerSettings", "loss_values", "refuse_bad_losses"]


@dataclass(frozen=True)
class LearnerSettings:
    """What one LearnerNode learns."""

    keeper: KeeperSettings
    update: str
    """``module:build`` of the updater; eager, compiled or fused."""
    updater: UpdaterSettings
    """Settings of the updater. Its schedule's ``mini_batch_size`` counts one of ``accumulate`` parts."""
    rollouts_per_batch: int
    assemble: Literal["by_lane", "by_arrival"]
    """``by_lane``: one rollout of every lane, all of the published version. ``by_arrival``: whatever came first."""
    open_limit_s: float


class LearnerNode(WorkingNode):
    """Learns from stream ``rollouts`` and publishes on board ``policy``."""

    def __init__(self, settings: LearnerSettings) -> None:
        if not isinstance(settings.keeper.spec.schedule, Schedule):
            raise PenstockError("a stream of rollouts is learned from in epochs")
        self._schedule = settings.keeper.spec.schedule
        self._settings = settings
        self._units = valid_rows if settings.keeper.spec.unit == "row" else whole_lanes
        self._seconds_per_minibatch = 0.0

    def _begin(self, ports: Ports) -> Work:
        """Build the updater; take the initial or the checkpoint's state, commit and publish it."""
        settings = self._settings
        kept = settings.keeper
        self._rollouts = ports.stream_reader("rollouts")
        self._keeper = Keeper(kept, ports)
        with ports.busy("build the update", settings.open_limit_s):
            self._updater: Updater = load(settings.update)(settings.updater, self._rollouts.arrays)
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
        self._updater.load({spec.name: committed[spec.name] for spec in self._settings.keeper.spec.state})
        used = committed["consumed_sequence"][committed["consumed_slot"] >= 0]
        self._rollouts.release_consumed(used.tolist())
        self._keeper.take_over(committed)

    def _learn(self) -> Work:
        """The whole life of the learner. Yields at least every ``STEP_LIMIT_S``, and while it waits."""
        keeper, ports = self._keeper, self._ports
        if ports.former:
            yield from keeper.again_behind_commit()
        while not keeper.done():
            slots = self._assembly.gather(int(keeper.committed["update"]))
            if slots is not None:
                with ports.span("update"):
                    yield from keeper.or_keep(self._update(slots))
            if ports.stopping():
                break
            if slots is None:
                yield lambda: self._rollouts.ready() > 0 or ports.stopping()
                continue
            yield from keeper.behind_commit()
        yield from keeper.checkpoint()

    def _update(self, slots: Sequence[int]) -> Work:
        """One batch: targets, epochs of minibatches, statistics; then commit, publish, free, report.

        If the run is to stop, the batch is abandoned and the last commit stands.
        """
        keeper, schedule, run = self._keeper, self._schedule, self._settings.keeper.run
        committed = keeper.committed
        update = int(committed["update"])
        lags = [self._assembly.lag(slot, update) for slot in slots]
        with self._ports.span("targets"):
            self._updater.begin(slots, min(1.0, float(committed["steps"]) / run.timesteps))
        units = self._units(self._rollouts, slots)
        metrics: list[dict[str, float]] = []
        for epoch in range(schedule.epochs):
            with self._ports.span("permute"):
                permuted = minibatches(units, schedule.mini_batch_size, (run.seed, update, epoch))
            yield from self._epoch(permuted)
            if self._ports.stopping():
                return
            metrics.append(self._updater.metrics())
            refuse_bad_losses(metrics[-1], update + 1)
            # `not <=`, because a divergence of NaN is to end the update too.
            if schedule.target_kl is not None and not metrics[-1]["approx_kl"] <= schedule.target_kl:
                break
        with self._ports.span("statistics"):
            self._updater.finish(slots)
        with self._ports.span("commit"):
            new = keeper.next()
            follow(new, committed, self._rollouts, slots)
            keeper.commit(new, self._updater.state())
        for slot in slots:
            self._rollouts.release(slot)
        with self._ports.span("report"):
            means = {name: float(np.mean([epoch[name] for epoch in metrics])) for name in metrics[0]}
            keeper.report(loss_values(means) | {"policy/lag": float(np.mean(lags))})

    def _drop(self, index: int) -> None:
        """Drop a rollout that is too old, and commit that: after a death it is either still waiting or counted."""
        new = self._keeper.next()
        drop(new, self._keeper.committed, self._rollouts, index)
        self._keeper.enter(new)
        self._rollouts.release(index)

    def _epoch(self, epoch: Minibatches) -> Work:
        """Run the minibatches of one epoch, as many in one call as fit into ``STEP_LIMIT_S``."""
        done, count = 0, len(epoch.indices)
        while done < count and not self._ports.stopping():
            # The first minibatch of a run is run alone, to measure it.
            fit = int(STEP_LIMIT_S / self._seconds_per_minibatch) if self._seconds_per_minibatch else 1
            part = slice(done, min(count, done + max(1, fit)))
            begun = time.monotonic()
            with self._ports.busy("minibatches", self._settings.open_limit_s):
                self._updater.minibatches(epoch.indices[part], epoch.weights[part])
            self._seconds_per_minibatch = (time.monotonic() - begun) / (part.stop - part.start)
            done = part.stop
            yield None


def loss_values(means: Mapping[str, float]) -> dict[str, float]:
    """The metrics of an update, by their names in a report."""
    return {f"loss/{name.removesuffix('_loss')}": mean for name, mean in means.items()}


def refuse_bad_losses(metrics: Mapping[str, float], update: int) -> None:
    """Check that all losses and the norm of the gradient are finite.

    Raises:
        BadDataError: one is infinite or NaN.
    """
    for name, value in metrics.items():
        if (name.endswith("_loss") or name == "grad_norm") and not np.isfinite(value):
            raise BadDataError(f"update {update}: {name} is {value}; {NOTHING_KEPT}")
