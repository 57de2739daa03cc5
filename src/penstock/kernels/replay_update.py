"""The native gradient steps of algorithms with a table: sampling, phases, optimizers, targets, priorities.

Computes no schedule of turns and owns no table. `penstock.algorithm.FusedReplayUpdate` is its contract. The mathematics
is that of the algorithms' ``learn.py``, which names the sources.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.errors import BadDataError, ResourceError
from penstock.kernels import _native
from penstock.kernels.optimizer import Optimizer
from penstock.kernels.steps import FusedPhase, Minibatches, StepKeys
from penstock.types import Array

__all__ = [
    "DeterministicActorCritic",
    "DistributionalActorCritic",
    "LearnedLayers",
    "NoiseKeys",
    "QLearning",
    "ReplayUpdate",
    "SoftActorCritic",
    "deterministic_actor_critic",
    "distributional_actor_critic",
    "q_learning",
    "soft_actor_critic",
]

Rates = Callable[[float], Sequence[float]]
"""``(progress) -> learning rate of each vector with an optimizer``, in the order of the native update."""


@dataclass(frozen=True)
class LearnedLayers:
    """The networks of an actor with critics of observation and action, in the form that the kernels take."""

    fields: tuple[str, ...]
    """Observation fields, in the order in which they are concatenated."""
    encoding: tuple[tuple[bool, int, int], ...]
    """For each field: whether it becomes a one-hot vector, its number of features, its first value."""
    actor: tuple[tuple[str, int, int, str], ...]
    """``(kind, inputs, outputs, activation)`` of each layer."""
    critic: tuple[tuple[str, int, int, str], ...]
    critics: int
    action: int
    """Elements of an action."""


class NoiseKeys(NamedTuple):
    """Keys of an update's noise."""

    seeds: Sequence[int]
    """One for each noise input."""
    first_row: int
    """Number of the minibatch's first row among those of all learners."""


@dataclass(frozen=True)
class SoftActorCritic:
    """The numbers of SAC."""

    log_std_min: float
    log_std_max: float
    learns_temperature: bool
    target_entropy: float
    tau: float
    policy_delay: int
    optimizer: Optimizer


def soft_actor_critic(
    layers: LearnedLayers,
    settings: SoftActorCritic,
    rates: Rates,
    noise: NoiseKeys,
    level: str | None = None,
) -> "ReplayUpdate":
    """The update of SAC. Its learned vectors are ``actor``, ``critic`` and ``log_alpha``.

    Args:
        layers: the networks.
        settings: the numbers.
        rates: learning rates.
        noise: keys of the noise of the next action, and of the action.
        level: instruction-set level; ``None``: the fastest of this processor.
    """
    native = _native.soft_actor_critic(
        layers.encoding,
        layers.actor,
        layers.critic,
        layers.critics,
        layers.action,
        settings.log_std_min,
        settings.log_std_max,
        settings.learns_temperature,
        settings.target_entropy,
        settings.tau,
        settings.policy_delay,
        noise.seeds,
        noise.first_row,
        settings.optimizer,
        level,
    )
    return ReplayUpdate(native, layers.fields, rates)


@dataclass(frozen=True)
class DistributionalActorCritic:
    """The numbers of DSAC and DSAC-T."""

    soft: SoftActorCritic
    """Those that are SAC's."""
    bound: float
    """Largest distance of a sampled return from its mean: in units of returns; if ``refined``, in mean deviations."""
    refined: bool
    """DSAC-T: means learn from expected returns, and each critic scales its steps by its own deviation."""


def distributional_actor_critic(
    layers: LearnedLayers,
    settings: DistributionalActorCritic,
    rates: Rates,
    noise: NoiseKeys,
    level: str | None = None,
) -> "ReplayUpdate":
    """The update of DSAC and DSAC-T. Arguments as for `soft_actor_critic`.

    Its learned vectors are those of SAC; if ``refined``, also ``mean_deviation`` and ``mean_variance``, which have no
    optimizer. ``noise`` has a third seed, for the next return.
    """
    soft = settings.soft
    native = _native.distributional_actor_critic(
        layers.encoding,
        layers.actor,
        layers.critic,
        layers.critics,
        layers.action,
        soft.log_std_min,
        soft.log_std_max,
        soft.learns_temperature,
        soft.target_entropy,
        soft.tau,
        soft.policy_delay,
        settings.bound,
        settings.refined,
        noise.seeds,
        noise.first_row,
        soft.optimizer,
        level,
    )
    return ReplayUpdate(native, layers.fields, rates)


@dataclass(frozen=True)
class DeterministicActorCritic:
    """The numbers of TD3."""

    policy_delay: int
    smoothing: float
    smoothing_clip: float
    tau: float
    optimizer: Optimizer


def deterministic_actor_critic(
    layers: LearnedLayers,
    settings: DeterministicActorCritic,
    rates: Rates,
    noise: NoiseKeys,
    level: str | None = None,
) -> "ReplayUpdate":
    """The update of TD3. Its learned vectors are ``actor`` and ``critic``. Arguments as for `soft_actor_critic`.

    ``noise`` has one seed, for the noise on the next action.
    """
    native = _native.deterministic_actor_critic(
        layers.encoding,
        layers.actor,
        layers.critic,
        layers.critics,
        layers.action,
        settings.policy_delay,
        settings.smoothing,
        settings.smoothing_clip,
        settings.tau,
        noise.seeds,
        noise.first_row,
        settings.optimizer,
        level,
    )
    return ReplayUpdate(native, layers.fields, rates)


