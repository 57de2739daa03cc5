"""Updaters that log a hash of their whole state after each gradient step, as real learners build and use them.

Those of a table learn from made-up rows in place of the sampled ones: each gradient step has one whole minibatch, and
each learner takes its part of it. So one learner and several learn from the same rows. Imports no torch itself.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.registry import UpdateBackend
from penstock.types import Arrays
from penstock.updates.contract import ReplayUpdater, Updater
from penstock.updates.settings import UpdaterSettings
from penstock.updates.team import Exchange
from tests.end_to_end.small_run import TURN

LOG = "STEP_LOG"
UPDATES = {
    name: UpdateBackend(f"{__name__}:build_{name}", f"{__name__}:build_{name}_replay", native=name == "fused")
    for name in ("fused", "eager")
}
MIXING = {"fused": UpdateBackend(f"{__name__}:build_mixing", native=True)}
"""Learners that mix their states: each logs what it had and what it got."""


def build_fused(settings: UpdaterSettings, arrays: Arrays, exchange: Exchange | None = None) -> Updater:
    from penstock.updates import fused

    return logging(fused.build(settings, arrays, exchange), settings)


def build_eager(settings: UpdaterSettings, arrays: Arrays, exchange: Exchange | None = None) -> Updater:
    from penstock.updates import eager

    return logging(eager.build(settings, arrays, exchange), settings)


def build_mixing(settings: UpdaterSettings, arrays: Arrays, exchange: Exchange | None = None) -> Updater:
    from penstock.updates import fused

    return mixing(fused.build(settings, arrays, exchange), settings)


def build_fused_replay(settings: UpdaterSettings, exchange: Exchange | None = None) -> ReplayUpdater:
    from penstock.updates import fused

    return Fed(fused.build_replay(settings, exchange), settings)


def build_eager_replay(settings: UpdaterSettings, exchange: Exchange | None = None) -> ReplayUpdater:
    from penstock.updates import eager

    return Fed(eager.build_replay(settings, exchange), settings)


def logging(updater, settings: UpdaterSettings) -> Updater:
    """Let an updater of a stream take one gradient step at a time, and log each."""

    class Logging(type(updater)):
        def minibatches(self, indices, weights) -> None:
            for one, weight in zip(indices[:, None], weights[:, None], strict=True):
                super().minibatches(one, weight)
                state = self.state()
                write(settings.learner, int(state["adam_step"]), state)

    updater.__class__ = Logging
    return updater


def mixing(updater, settings: UpdaterSettings) -> Updater:
    """Let an updater of a stream log its actor before and after each time that it is given one."""

    class Mixing(type(updater)):
        def load(self, state) -> None:
            before = self.state()["actor"].tolist()
            super().load(state)
            if "actor" in state:
                with Path(os.environ[LOG]).open("a") as log:
                    log.write(json.dumps([settings.learner, before, self.state()["actor"].tolist()]) + "\n")

    updater.__class__ = Mixing
    return updater


class Fed:
    """An updater of a table that takes its part of each made-up minibatch, and logs each gradient step."""

    def __init__(self, updater: ReplayUpdater, settings: UpdaterSettings) -> None:
        self._updater = updater
        self._settings = settings
        self.load, self.state, self.write_state = updater.load, updater.state, updater.write_state
        self.buffers, self.metrics = updater.buffers, updater.metrics

    @property
    def gradient_steps(self) -> int:
        return self._updater.gradient_steps

    def learn(self, minibatch: Mapping[str, np.ndarray], progress: float) -> Arrays:
        rows = len(minibatch["weight"])
        own = slice(self._settings.learner * rows, (self._settings.learner + 1) * rows)
        whole = made_up(self._settings, self._updater.gradient_steps)
        found = self._updater.learn({name: whole[name][own] for name in minibatch}, progress)
        write(self._settings.learner, self._updater.gradient_steps, self._updater.state())
        return found


def made_up(settings: UpdaterSettings, step: int) -> Arrays:
    """The whole minibatch of a gradient step, ``[TURN, ...]`` each."""
    numbers = np.random.default_rng(step)
    specs = settings.spec.sampled(settings.spaces)
    found = {part.name: numbers.uniform(-1, 1, (TURN, *part.shape)).astype(part.dtype) for part in specs}
    found["weight"][...] = 1
    found["discount"] = np.where(numbers.random(TURN) < 0.1, 0, 0.99).astype(np.float32)
    return found


def write(learner: int, step: int, state: Mapping[str, np.ndarray]) -> None:
    """Log what a learner has after a gradient step: one line, written at once."""
    whole = hashlib.sha256()
    for name in sorted(state):
        whole.update(name.encode() + state[name].tobytes())
    with Path(os.environ[LOG]).open("a") as log:
        log.write(json.dumps([learner, step, whole.hexdigest()]) + "\n")


class Step(NamedTuple):
    """A gradient step of one learner."""

    learner: int
    step: int
    state: str
    """The hash of what the learner has after it."""


def steps(log: Path) -> list[Step]:
    """All gradient steps, in the order in which they ended."""
    return [Step(*json.loads(line)) for line in log.read_text().splitlines()]


def mixed(log: Path) -> dict[int, list[tuple[list[float], list[float]]]]:
    """Each learner's actors before and after it was given one, in order."""
    found: dict[int, list[tuple[list[float], list[float]]]] = {}
    for line in log.read_text().splitlines():
        learner, before, after = json.loads(line)
        found.setdefault(learner, []).append((before, after))
    return found


def states(log: Path) -> dict[int, dict[int, str]]:
    """The hash of the state by learner and gradient step. If a step was taken again after a death, the last one."""
    found: dict[int, dict[int, str]] = {}
    for one in steps(log):
        found.setdefault(one.learner, {})[one.step] = one.state
    return found
