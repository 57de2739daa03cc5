"""A cluster as queues in time: simulates how fast it trains, how old its rollouts are, and which queue limits it.

The model has these queues, each served in order:

    workers of a machine --> the launcher's link --> the launcher's relay --> the learners --> the link back --> workers

- A worker begins rollout r once its machine has version r - lag of the policy: lag 0 is lock step.
- A batch is one rollout of every worker. K learners on K machines share it. In each gradient step
  every learner gets the gradients of all others over its link.
- The newest version goes to all machines at once, and they share the link; versions in between are left out.
- Hosts that are imitated on one machine share its cores (`Shared`), and take them from its learner as often as they
  leave them to it. A version takes them also from the rollouts that are under way when it arrives. Real machines have
  cores of their own.

Measures nothing: `benchmarks.cluster_check` measures the costs.
"""

import heapq
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np

BATCHES = 40
WARM_UP = 10


@dataclass(frozen=True)
class Costs:
    """What the launcher and Ray take, as measured."""

    rollout_s: float
    """The launcher's work for one rollout from another machine."""
    turn_s: float
    """From a host's last rollout of a batch to its first step with the next version, without all that is queued."""
    row_s: float
    """A learner's time for one row of a batch: all epochs of PPO at its defaults, two networks of 64, 64 units."""
    local_bytes_s: float
    """Bytes a second from one object store of Ray to another through the loopback device."""
    batch_s: float = 0.0
    """A learner's time for a batch without its rows and passes: commit and publication."""
    pass_s: float = 0.0
    """A learner's time for one pass over a batch without its rows."""


@dataclass(frozen=True)
class Shared:
    """The cores that imitated hosts share with the launcher, and the processor time that is taken of them."""

    cores: int
    rollout_s: float
    """For one rollout, all its steps included, and what the launcher does for it."""
    version_s: float
    """For one version, from the launcher to the first steps with it."""


@dataclass(frozen=True)
class Setting:
    """A cluster of equal machines and the task that it learns."""

    name: str
    workers: int
    """Environment processes of a machine."""
    lanes: int
    """Environments of a process."""
    num_steps: int
    step_s: float
    """One step of all lanes of a process, with its action."""
    row_bytes: int
    """What a rollout holds for each row."""
    weights_bytes: int
    link_bytes_s: float
    """Of each machine, in each direction."""
    row_s: float
    """A learner's time for one row of a batch."""
    spread: float = 0.2
    """Deviation of the time of one step, relative to its mean."""
    lag: int = 0
    learners: int = 1
    mini_batch_size: int = 64
    epochs: int = 10
    """Passes over a batch. With several learners, each minibatch sends the gradients of all weights from each of them
    to each other one."""


class Outcome(NamedTuple):
    """A simulated cluster in steady state."""

    steps_per_s: float
    lag: float
    """Mean number of versions between the one that acted and the newest when its rows are learned from."""
    busy: dict[str, float]
    """Queue -> the share of the time in which it is at work."""

    @property
    def limit(self) -> str:
        """The queue with the most work."""
        return max(self.busy, key=lambda name: self.busy[name])


