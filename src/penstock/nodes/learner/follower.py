"""FollowerNode: finds gradients on rows drawn from a table, together with other learners; commits nothing.

How it agrees with the others, and when it may take a gradient step, its team says. What is learned another node keeps.
"""

import time
from dataclasses import dataclass

import numpy as np

from penstock.algorithm import ReplaySchedule, TableSpec, UpdaterSettings
from penstock.errors import PenstockError
from penstock.node import Ports
from penstock.registry import load
from penstock.replay.priorities import tree_of
from penstock.replay.sampler import Sampler
from penstock.types import Arrays, ReplayUpdater, Team

__all__ = ["FollowerNode", "FollowerSettings"]

STEP_LIMIT_S = 0.05
PAUSE_S = 0.001
"""Until the team is asked again, where no gradient step may begin."""


@dataclass(frozen=True)
class FollowerSettings:
    """What one FollowerNode learns."""

    update: str
    """``module:build_replay`` of the updater: eager or compiled."""
    updater: UpdaterSettings
    team: str
    """``module:build`` of how it works with the others: ``(ports, updater settings, learners) -> Team``."""
    learners: int
    num_envs: int
    timesteps: int
    open_limit_s: float


class FollowerNode:
    """Draws from table ``rollouts`` and hands what it finds to its team."""

    def __init__(self, settings: FollowerSettings) -> None:
        spec = settings.updater.spec
        if not isinstance(spec.schedule, ReplaySchedule) or spec.table is None:
            raise PenstockError("a table is learned from by a replay schedule")
        self._schedule: ReplaySchedule = spec.schedule
        self._kept: TableSpec = spec.table
        self._settings = settings
        self._number = 0
        self._again = 0.0
        self._ended = False

    def open(self, ports: Ports) -> None:
        """Build the updater, and join the team."""
        settings, spec = self._settings, self._settings.updater.spec
        self._ports = ports
        self._table = ports.table("rollouts")
        self._team: Team = load(settings.team)(ports, settings.updater, settings.learners)
        with ports.busy("build the update", settings.open_limit_s):
            self._updater: ReplayUpdater = load(settings.update)(settings.updater, self._team)
        fields = tuple(name for name, _ in settings.updater.spaces.obs)
        ranks = ports.priorities("rollouts")
        self._tree = None if ranks is None else tree_of(self._table, ranks)
        self._sampler = Sampler(
            self._table,
            settings.num_envs // self._table.writers,
            fields,
            n_step=self._kept.n_step,
            gamma=self._kept.gamma,
            stack={},
            tree=self._tree,
        )
        size = self._schedule.mini_batch_size * settings.updater.accumulate
        self._minibatch: Arrays = {
            part.name: np.zeros((size, *part.shape), part.dtype) for part in spec.drawn(settings.updater.spaces)
        }
        self._places: Arrays = {name: np.zeros(size, np.int64) for name in ("index", "stamp")}
        with ports.busy("join the others", settings.open_limit_s):
            state = self._team.join(self._updater.state())
        if state is None:
            self._end()
        else:
            self._updater.load(state)

    def ready(self) -> bool:
        """True while gradient steps may be wanted, and once the run is to end."""
        if self._ended:
            return False
        return self._ports.stopping() or (time.monotonic() >= self._again and self._held() >= self._schedule.min_rows)

    def step(self) -> None:
        """Take gradient steps, as many as fit ``STEP_LIMIT_S``."""
        if self._ports.stopping():
            self._end()
            return
        deadline = time.monotonic() + STEP_LIMIT_S
        while time.monotonic() < deadline and not self._ports.stopping():
            if not self._team.begin(self._updater):
                self._again = time.monotonic() + PAUSE_S
                return
            self._gradient_step()
            self._team.end()

    def close(self) -> None:
        """Nobody waits for this learner any more."""
        self._team.leave()

    def _end(self) -> None:
        self._ended = True
        self._team.leave()
        self._ports.finished()

    def _gradient_step(self) -> None:
        settings, ranking = self._settings, self._kept.priorities
        steps = self._updater.gradient_steps
        progress = self._schedule.progress(steps, settings.timesteps)
        beta = 0.0 if ranking is None else ranking.beta + progress * (1.0 - ranking.beta)
        written = [self._table.written(writer) for writer in range(self._table.writers)]
        # Learners draw rows of their own: the numbers of one are never those of another.
        number = steps * settings.learners + settings.updater.learner
        self._sampler.sample((settings.updater.seed, number), self._minibatch | self._places, written, beta)
        with self._ports.busy("gradient step", settings.open_limit_s):
            per_row = self._updater.learn(self._minibatch, progress)
        if self._tree is not None and ranking is not None:
            priority = np.power(per_row["priority"].astype(np.float64), ranking.alpha)
            self._tree.update(self._places["index"], self._places["stamp"], priority)
        self._ports.count("drawn", len(self._places["index"]))

    def _held(self) -> int:
        """How many rows there are to draw from."""
        slots = sum(min(self._table.written(writer), self._table.slots - 1) for writer in range(self._table.writers))
        rows, lanes = map(int, self._table.arrays["valid"].shape[1:])
        return slots * (rows - 1) * lanes
