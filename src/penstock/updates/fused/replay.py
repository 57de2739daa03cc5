"""Learning from a table: many gradient steps with their sampling in one call; or one at a time, with other learners.

Knows no algorithm beyond its fused functions.
"""

import time
from collections.abc import Mapping, Sequence

import numpy as np

from penstock.algorithm import FusedReplay, FusedReplayUpdate
from penstock.algorithm_lookup import load_functions
from penstock.kernels.pace import Pace
from penstock.kernels.steps import StepKeys
from penstock.replay.minibatches import TableMinibatches
from penstock.replay.sampler import Sampler
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, Arrays
from penstock.updates.settings import UpdaterSettings
from penstock.updates.team import Exchange, HandOn

__all__ = ["FusedApplier", "FusedFollower", "FusedLearner", "build_applier", "build_follower", "build_replay"]

CALL_S = 0.05
"""About how long a call with many gradient steps takes, so that a learner soon notices that a run is to stop."""


def build_replay(settings: UpdaterSettings, exchange: Exchange | None = None) -> "FusedLearner":
    """The updater of a learner from a table; ``exchange`` is how it agrees with other learners, if there are any."""
    return FusedLearner(settings, exchange)


def build_follower(settings: UpdaterSettings, hand_on: HandOn) -> "FusedFollower":
    """The updater of a learner that hands its gradients on."""
    return FusedFollower(settings, hand_on)


def build_applier(settings: UpdaterSettings) -> "FusedApplier":
    """The applier of gradients that other learners have computed."""
    return FusedApplier(settings)


class _Held:
    """An updater whose state is held by a native update."""

    def __init__(self, settings: UpdaterSettings) -> None:
        fused: FusedReplay = load_functions(settings.learn)(settings.spaces, settings.config)
        spec = settings.spec
        rows = settings.accumulate * spec.schedule.mini_batch_size
        self._kernel: FusedReplayUpdate = fused.update(settings.seed, settings.learner * rows)
        self._state = {part.name: np.zeros(part.shape, part.dtype) for part in spec.state}
        self._kept_here = ("progress", *(part.name for part in spec.policy.statistics()))
        """Arrays of the state that the native update does not give back."""
        self._threads = settings.threads
        self._rows = rows
        self._sampled = spec.sampled(settings.spaces)

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or some of its arrays."""
        self._kernel.load(state)
        for name in self._kept_here:
            if name in state:
                self._state[name][...] = state[name]

    def state(self) -> Arrays:
        """The state's named arrays; valid until the next call."""
        self._kernel.store(self._state)
        return self._state

    def write_state(self, into: Arrays) -> None:
        """Write the state's arrays. As `penstock.updates.contract.ReplayUpdater.write_state`."""
        self._kernel.store({name: into[name] for name in self._state})
        for name in self._kept_here:
            into[name][...] = self._state[name]

    def _due(self) -> list[int]:
        """The phases of the next gradient step."""
        return [at for at, phase in enumerate(self._kernel.phases) if self._kernel.gradient_steps % phase.every == 0]


class _TableUpdater(_Held):
    """An updater that learns from minibatches of a table."""

    def __init__(self, settings: UpdaterSettings) -> None:
        super().__init__(settings)
        self._minibatch = self._new()
        prioritised = "importance" in self._minibatch
        self._priority = np.zeros(self._rows, np.float32) if prioritised else None
        self._given = False
        self._kernel.bind(self._minibatch, self._priority)

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of the state."""
        return self._kernel.gradient_steps

    def buffers(self) -> Arrays:
        """New arrays for a minibatch; the first ones are read in place."""
        if not self._given:
            self._given = True
            return self._minibatch
        return self._new()

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call."""
        return self._kernel.metrics()

    def _new(self) -> Arrays:
        return {part.name: np.zeros((self._rows, *part.shape), part.dtype) for part in self._sampled}

    def _take(self, minibatch: Mapping[str, Array], progress: float) -> float:
        """Copy the minibatch to where the native update reads it. Returns the sum of its weights."""
        self._state["progress"][...] = progress
        for name, values in self._minibatch.items():
            if minibatch[name] is not values:
                values[...] = minibatch[name]
        return float(self._minibatch["weight"].sum())

    def _per_row(self) -> Arrays:
        return {} if self._priority is None else {"priority": self._priority}