@dataclass(frozen=True)
class QLearning:
    """The network of DQN in the form that the kernels take, and its numbers."""

    fields: tuple[str, ...]
    encoding: tuple[tuple[bool, int, int], ...]
    layers: tuple[tuple[str, int, int, str], ...]
    actions: int
    atoms: int
    low: float
    """Value of the first atom."""
    high: float
    """Value of the last atom."""
    dueling: bool
    double: bool
    error_clip: float
    max_grad_norm: float
    least_priority: float
    target_every: int
    optimizer: Optimizer


def q_learning(settings: QLearning, rates: Rates, level: str | None = None) -> "ReplayUpdate":
    """The update of DQN. Its learned vector is ``actor``."""
    native = _native.q_learning(
        settings.encoding,
        settings.layers,
        settings.actions,
        settings.atoms,
        settings.low,
        settings.high,
        settings.dueling,
        settings.double,
        settings.error_clip,
        settings.max_grad_norm,
        settings.least_priority,
        settings.target_every,
        settings.optimizer,
        level,
    )
    return ReplayUpdate(native, settings.fields, rates)


class ReplayUpdate:
    """A native update and its state. Not for several threads at once. Bits are promised for each instruction-set level.

    Args:
        native: the update.
        fields: observation fields, in the order of its encoding.
        rates: learning rates.
    """

    def __init__(self, native: _native.ReplayUpdate, fields: Sequence[str], rates: Rates) -> None:
        self._native = native
        self._fields = fields
        self._rates = rates
        self._phases = tuple(FusedPhase(name, every, tuple(learned)) for name, every, learned in native.phases)
        self._bound: tuple[Mapping[str, Array], Array | None] | None = None
        self._gradients: dict[str, Array] = {}

    @property
    def phases(self) -> tuple[FusedPhase, ...]:
        """The phases in order."""
        return self._phases

    @property
    def gradient_steps(self) -> int:
        """Gradient steps so far."""
        return self._native.gradient_steps

    @gradient_steps.setter
    def gradient_steps(self, steps: int) -> None:
        self._native.gradient_steps = steps

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or some of its arrays.

        Of arrays that are no vector and no count, it takes the running statistics of observations only.
        """
        if "obs_mean" in state:
            self._native.normalise(state["obs_mean"], state["obs_var"])
        for name, values in state.items():
            kind, _, vector = name.partition(".")
            if name == "gradient_steps":
                self._native.gradient_steps = int(values)
            elif kind == "adam_step":
                self._native.put_steps(vector, int(values))
            elif values.dtype == np.float32:
                self._native.load(name, values)
                if vector == "" and name not in self._gradients:
                    self._gradients[name] = np.zeros_like(values)
        self._native.refresh()

    def store(self, state: Mapping[str, Array]) -> None:
        """Write the state into these arrays. Arrays that are no vector and no count stay as they are."""
        for name, values in state.items():
            kind, _, vector = name.partition(".")
            if name == "gradient_steps":
                values[...] = self._native.gradient_steps
            elif kind == "adam_step":
                values[...] = self._native.steps(vector)
            elif values.dtype == np.float32:
                self._native.store(name, values)

    def bind(self, minibatch: Mapping[str, Array], priority: Array | None) -> None:
        """Learn from these arrays ``[m, ...]`` from now on; ``priority`` ``[m]`` is written.

        Raises:
            ValueError: an array has another shape.
            TypeError: an array has another dtype, or its numbers do not lie one behind the other.
        """
        self._native.bind(
            [minibatch[field] for field in self._fields],
            [minibatch[f"next.{field}"] for field in self._fields],
            minibatch["action"],
            minibatch["reward"],
            minibatch["discount"],
            minibatch.get("importance"),
            minibatch["weight"],
            priority,
        )
        self._bound = minibatch, priority

    def run(self, minibatches: Minibatches, keys: StepKeys, steps: int, progress: float, threads: int) -> int:
        """Sample and learn ``steps`` times. See `penstock.algorithm.FusedReplayUpdate.run`."""
        taken, no_rows, bad_priority = self._native.run(
            steps, keys.seed, keys.number, keys.beta, self._rates(progress), threads, minibatches.capsule()
        )
        if bad_priority is not None:
            raise BadDataError(f"gradient step {self.gradient_steps}: {bad_priority}")
        if no_rows is not None:
            raise ResourceError(no_rows)
        return taken

    def step(self, progress: float, threads: int) -> None:
        """Take one gradient step with the minibatch as it is."""
        self._native.step(self._rates(progress), threads)

    def gradients(self, phase: int, threads: int) -> Mapping[str, Array]:
        """The gradients of one phase, flat, by vector; valid until the next call."""
        self._native.compute_gradients(phase, threads)
        found = {name: self._gradients[name] for name in self._phases[phase].learned}
        for name, values in found.items():
            self._native.gradient(name, values)
        return found

    def apply(self, phase: int, gradients: Mapping[str, Array], progress: float, threads: int) -> None:
        """Step the phase's vectors by these gradients."""
        for name, values in gradients.items():
            self._native.put_gradient(name, values)
        self._native.apply(phase, self._rates(progress), threads)

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call."""
        return self._native.metrics()
