"""Epochs with handed-on gradients: takes the gradient steps of a batch with gradients that followers compute.

1. Each version of board ``parameters`` asks every `BatchFollowerNode` for one gradient on its share of a minibatch.
2. The weighted mean of these gradients makes one gradient step. The result is the next version.
3. If a follower dies, this waits for its next life, which computes the missing gradient.

Commits nothing and takes no rollouts.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from penstock.algorithm import APPROX_KL, Schedule
from penstock.metrics.report import SENT_BYTES
from penstock.nodes.contract import Ports
from penstock.nodes.learner.epochs import shares_of
from penstock.nodes.learner.goals import BatchGoal
from penstock.nodes.learner.gradient_slot import BEFORE, before_specs, gradients_in, step_metrics_in
from penstock.nodes.learner.losses import refuse_bad_losses
from penstock.nodes.learner.passes import Passes
from penstock.nodes.learner.penalty import adapt
from penstock.nodes.learner.work import Task
from penstock.nodes.ports import StreamReader
from penstock.registry import compression_of, load
from penstock.types import Array, Arrays
from penstock.updates.contract import StreamApplier
from penstock.updates.settings import UpdaterSettings

__all__ = ["NOTHING_WANTED", "HandedOnEpochSettings", "HandedOnEpochs"]

NOTHING_WANTED = -1
"""``done`` of a version that ends a batch: its gradients are not used."""


@dataclass(frozen=True)
class HandedOnEpochSettings:
    """How the gradient steps of a batch are taken."""

    build: str
    """``module:build_stream_applier`` of the applier."""
    updater: UpdaterSettings
    schedule: Schedule
    """Of the algorithm: whole minibatches."""
    learners: int
    """Number of followers, which share each minibatch."""
    work_limit_s: float

    def make(self, ports: Ports, rollouts: StreamReader) -> "HandedOnEpochs":
        """The epochs of the learner that takes these rollouts."""
        return HandedOnEpochs(self, ports, rollouts)


class HandedOnEpochs:
    """Publishes parameters, and steps them by the gradients that come back.

    Attributes:
        updater: holds the state.
        team: ``None``: nobody shares this node's state.
        metrics: means over the minibatches of each epoch of the last batch.
    """

    team = None

    def __init__(self, settings: HandedOnEpochSettings, ports: Ports, rollouts: StreamReader) -> None:
        self._settings = settings
        self._ports = ports
        self._rollouts = rollouts
        self._gradients = ports.stream_reader("gradients")
        self._parameters = ports.board_writer("parameters")
        # The versions of an earlier life are not used again: gradients on them may still come.
        self._version = ports.board_reader("parameters").version()
        self._shared = settings.updater.spec.shared()
        self._compression = compression_of(settings.updater.compress)
        self._settled = np.zeros(settings.learners, np.int64)
        self._found: dict[int, int] = {}
        """Learner -> slot with its gradient on the latest version."""
        self._sent = 0
        self._before: Arrays = {}
        """The target networks as they were when the batch began."""
        self.metrics: list[dict[str, float]] = []
        with ports.busy("build the update", settings.work_limit_s):
            self.updater: StreamApplier = load(settings.build)(settings.updater, rollouts.arrays)

    def learn(self, batch: BatchGoal, given_up: Callable[[], bool]) -> Task:
        """Statistics, then epochs of minibatches. As `penstock.nodes.learner.epochs.Epochs.learn`."""
        settings, schedule = self._settings, self._settings.schedule
        passes = Passes(
            shares_of(batch.slots, settings.learners, settings.updater.spec.unit, self._rollouts),
            range(settings.learners),
            schedule,
            (settings.updater.seed, batch.update),
        )
        self.metrics = []
        steps: list[dict[str, float]] = []
        begun = self._version + 1
        with self._ports.span("statistics"):
            self.updater.merge(batch.slots)
        state = self.updater.state()
        names = [part.name for part in before_specs(self._shared)]
        self._before = {name: state[name.removeprefix(BEFORE)].copy() for name in names}
        for number in range(passes.total):
            self._publish(batch, number, begun)
            if not (yield from self._collected(given_up)):
                return False
            steps.append(self._step(batch))
            yield None
            if not passes.ends_epoch(number):
                continue
            self.metrics.append({name: float(np.mean([step[name] for step in steps])) for name in steps[0]})
            steps = []
            # A user's algorithm may have no divergence.
            if schedule.ends_epochs(self.metrics[-1].get(APPROX_KL, 0.0)):
                break
        self.updater.finish()
        if self.metrics:
            adapt(self.updater, schedule, self.metrics[-1])
        # Before any slot of the batch is freed, so that no follower begins to read it any more.
        self._publish(batch, NOTHING_WANTED, begun)
        return True

    def sent(self) -> dict[str, float]:
        """Bytes of gradients that all followers have sent since the last call, by its name in a report."""
        sent, self._sent = self._sent, 0
        return {SENT_BYTES: float(sent)}

    def _publish(self, batch: BatchGoal, done: int, begun: int) -> None:
        """Ask each follower for a gradient on the next version."""
        self._version += 1
        told: Arrays = {
            "settled": self._settled,
            "slots": np.array(batch.slots, np.int64),
            **{name: np.array(value) for name, value in (("update", batch.update), ("done", done), ("begun", begun))},
        }
        with self._ports.span("publish"):
            self._parameters.publish({**self.updater.state(), **self._before, **told}, self._version)

    def _collected(self, given_up: Callable[[], bool]) -> Task:
        """Take one gradient of each follower on the latest version."""
        while len(self._found) < self._settings.learners:
            index = self._gradients.take()
            if index is None:
                yield lambda: self._gradients.ready() > 0 or given_up()
                if given_up():
                    return False
                continue
            slot = self._gradients.slot(index)
            learner = int(slot["learner"])
            self._settled[learner] = slot["step"]
            # Release it if it is of an earlier version, or if a follower's next life has found it a second time.
            if int(slot["version"]) != self._version or learner in self._found:
                self._gradients.release(index)
            else:
                self._found[learner] = index
        return True

    def _step(self, batch: BatchGoal) -> dict[str, float]:
        """Take a gradient step down the mean of the gradients that were collected. Returns the mean of their metrics.

        Raises:
            BadDataError: a loss is infinite or NaN.
        """
        # In the order of the learners, so that the same gradients make the same bits.
        slots = [self._gradients.slot(self._found[learner]) for learner in sorted(self._found)]
        weights = [float(slot["weight"]) for slot in slots]
        total = sum(weights) or 1.0
        mean: dict[str, Arrays] = {}
        metrics: dict[str, float] = {}
        for slot, weight in zip(slots, weights, strict=True):
            share = weight / total
            for phase, gradients in gradients_in(slot, self._shared, self._compression).items():
                _add(mean.setdefault(phase, {}), gradients, share)
            for name, value in step_metrics_in(slot).items():
                # A share without rows has no metrics that mean anything.
                metrics[name] = metrics.get(name, 0.0) + (share * value if share else 0.0)
        self._sent += sum(int(slot["sent"]) for slot in slots)
        refuse_bad_losses(metrics, batch.update + 1, self._settings.updater.spec.policy)
        with self._ports.busy("gradient step", self._settings.work_limit_s):
            self.updater.apply(mean, batch.progress)
        for index in self._found.values():
            self._gradients.release(index)
        self._found.clear()
        return metrics


def _add(mean: Arrays, gradients: Arrays, share: float) -> None:
    """Add a share of these gradients to their mean."""
    for name, values in gradients.items():
        part: Array = np.float32(share) * values
        # numpy makes a number of the sum of arrays without dimensions.
        mean[name] = np.asarray(mean[name] + part if name in mean else part)