class Cluster:
    """One run of the model.

    Args:
        machines: other machines than the launcher's, which has no environments.
        shared: cores that these machines share; left out: each has enough.
    """

    def __init__(self, setting: Setting, costs: Costs, machines: int, shared: Shared | None = None) -> None:
        self._setting = setting
        self._costs = costs
        self._machines = machines
        self._shared = shared
        self._random = np.random.default_rng(0)
        self._events: list[tuple[float, int, str, tuple[int, ...]]] = []
        self._free = dict.fromkeys(("link in", "relay", "learners", "link out", "cores"), 0.0)
        self._work = dict.fromkeys(("workers", *self._free), 0.0)
        self._workers = machines * setting.workers
        self._begun = np.zeros(self._workers, np.int64)
        self._collecting = np.zeros(self._workers, np.bool_)
        self._delays = np.zeros(self._workers)
        """For how long versions took the cores from the rollout that a worker collects, in seconds."""
        self._versions = np.zeros(machines, np.int64)
        """The newest version that each machine has."""
        self._newest = 0
        self._waiting: deque[int] = deque()
        """Versions that the arrived rollouts were collected with."""
        self._learning = False
        self._held_up_s = 0.0
        """For how long hosts took the learner's core from it in this batch."""
        self._sent = 0
        """The newest version that was sent, or is on its way."""
        self._sending = False
        self._lags: list[float] = []
        self._now = 0.0
        self._order = count()

    def run(self) -> Outcome:
        """Simulate ``BATCHES`` batches; the first ``WARM_UP`` do not count."""
        for worker in range(self._workers):
            self._begin(worker)
        started, before = 0.0, dict(self._work)
        while self._newest < BATCHES:
            self._now, _, kind, about = heapq.heappop(self._events)
            newest = self._newest
            getattr(self, f"_{kind}")(*about)
            if newest < WARM_UP == self._newest:
                started, before = self._now, dict(self._work)
        span = self._now - started
        rows = (BATCHES - WARM_UP) * self._workers * self._setting.lanes * self._setting.num_steps
        busy = {name: (work - before[name]) / span for name, work in self._work.items()}
        busy["workers"] /= self._workers
        return Outcome(rows / span, float(np.mean(self._lags)), busy)

    def _begin(self, worker: int) -> None:
        setting, version = self._setting, int(self._versions[worker // self._setting.workers])
        if self._collecting[worker] or version < self._begun[worker] - setting.lag:
            return
        self._begun[worker] += 1
        self._collecting[worker] = True
        steps = setting.num_steps
        takes = setting.step_s * max(0.0, steps + setting.spread * steps**0.5 * self._random.standard_normal())
        self._work["workers"] += takes
        ends = self._now + takes
        if self._shared is not None:
            # Its steps sleep most of the time. Meanwhile the cores serve the steps of others.
            ends = max(ends, self._serve_cores(self._shared.rollout_s / self._shared.cores))
        self._later(ends, "collected", worker, version)

    def _collected(self, worker: int, version: int) -> None:
        if delay := float(self._delays[worker]):
            self._delays[worker] = 0.0
            self._later(self._now + delay, "collected", worker, version)
            return
        self._collecting[worker] = False
        setting = self._setting
        size = setting.row_bytes * setting.lanes * setting.num_steps
        there = self._serve("link in", self._now, size / setting.link_bytes_s)
        self._later(self._serve("relay", there, self._costs.rollout_s), "arrived", version)
        self._begin(worker)

    def _arrived(self, version: int) -> None:
        self._waiting.append(version)
        self._learn()

    def _learn(self) -> None:
        if self._learning or len(self._waiting) < self._workers:
            return
        self._learning = True
        used = [self._waiting.popleft() for _ in range(self._workers)]
        if self._newest >= WARM_UP:
            self._lags.append(self._newest - float(np.mean(used)))
        setting = self._setting
        rows = self._workers * setting.lanes * setting.num_steps
        takes = self._costs.batch_s + setting.epochs * self._costs.pass_s + rows * setting.row_s / setting.learners
        if setting.learners > 1:
            steps = rows * setting.epochs / setting.mini_batch_size
            # Both directions at once. What one round trip takes is left out.
            takes += steps * (setting.learners - 1) * setting.weights_bytes / setting.link_bytes_s
        self._later(self._serve("learners", self._now, takes), "learned")

    def _learned(self) -> None:
        if self._held_up_s > 0:
            ends = self._serve("learners", self._now, self._held_up_s)
            self._held_up_s = 0.0
            self._later(ends, "learned")
            return
        self._learning = False
        self._newest += 1
        self._send()
        self._learn()

    def _send(self) -> None:
        """Send the newest version to all machines, side by side, unless one is on its way to them."""
        if self._sending or self._sent == self._newest:
            return
        self._sending, self._sent = True, self._newest
        size = self._machines * self._setting.weights_bytes
        self._later(self._serve("link out", self._now, size / self._setting.link_bytes_s), "arrived_there")

    def _arrived_there(self) -> None:
        self._sending = False
        for machine in range(self._machines):
            takes = self._costs.turn_s
            if self._shared is not None:
                # The time of one machine alone is part of the way back.
                alone = self._shared.version_s / self._shared.cores
                takes += max(0.0, self._serve_cores(alone) - self._now - alone)
                # Where rollouts may begin late, some are under way now.
                self._delays += np.where(self._collecting, alone, 0.0)
            self._later(self._now + takes, "published", machine, self._sent)
        self._send()

    def _published(self, machine: int, version: int) -> None:
        self._versions[machine] = version
        for worker in range(machine * self._setting.workers, (machine + 1) * self._setting.workers):
            self._begin(worker)

    def _serve_cores(self, takes: float) -> float:
        """When all shared cores together have done a work that comes now. One of them is the core of a busy learner."""
        if self._learning:
            self._held_up_s += takes
        return self._serve("cores", self._now, takes)

    def _serve(self, queue: str, now: float, takes: float) -> float:
        """When this queue has done a work that comes now."""
        self._free[queue] = max(now, self._free[queue]) + takes
        self._work[queue] += takes
        return self._free[queue]

    def _later(self, when: float, kind: str, *about: int) -> None:
        # The number keeps events of the same moment in their order.
        heapq.heappush(self._events, (when, next(self._order), kind, about))
