"""The update as plain torch calls: starts at once, needs no compiler. Knows no algorithm beyond its phases."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from penstock.algorithm import Algorithm, Phase, UpdaterSettings
from penstock.ops.batch import Batch
from penstock.ops.inbox import Inbox
from penstock.ops.meter import Meter
from penstock.ops.phases import PhaseClock
from penstock.registry import load
from penstock.types import Array, Arrays
from penstock.updater import Exchange

__all__ = ["EagerReplayUpdater", "EagerUpdater", "build", "build_replay"]


def build(settings: UpdaterSettings, arrays: Mapping[str, Array]) -> "EagerUpdater":
    """The updater of a learner from a stream, whose rows are ``arrays``: field -> ``[slots, T + 1, lanes, ...]``."""
    torch.set_num_threads(settings.threads)
    return EagerUpdater(load(settings.learn)(settings.spaces, settings.config), settings, arrays)


def build_replay(settings: UpdaterSettings, exchange: Exchange | None = None) -> "EagerReplayUpdater":
    """The updater of a learner from a table; ``exchange`` is how it agrees with others, if there are any."""
    torch.set_num_threads(settings.threads)
    return EagerReplayUpdater(load(settings.learn)(settings.spaces, settings.config), settings, exchange)


class EagerUpdater:
    """Runs an algorithm's phases over the rows of a stream, one torch call at a time."""

    def __init__(self, algorithm: Algorithm, settings: UpdaterSettings, arrays: Mapping[str, Array]) -> None:
        spec, device = settings.spec, torch.device(settings.device)
        self._algorithm = algorithm
        self._batch = Batch(arrays, spec.minibatch, spec.targets, device, staged=device.type != "cpu")
        self._stepper = _Stepper(algorithm.phases, settings, None)
        self._rows = self._batch.buffers(spec.schedule.mini_batch_size)

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or the arrays of it that are named."""
        self._stepper.load(state)

    def state(self) -> Arrays:
        """The state's named arrays on the CPU."""
        return self._stepper.arrays()

    def begin(self, slots: Sequence[int], progress: float) -> None:
        """Compute the targets of the rollouts in ``slots``."""
        self.load({"progress": np.asarray(progress, np.float64)})
        state = self.state()
        self._batch.prepare(slots, lambda rollout: self._algorithm.targets(state, rollout))

    def minibatches(self, indices: Array, weights: Array) -> None:
        """Run one update for each row of ``indices``."""
        names = list(self._rows)
        room = len(self._rows["weight"])
        for start in range(0, len(indices), room):
            part = slice(start, start + room)
            self._batch.gather(indices[part], weights[part], self._rows)
            columns = [values[: len(indices[part])].unbind() for values in self._rows.values()]
            for values, weight in zip(zip(*columns, strict=True), weights[part].sum(1).tolist(), strict=True):
                self._stepper.step([dict(zip(names, values, strict=True))], [weight])

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call."""
        return self._stepper.meter.take()

    def finish(self, slots: Sequence[int]) -> None:
        """Merge the running statistics of the rollouts in ``slots``, in that order."""
        for slot in slots:
            self.load(self._algorithm.statistics(self.state(), self._batch.rollout(slot)))


class EagerReplayUpdater:
    """Runs an algorithm's phases over minibatches that were drawn from a table, one torch call at a time."""

    def __init__(self, algorithm: Algorithm, settings: UpdaterSettings, exchange: Exchange | None) -> None:
        self._stepper = _Stepper(algorithm.phases, settings, exchange)
        self._inbox = Inbox(
            settings.spec.drawn(settings.spaces),
            settings.spec.schedule.mini_batch_size,
            settings.accumulate,
            torch.device(settings.device),
        )

    @property
    def gradient_steps(self) -> int:
        """How many the state has seen."""
        return self._stepper.count

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or the arrays of it that are named."""
        self._stepper.load(state)

    def state(self) -> Arrays:
        """The state's named arrays on the CPU."""
        return self._stepper.arrays()

    def room(self) -> Arrays:
        """Arrays for a minibatch, in pinned memory where a GPU learns from it."""
        return self._inbox.room()

    def learn(self, minibatch: Mapping[str, Array], progress: float) -> Arrays:
        """One gradient step: every phase that is due. As `penstock.updater.ReplayUpdater.learn`."""
        self.load({"progress": np.asarray(progress, np.float64)})
        parts = self._inbox.take(minibatch)
        weights = minibatch["weight"].reshape(len(parts), -1).sum(1).tolist()
        return {name: values.cpu().numpy() for name, values in self._stepper.step(parts, weights).items()}

    def apply(self, gradients: Mapping[str, Mapping[str, Array]], progress: float) -> None:
        """One gradient step by gradients that another updater has found. As `penstock.updater.ReplayUpdater.apply`."""
        self.load({"progress": np.asarray(progress, np.float64)})
        self._stepper.apply(gradients)

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call."""
        return self._stepper.meter.take()


class _Stepper:
    """A state, and the phases that step it.

    Args:
        phases: of the algorithm.
        settings: of the updater.
        exchange: how several learners agree; ``None``: this one is alone.
    """

    def __init__(self, phases: Sequence[Phase], settings: UpdaterSettings, exchange: Exchange | None) -> None:
        self.meter = Meter()
        self._phases = phases
        self._settings = settings
        self._exchange = exchange
        self._learner = settings.learner
        self._device = torch.device(settings.device)
        self._state = {
            part.name: torch.from_numpy(np.zeros(part.shape, part.dtype)).to(self._device)
            for part in settings.spec.state
        }
        self._clock = PhaseClock(
            [phase.every for phase in phases],
            [phase.noise for phase in phases],
            settings.seed,
            counted="gradient_steps" in self._state,
        )

    @property
    def count(self) -> int:
        """Gradient steps so far."""
        return self._clock.count

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or the arrays of it that are named."""
        for name, values in state.items():
            self._state[name] = torch.tensor(values, device=self._device)
        if "gradient_steps" in state:
            self._clock.count = int(state["gradient_steps"])

    def arrays(self) -> Arrays:
        """The state's named arrays on the CPU."""
        return {name: values.cpu().numpy() for name, values in self._state.items()}

    def step(self, parts: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> dict[str, Tensor]:
        """One gradient step: each phase that is due, over all parts of a minibatch; what it finds for each row.

        Args:
            parts: field -> ``[m, ...]`` each.
            weights: the sum of each part's ``weight``.
        """
        metrics: dict[str, Tensor] = {}
        per_row: dict[str, Tensor] = {}
        for index in self._clock.due():
            phase = self._phases[index]
            noise = self._noise(index, len(parts), len(parts[0]["weight"]))
            found = [phase.gradients(self._state, *inputs) for inputs in zip(parts, noise, strict=True)]
            gradients = _mean([part.gradients for part in found], weights)
            if self._exchange is not None and gradients:
                arrays = {name: values.cpu().numpy() for name, values in gradients.items()}
                agreed = self._exchange(phase.name, arrays, sum(weights))
                gradients = {name: torch.tensor(values, device=self._device) for name, values in agreed.items()}
            self._state.update(phase.apply(self._state, gradients))
            metrics.update(_mean([part.metrics for part in found], weights))
            per_row.update({name: torch.cat([part.per_row[name] for part in found]) for name in found[0].per_row})
        self._count_on()
        if metrics:
            self.meter.add(metrics)
        return per_row

    def apply(self, gradients: Mapping[str, Mapping[str, Array]]) -> None:
        """One gradient step: phases with gradients step down these, those that never have any have their turn."""
        due = self._clock.due()
        for index, phase in enumerate(self._phases):
            if phase.name in gradients or (index in due and self._silent(index)):
                given = gradients.get(phase.name, {})
                here = {name: torch.tensor(values, device=self._device) for name, values in given.items()}
                self._state.update(phase.apply(self._state, here))
        self._count_on()

    def _silent(self, index: int) -> bool:
        """True for a phase without gradients, which asking it for a row shows."""
        phase, settings = self._phases[index], self._settings
        row = {part.name: np.zeros((1, *part.shape), part.dtype) for part in settings.spec.drawn(settings.spaces)}
        minibatch = {name: torch.from_numpy(values).to(self._device) for name, values in row.items()}
        return not phase.gradients(self._state, minibatch, *self._noise(index, 1, 1)).gradients

    def _count_on(self) -> None:
        self._clock.count += 1
        if "gradient_steps" in self._state:
            self._state["gradient_steps"] = torch.tensor(self._clock.count, device=self._device)

    def _noise(self, phase: int, parts: int, size: int) -> list[dict[str, Tensor]]:
        """The noise of a phase for each part; the learners' rows are numbered one learner after the other."""
        rows = parts * size
        here = {
            name: torch.from_numpy(values).to(self._device).reshape(parts, size, *values.shape[1:])
            for name, values in self._clock.noise(phase, self._learner * rows, rows).items()
        }
        return [{name: values[part] for name, values in here.items()} for part in range(parts)]


def _mean(found: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> Mapping[str, Tensor]:
    """The weighted mean of each named tensor."""
    if len(found) == 1:
        return found[0]
    total = sum(weights)
    return {
        name: torch.stack([weight / total * part[name] for part, weight in zip(found, weights, strict=True)]).sum(0)
        for name in found[0]
    }