class FusedLearner(_TableUpdater):
    """Computes gradients and applies them.

    Args:
        settings: of the updater.
        exchange: how it agrees with other learners, if there are any.
    """

    def __init__(self, settings: UpdaterSettings, exchange: Exchange | None) -> None:
        super().__init__(settings)
        self._exchange = exchange
        self._pace = Pace(self._threads)
        self._work = self._rows * sum(
            part.size
            for part in settings.spec.state
            if part.name in settings.spec.optimizer and part.dtype == "float32"
        )
        self._minibatches: TableMinibatches | None = None
        self._step_s = CALL_S

    def learn(self, minibatch: Mapping[str, Array], progress: float) -> Arrays:
        """Take one gradient step: every phase that is due. As `penstock.updates.contract.ReplayUpdater.learn`."""
        weight = self._take(minibatch, progress)
        kernel, threads = self._kernel, self._pace.threads(self._work)
        begun = time.perf_counter()
        if self._exchange is None:
            kernel.step(progress, threads)
        else:
            for at in self._due():
                found = kernel.gradients(at, threads)
                agreed = self._exchange(kernel.phases[at].name, found, weight) if found else found
                kernel.apply(at, agreed, progress, threads)
            kernel.gradient_steps += 1
        self._pace.took(threads, self._work, time.perf_counter() - begun)
        return self._per_row()

    def sample_from(self, sampler: Sampler, places: Arrays, tree: SumTree | None, alpha: float) -> TableMinibatches:
        """Sample by this sampler in `learn_many`. As `penstock.updates.contract.SamplingUpdater.sample_from`."""
        self._minibatches = TableMinibatches(sampler, {**self._minibatch, **places}, tree, alpha)
        return self._minibatches

    def learn_many(self, keys: StepKeys, most: int, progress: float) -> int:
        """Sample and take gradient steps. As `penstock.updates.contract.SamplingUpdater.learn_many`."""
        steps = max(1, min(most, int(CALL_S / self._step_s)))
        work = steps * self._work
        threads = self._pace.threads(work)
        begun = time.perf_counter()
        self.take_steps(keys, steps, progress, threads)
        seconds = time.perf_counter() - begun
        self._pace.took(threads, work, seconds)
        self._step_s = seconds / steps
        return steps

    def take_steps(self, keys: StepKeys, steps: int, progress: float, threads: int) -> None:
        """Sample and take ``steps`` gradient steps on ``threads`` threads."""
        if self._minibatches is None:
            raise TypeError("sample_from was not called")
        self._state["progress"][...] = progress
        self._kernel.run(self._minibatches, keys, steps, progress, threads)


class FusedFollower(_TableUpdater):
    """Computes gradients and hands them on. Applies none.

    Args:
        settings: of the updater.
        hand_on: takes the gradients of a phase.
    """

    def __init__(self, settings: UpdaterSettings, hand_on: HandOn) -> None:
        super().__init__(settings)
        self._hand_on = hand_on

    def learn(self, minibatch: Mapping[str, Array], progress: float) -> Arrays:
        """Hand on the gradients of every phase that is due. As `penstock.updates.contract.ReplayUpdater.learn`."""
        weight = self._take(minibatch, progress)
        for at in self._due():
            phase = self._kernel.phases[at]
            if phase.learned:
                self._hand_on(phase.name, self._kernel.gradients(at, self._threads), weight)
        self._kernel.gradient_steps += 1
        return self._per_row()


class FusedApplier(_Held):
    """Applies gradients that other learners have computed."""

    def apply(self, gradients: Mapping[str, Mapping[str, Array]], progress: float) -> None:
        """Take one gradient step. As `penstock.updates.contract.Applier.apply`."""
        self._state["progress"][...] = progress
        due: Sequence[int] = self._due()
        for at, phase in enumerate(self._kernel.phases):
            if phase.name in gradients or (at in due and not phase.learned):
                self._kernel.apply(at, gradients.get(phase.name, {}), progress, 1)
        self._kernel.gradient_steps += 1
