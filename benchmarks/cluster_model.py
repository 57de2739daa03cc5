"""A cluster of 1 to 1,000 machines, simulated from measured costs: throughput, lag, and what limits it.

    python -m benchmarks.cluster_model                       # the tables, from the committed costs
    python -m benchmarks.cluster_model --measure             # measures costs, checks the model on 1 to 3 hosts
    python -m benchmarks.cluster_model --measure --write benchmarks/results/cluster_model.json

The model has these queues, each served in order:

    workers of a machine --> the launcher's link --> the launcher's relay --> the learners --> the link back --> workers

- A worker begins rollout r once its machine has version r - lag of the policy: lag 0 is lock step.
- A batch is one rollout of every worker. K learners on K machines share it. In each gradient step
  every learner gets the gradients of all others over its link.
- The newest version goes to one machine after the other; versions in between are left out.

`--measure` needs `penstock[ray]`. It takes the launcher's costs from runs on one host whose environments sleep, so that
cores do not limit them, and then compares the model with runs on one, two and three hosts on this machine.
"""

import argparse
import heapq
import json
import os
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.bars import Bar
from benchmarks.record import ROOT, command_of, destination, write
from benchmarks.runs import curve, flags, idle, rate, train
from benchmarks.sleeping import FIXED_S
from penstock.metrics.report import STEPS_PER_SECOND

RESULT = ROOT / "benchmarks/results/cluster_model.json"
MACHINES = (1, 3, 10, 30, 100, 300, 1000)
BATCHES = 40
WARM_UP = 10
WORKERS = 4
HOSTS = (1, 2, 3)
WITHIN = 0.2
FEW, MANY = 2, 16
"""Workers of the two runs on one host that tell the cost of one more rollout."""
SHORT = 64
"""Steps of a rollout in all measured runs."""
ROW_BYTES = 70
WEIGHTS_BYTES = 38_000
"""Of the sleeping environments: four numbers a row, and two networks of 64, 64 units. Both are too small to matter."""


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


ADVICE = {
    "workers": "more machines",
    "link in": "a faster link, fewer bytes a row (smaller frames), or several launchers",
    "relay": "longer rollouts or more lanes in each (`--num_steps`, fewer `--num_workers`)",
    "learners": "more learners (`--learners K`) or a GPU",
    "link out": "larger batches, so that versions are rarer, or a faster link",
}


