"""THE contract of an algorithm: plain data in ``spec.py``, pure functions in ``learn.py``, natively in ``fused.py``.

An algorithm knows no process, environment, loop, logger or device. ``docs/architecture.md`` proves this contract on
paper for PPO, SAC, TD3, Ape-X, IMPALA with an LSTM, and masked multi-agent learning.

This file imports no torch: arrays of ``learn.py`` are torch tensors, written ``Tensors`` here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from penstock.network import PolicyGraph
from penstock.types import Array, ArraySpec, NoiseSpec

__all__ = ["Algorithm", "AlgorithmSpec", "Fused", "FusedUpdate", "Gradients", "Phase", "Schedule", "Tensors"]

Tensors: TypeAlias = Mapping[str, Any]
"""Named tensors of one framework (torch in ``learn.py``, numpy in ``fused.py``)."""


@dataclass(frozen=True)
class Schedule:
    """How LearnerNode turns a batch into minibatches."""

    epochs: int
    mini_batch_size: int
    target_kl: float | None = None
    """Stop a batch's epochs once the mean ``approx_kl`` of an epoch passes it; ``None`` never stops."""


@dataclass(frozen=True)
class AlgorithmSpec:
    """What the rest of the house needs to know of an algorithm, as plain data (no torch)."""

    topology: str
    """Name of the data pattern: ``on_policy``, ``async_on_policy``, ..."""
    row: tuple[ArraySpec, ...]
    """Fields of a rollout row that ``act`` gives beyond ``action`` (``log_prob``, ``value``, ``q``), per lane."""
    policy: PolicyGraph
    noise: NoiseSpec
    """The noise input of ``act``."""
    state: tuple[ArraySpec, ...]
    """Every named array of the state: parameters, moments, statistics, counters."""
    targets: tuple[ArraySpec, ...]
    """What ``targets`` computes for each row (``advantage``, ``target``), per lane."""
    minibatch: tuple[str, ...]
    """The row and target fields that ``gradients`` reads; observations are named by their own fields."""
    schedule: Schedule
    unit: Literal["row", "lane"] = "row"
    """What a minibatch is made of: rows, or whole lanes where time order matters."""

    def published(self) -> tuple[ArraySpec, ...]:
        """Specs of the published record."""
        return self.policy.published()


class Gradients(NamedTuple):
    """What one minibatch gives."""

    gradients: Tensors
    """Network name -> flat gradient."""
    metrics: Tensors
    """Name -> scalar."""
    per_row: Tensors
    """Name -> ``[m]`` (new priorities, say); empty where there is none."""


class Phase(NamedTuple):
    """One gradient step of an update; an algorithm is an ordered list of them (SAC: critic, actor, temperature)."""

    name: str
    gradients: Callable[[Tensors, Tensors, Tensors], Gradients]
    """``(state, minibatch, noise) -> Gradients``. Pure, compiled. ``minibatch["weight"]`` is 0 for padding rows."""
    apply: Callable[[Tensors, Tensors], Tensors]
    """``(state, gradients) -> changed arrays of the state``. Pure, compiled. ``state["progress"]`` is in [0, 1]."""
    every: int = 1
    """Run at every n-th update (TD3 delays its actor)."""
    noise: tuple[tuple[str, NoiseSpec], ...] = ()
    """Noise inputs of ``gradients``, per minibatch row."""


class Algorithm(NamedTuple):
    """What ``learn.py``'s ``build(spaces, config)`` returns."""

    init_state: Callable[[int], dict[str, Any]]
    """``(seed) -> state`` as numpy arrays, of ``AlgorithmSpec.state``."""
    act: Callable[[Tensors, Tensors], Tensors]
    """``(published, inputs) -> outputs``. Inputs: observation fields ``[n, ...]``, ``noise``, ``explore``. Pure."""
    targets: Callable[[Tensors, Tensors], Tensors]
    """``(state, rollout) -> target fields [T, B]`` from numpy views of one slot, ``[T + 1, B, ...]``. Pure."""
    statistics: Callable[[Tensors, Tensors], Tensors]
    """``(state, rollout and its targets) -> changed statistics``; per slot in lane order, after the phases. Pure."""
    phases: tuple[Phase, ...]


class FusedUpdate(Protocol):
    """All phases of many minibatches in one native call. Holds packed rows and the sums of metrics, no state."""

    def pack(self, state: Tensors, rows: Tensors, first: int, count: int) -> None:
        """Take flat rows ``first .. first + count - 1`` of a batch, before its first minibatch.

        Args:
            state: holds the running statistics.
            rows: the fields of a minibatch, ``[rows, ...]``; those that carry no transition may hold anything.
            first: first flat row.
            count: number of rows.
        """
        ...

    def run(self, state: Tensors, indices: Array, weights: Array) -> None:
        """Run one update for each row of ``indices[n, m]``, changing ``state`` in place; the GIL is released."""
        ...

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call; empty if there were none."""
        ...


class Fused(NamedTuple):
    """What ``fused.py``'s ``build(spaces, config)`` returns: the algorithm without torch, on numpy arrays.

    The state's arrays are those of ``AlgorithmSpec.state``, so checkpoints pass between this and `Algorithm`.
    """

    init_state: Callable[[int], dict[str, Any]]
    targets: Callable[[Tensors, Tensors], Tensors]
    statistics: Callable[[Tensors, Tensors], Tensors]
    update: Callable[[int, int], FusedUpdate]
    """``(rows, threads) -> FusedUpdate`` over so many flat rows, on so many threads."""