class Cluster:
    """One run of the model.

    Args:
        machines: other machines than the launcher's, which has no environments.
    """

    def __init__(self, setting: Setting, costs: Costs, machines: int) -> None:
        self._setting = setting
        self._costs = costs
        self._machines = machines
        self._random = np.random.default_rng(0)
        self._events: list[tuple[float, int, str, tuple[int, ...]]] = []
        self._free = dict.fromkeys(("link in", "relay", "learners", "link out"), 0.0)
        self._work = dict.fromkeys(("workers", *self._free), 0.0)
        self._workers = machines * setting.workers
        self._begun = np.zeros(self._workers, np.int64)
        self._collecting = np.zeros(self._workers, np.bool_)
        self._version = np.zeros(machines, np.int64)
        self._newest = 0
        self._waiting: deque[int] = deque()
        """Versions that the arrived rollouts were collected with."""
        self._learning = False
        self._sending: deque[int] = deque()
        """Machines that do not have the newest version yet."""
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
        setting = self._setting
        version = int(self._version[worker // setting.workers])
        if self._collecting[worker] or version < self._begun[worker] - setting.lag:
            return
        self._begun[worker] += 1
        self._collecting[worker] = True
        steps = setting.num_steps
        takes = setting.step_s * max(0.0, steps + setting.spread * steps**0.5 * self._random.standard_normal())
        self._work["workers"] += takes
        self._later(self._now + takes, "collected", worker, version)

    def _collected(self, worker: int, version: int) -> None:
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
        takes = rows * setting.row_s / setting.learners
        if setting.learners > 1:
            steps = rows * setting.epochs / setting.mini_batch_size
            # Both directions at once. What one round trip takes is left out.
            takes += steps * (setting.learners - 1) * setting.weights_bytes / setting.link_bytes_s
        self._later(self._serve("learners", self._now, takes), "learned")

    def _learned(self) -> None:
        self._learning = False
        self._newest += 1
        queued = set(self._sending)
        self._sending.extend(machine for machine in range(self._machines) if machine not in queued)
        if not queued:
            self._send()
        self._learn()

    def _send(self) -> None:
        there = self._serve("link out", self._now, self._setting.weights_bytes / self._setting.link_bytes_s)
        self._later(there, "sent", self._sending[0], self._newest)

    def _sent(self, machine: int, version: int) -> None:
        self._sending.popleft()
        if version < self._newest:
            self._sending.append(machine)
        if self._sending:
            self._send()
        self._later(self._now + self._costs.turn_s, "published", machine, version)

    def _published(self, machine: int, version: int) -> None:
        self._version[machine] = max(version, self._version[machine])
        for worker in range(machine * self._setting.workers, (machine + 1) * self._setting.workers):
            self._begin(worker)

    def _serve(self, queue: str, now: float, takes: float) -> float:
        """When this queue has done a work that comes now."""
        self._free[queue] = max(now, self._free[queue]) + takes
        self._work[queue] += takes
        return self._free[queue]

    def _later(self, when: float, kind: str, *about: int) -> None:
        # The number keeps events of the same moment in their order.
        heapq.heappush(self._events, (when, next(self._order), kind, about))


def settings(costs: Costs) -> list[Setting]:
    """The clusters of the page: machines of 16 cores, and PPO with two networks of 64, 64 units.

    The one with frames has convolutions, and a learner that is assumed to take 50,000 rows a second.
    """
    vector = Setting(
        name="200 us a step, 17 numbers, 1 Gbit/s",
        workers=16,
        lanes=4,
        num_steps=512,
        step_s=4 * 200e-6,
        row_bytes=120,
        weights_bytes=50_000,
        link_bytes_s=125e6,
        row_s=costs.row_s,
    )
    slow = replace(vector, name="5 ms a step, 17 numbers, 1 Gbit/s", step_s=4 * 5e-3)
    images = replace(
        vector,
        name="1 ms a step, frames of 84 x 84, 50,000 rows/s learned, 10 Gbit/s",
        step_s=4 * 1e-3,
        num_steps=128,
        row_bytes=7_100,
        weights_bytes=6_800_000,
        link_bytes_s=1.25e9,
        row_s=1 / 50_000,
    )
    ahead = [replace(one, name=f"{one.name}, lag 1", lag=1) for one in (vector, slow, images)]
    several = replace(
        ahead[1], name=f"{ahead[1].name}, 8 learners, minibatches of 16,384", learners=8, mini_batch_size=16_384
    )
    return [vector, ahead[0], slow, ahead[1], several, images, ahead[2]]


def table(setting: Setting, costs: Costs, machines: Sequence[int]) -> list[dict[str, Any]]:
    """One row for each number of machines."""
    rows: list[dict[str, Any]] = []
    for number in machines:
        outcome = Cluster(setting, costs, number).run()
        alone = rows[0]["steps_per_s"] if rows else outcome.steps_per_s
        rows.append(
            {
                "machines": number,
                "steps_per_s": round(outcome.steps_per_s),
                "of_linear": round(outcome.steps_per_s / alone / number * machines[0], 3),
                "lag": round(outcome.lag, 2),
                "limit": outcome.limit,
                "busy": {name: round(share, 3) for name, share in outcome.busy.items()},
                "mbit_s_in": round(outcome.steps_per_s * setting.row_bytes * 8e-6, 1),
            }
        )
    return rows


class Run(NamedTuple):
    """A real run in lock step, or one version ahead."""

    period_s: float
    """Of one batch."""
    learn_s: float
    """The learner's time for one batch."""
    steps_per_s: float


def trained(workers: int, num_steps: int, *, lag: int = 0, address: str = "") -> Run:
    """Train with sleeping environments, one for each worker: on the hosts of a cluster, or on this machine alone."""
    sizes = {"num_envs": workers, "num_workers": workers, "num_steps": num_steps, "eval_episodes": 0, "log_interval": 1}
    words = ["--env", "benchmarks.sleeping:fixed", *flags(sizes), "--timesteps", str(BATCHES * workers * num_steps)]
    words += ["--sync_mode", "non_blocking", "--max_policy_lag", str(lag)] if lag else ["--sync_mode", "blocking"]
    words += ["--runtime", "ray", "--address", address] if address else []
    with tempfile.TemporaryDirectory() as folder:
        run = train(Path(folder), words)
        steps = rate(curve(run, STEPS_PER_SECOND), WARM_UP)
        period = workers * num_steps / steps
        return Run(period, period * (1 - idle(run, WARM_UP)["learner"]), steps)


@contextmanager
def hosts(number: int, workers: int) -> Iterator[str]:
    """Hosts of Ray on this machine beside a launcher's without environments. Gives the address."""
    # Imported here, because the tables need no Ray.
    from ray.cluster_utils import Cluster as RayCluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    memory = {"object_store_memory": 200_000_000}
    made = RayCluster(initialize_head=True, head_node_args={**memory, "num_cpus": 0, "include_dashboard": False})
    try:
        for host in range(number):
            made.add_node(**memory, num_cpus=workers, resources={f"host{host}": 1})
        yield made.address
    finally:
        made.shutdown()


def bytes_a_second(address: str) -> float:
    """How fast an object of 32 MB comes from a host to this process, through Ray: the median of five."""
    import ray

    ray.init(address=address, log_to_driver=False)
    try:
        size = 32_000_000
        make = ray.remote(num_cpus=0, resources={"host0": 0.1})(lambda: np.zeros(size, np.uint8))
        seconds = []
        for _ in range(5):
            made = make.remote()
            ray.wait([made], fetch_local=False)
            begun = time.perf_counter()
            ray.get(made)
            seconds.append(time.perf_counter() - begun)
        return size / median(seconds)
    finally:
        ray.shutdown()


def measure() -> tuple[Costs, float]:
    """The costs, and the time of one step of a sleeping environment with its action."""
    alone = trained(1, SHORT)
    step = (alone.period_s - alone.learn_s) / SHORT
    with hosts(1, MANY) as address:
        carried = bytes_a_second(address)
        few, many = (trained(workers, SHORT, address=address) for workers in (FEW, MANY))
    over = [run.period_s - run.learn_s - SHORT * step for run in (few, many)]
    rollout = max(0.0, (over[1] - over[0]) / (MANY - FEW))
    row = many.learn_s / (MANY * SHORT)
    return Costs(rollout, max(0.0, over[0] - FEW * rollout), row, carried), step


def checked(costs: Costs, step_s: float) -> list[dict[str, Any]]:
    """Real runs on hosts of this machine beside the model, in lock step and one version ahead."""
    rows = []
    for number in HOSTS:
        with hosts(number, WORKERS) as address:
            for lag in (0, 1):
                real = trained(number * WORKERS, SHORT, lag=lag, address=address).steps_per_s
                setting = Setting(
                    name="check",
                    workers=WORKERS,
                    lanes=1,
                    num_steps=SHORT,
                    step_s=step_s,
                    row_bytes=ROW_BYTES,
                    weights_bytes=WEIGHTS_BYTES,
                    link_bytes_s=costs.local_bytes_s,
                    row_s=costs.row_s,
                    spread=0.0,
                    lag=lag,
                )
                model = Cluster(setting, costs, number).run().steps_per_s
                rows.append({"hosts": number, "lag": lag, "measured": round(real, 1), "model": round(model, 1)})
                print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Print the tables; with ``--measure``, measure what they stand on, and compare with real hosts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="measure the costs here, and check the model")
    parser.add_argument("--machines", nargs="+", type=int, default=list(MACHINES))
    parser.add_argument("--write", type=destination, help="with --measure: write the result here as JSON")
    args = parser.parse_args()
    result: dict[str, Any] = {"command": command_of("python -m benchmarks.cluster_model")}
    if args.measure:
        costs, step_s = measure()
        print(costs, f"step {1000 * step_s:.3f} ms; a sleep is {1000 * FIXED_S:g} ms")
        check = checked(costs, step_s)
        worst = max(abs(row["model"] / row["measured"] - 1) for row in check)
        bar = Bar("model beside real hosts, largest difference", worst, WITHIN, at_most=True)
        print(bar.line())
        result |= {"bars": [bar.entry()], "check": check}
    else:
        costs = Costs(**json.loads(RESULT.read_text("utf-8"))["costs"])
    tables = {setting.name: table(setting, costs, args.machines) for setting in settings(costs)}
    for name, rows in tables.items():
        print(f"\n{name}")
        for row in rows:
            speed = f"{row['steps_per_s']:12,} steps/s {row['of_linear']:7.1%} of linear"
            limit = f"limit: {row['limit']}: {ADVICE[row['limit']]}"
            print(
                f"{row['machines']:6,} machines {speed}, lag {row['lag']:.1f}, {row['mbit_s_in']:9,.1f} Mbit/s; {limit}"
            )
    if args.write and args.measure:
        write(args.write, {**result, "costs": asdict(costs), "tables": tables})


if __name__ == "__main__":
    main()
