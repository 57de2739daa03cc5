"""Measures the costs of the model of a cluster, and compares the model with real runs on one to three hosts.

Each task has another limit. The environments sleep, so this machine's cores are the limit of none but *relay*, on
three hosts:

- *workers*: rollouts of 64 steps of 5 ms, in lock step and one version ahead.
- *learners*: a hundred times as many passes over a batch, in lock step and one version ahead.
- *relay*: rollouts of 6 steps, by four times as many workers. With 4 steps they would fill the cores.
- *turn*: rollouts of 4 steps by few workers: what is left is the way back to the next step.
- *link in*: observations of 256 numbers over links of 1 MB/s.
- *link out*: networks of 256, 256 units over links of 10 MB/s.

The launcher's costs come from runs on one host with 4 and with 16 workers, whose rollouts have 8 steps: in longer ones
a small error of the time of a step would be a large one of the way back. A learner's times for a pass over a batch and
for a row come from two runs on this machine alone with a hundred times as many passes, over the batches of 4 and of 16
workers. The time for a row is taken to grow with the passes; where networks are larger, passes are so few that it does
not matter.

Three hosts with many short rollouts fill this machine's cores, although all environments sleep: the task *relay* took
86% of them with rollouts of 4 steps, and takes 64 to 74% with 6. Hosts on machines of their own would not. So the model
of these hosts also has the cores that they share with the launcher, and the processor time that a rollout and a version
take. Runs on one host and on three tell that time, and two on this machine alone, with 1 and with 16 workers, that of a
step: what a batch takes beside its steps is in both. What a step takes beside its sleep is no measure of it: timers are
late.
Learners have one thread, so the processor time of one is the time that it learns. It shares the cores as well: with
hosts at work beside it, a batch took it 0.30 to 0.36 s in place of 0.25 to 0.29 s.

Limited links are those of network namespaces: they need root and iproute2.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median, mode
from typing import Any, NamedTuple

import numpy as np

from benchmarks.bars import Bar
from benchmarks.busy_cores import BusyCores
from benchmarks.hosts import BIN, Host, Hosts
from benchmarks.runs import curve, flags, idle, rate, train
from benchmarks.simulated_cluster import BATCHES, WARM_UP, Cluster, Costs, Setting, Shared
from benchmarks.sleeping import NUMBERS
from penstock.metrics.report import STEPS_PER_SECOND

WITHIN = 0.2
FEW, MANY = 4, 16
"""Workers of the two runs on one host that tell the cost of one more rollout."""
SHORT = 8
"""Steps of a rollout in these runs."""
EPOCHS = 10
"""Passes over a batch in these runs."""
TIMES = 100
"""How many times as many the runs have that tell a learner's time for a pass and for a row."""
MOST = 3
"""Hosts beside the launcher's."""
LIMIT_S = 300.0
ROW_BYTES = 54
"""Of a row without its observation: action, reward, ends, log-probability, value."""
FRAME_BYTES, HEADER_BYTES = 1514, 66
"""Of TCP over Ethernet: a full frame, and the part of it that is not the program's."""

Trains = Callable[[Path, Sequence[str]], Path]
"""Trains by these words of the command line, and returns the run folder, which is in a folder."""


@dataclass(frozen=True)
class Task:
    """What real hosts train and the model simulates. It has the name of its limit."""

    name: str
    hosts: tuple[int, ...] = (1, MOST)
    lags: tuple[int, ...] = (0,)
    workers: int = 4
    """Environment processes of a host."""
    num_steps: int = 16
    numbers: int = NUMBERS
    """Of an observation."""
    hidden: tuple[int, int] = (64, 64)
    """Units of each of two networks."""
    epochs: int = EPOCHS
    batches: int = BATCHES
    link_bytes_s: float | None = None
    """Of each host's link, headers included; ``None``: as fast as this machine can."""

    @property
    def row_bytes(self) -> int:
        """What a rollout holds for each row."""
        return ROW_BYTES + 4 * self.numbers

    @property
    def weights_bytes(self) -> int:
        """Of the networks for two actions and for the value."""
        first, second = self.hidden
        shared = (self.numbers + 1) * first + (first + 1) * second
        return 4 * (2 * shared + (second + 1) * 3)


TASKS = (
    Task("workers", hosts=(1, 2, MOST), lags=(0, 1), num_steps=64),
    Task("learners", lags=(0, 1), epochs=TIMES * EPOCHS),
    Task("relay", workers=16, num_steps=6, batches=100),
    Task("turn", workers=2, num_steps=4, batches=100),
    Task("link in", numbers=256, hidden=(16, 16), epochs=1, link_bytes_s=1e6),
    Task("link out", hidden=(256, 256), epochs=1, link_bytes_s=1e7),
)
COSTLY = Task("costs", num_steps=SHORT, batches=200)
"""What the runs train that tell the costs."""


class Measured(NamedTuple):
    """What the model is fed with."""

    costs: Costs
    step_s: float
    """One step of a sleeping environment with its action."""
    step_work_s: float
    """Processor time of such a step."""
    rollout_work_s: float
    """Processor time of a host and the launcher for a rollout, without its steps."""
    version_work_s: float
    """Processor time of a host for a version."""

    def shared(self, task: Task) -> Shared:
        """What imitated hosts that train a task take of this machine's cores."""
        rollout = self.rollout_work_s + task.num_steps * self.step_work_s
        return Shared(len(os.sched_getaffinity(0)), rollout, self.version_work_s)


class Run(NamedTuple):
    """A real run in lock step, or one version ahead."""

    period_s: float
    """Of one batch."""
    learn_s: float
    """The learner's time for one batch."""
    steps_per_s: float
    work_s: float
    """Processor time of the whole machine for one batch."""


def trained(task: Task, workers: int, words: Sequence[str] = (), *, lag: int = 0, trains: Trains = train) -> Run:
    """Train a task with so many workers: with these words on a cluster, without any on this machine alone."""
    sizes = {
        "env": "benchmarks.sleeping:fixed",
        "env_args": json.dumps({"numbers": task.numbers}),
        "num_envs": workers,
        "num_workers": workers,
        "num_steps": task.num_steps,
        "hidden_sizes": ",".join(map(str, task.hidden)),
        "epochs": task.epochs,
        "threads": 1,
        "timesteps": task.batches * workers * task.num_steps,
        "sync_mode": "non_blocking" if lag else "blocking",
        "eval_episodes": 0,
        "log_interval": 1,
    }
    ahead = ["--max_policy_lag", str(lag)] if lag else []
    with tempfile.TemporaryDirectory() as folder:
        with BusyCores(Path(folder)) as cores:
            run = trains(Path(folder), [*flags(sizes), *ahead, *words])
        steps = rate(curve(run, STEPS_PER_SECOND), WARM_UP)
        period = workers * task.num_steps / steps
        work = cores.a_report((run / "metrics.jsonl").read_bytes(), WARM_UP)
        return Run(period, period * (1 - idle(run, WARM_UP)["learner"]), steps, work)


@contextmanager
def quick_hosts(number: int) -> Iterator[str]:
    """Hosts of Ray on this machine beside a launcher's without environments. Gives the address."""
    # Imported here, because the tables need no Ray.
    from ray.cluster_utils import Cluster as RayCluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    memory = {"object_store_memory": 200_000_000}
    made = RayCluster(initialize_head=True, head_node_args={**memory, "num_cpus": 0, "include_dashboard": False})
    try:
        for host in range(number):
            made.add_node(**memory, num_cpus=MANY, resources={f"host{host}": 1})
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


def measure() -> Measured:
    """The costs of this machine. Nothing else may run on it."""
    alone, crowd = (trained(COSTLY, workers) for workers in (1, MANY))
    often = replace(COSTLY, epochs=TIMES * EPOCHS, batches=2 * BATCHES)
    slow, slowest = (trained(often, workers) for workers in (FEW, MANY))
    with quick_hosts(1) as address:
        carried = bytes_a_second(address)
        few, many = (trained(COSTLY, workers, on_cluster(address)) for workers in (FEW, MANY))
    with quick_hosts(MOST) as address:
        apart = trained(COSTLY, FEW, on_cluster(address))
    return measured_by(Runs(alone, crowd, slow, slowest, few, many, apart), carried)


class Runs(NamedTuple):
    """The runs that tell the costs."""

    alone: Run
    """One worker, without a cluster."""
    crowd: Run
    """``MANY`` workers, without a cluster."""
    slow: Run
    """``FEW`` workers, without a cluster, and ``TIMES`` as many passes over a batch."""
    slowest: Run
    """The same with ``MANY`` workers."""
    few: Run
    """``FEW`` workers on one host."""
    many: Run
    """``MANY`` workers on one host."""
    apart: Run
    """``FEW`` workers on ``MOST`` hosts."""


def measured_by(runs: Runs, local_bytes_s: float) -> Measured:
    """The costs that explain these runs."""
    few, many = runs.few, runs.many
    step = (runs.alone.period_s - runs.alone.learn_s) / SHORT
    row = max(0.0, (runs.slowest.learn_s - runs.slow.learn_s) / (TIMES * (MANY - FEW) * SHORT))
    passes = max(0.0, (runs.slow.learn_s - few.learn_s) / (TIMES - 1) - FEW * SHORT * row)
    over = [run.period_s - run.learn_s - SHORT * step for run in (few, many)]
    rollout = max(0.0, (over[1] - over[0]) / (MANY - FEW))
    costs = Costs(
        rollout_s=rollout,
        turn_s=max(0.0, over[0] - FEW * rollout),
        batch_s=max(0.0, few.learn_s - FEW * SHORT * row - passes),
        pass_s=passes / EPOCHS,
        row_s=row,
        local_bytes_s=local_bytes_s,
    )
    step_work = max(0.0, _work_more(runs.crowd, runs.alone)) / ((MANY - 1) * SHORT)
    of_rollout = _work_more(many, few) / (MANY - FEW) - SHORT * step_work
    of_version = (runs.apart.work_s - few.work_s) / (MOST - 1)
    return Measured(costs, step, step_work, max(0.0, of_rollout), max(0.0, of_version))


def _work_more(more: Run, less: Run) -> float:
    """How much more processor time one run takes than another for a batch, beside their learners."""
    return more.work_s - more.learn_s - (less.work_s - less.learn_s)


def on_cluster(address: str) -> list[str]:
    """The words of the command line that train on a cluster."""
    return ["--runtime", "ray", "--address", address]


def checked(tasks: Sequence[Task], measured: Measured) -> list[dict[str, Any]]:
    """Real runs on hosts of this machine beside the model."""
    quick = [task for task in tasks if task.link_bytes_s is None]
    rows = []
    for number in sorted({number for task in quick for number in task.hosts}):
        with quick_hosts(number) as address:
            for task in quick:
                for lag in task.lags if number in task.hosts else ():
                    real = trained(task, number * task.workers, on_cluster(address), lag=lag)
                    rows.append(_beside(real, task, number, lag, measured))
    limited = [task for task in tasks if task.link_bytes_s is not None]
    return rows + (_checked_over_links(limited, measured) if limited else [])


def _checked_over_links(tasks: Sequence[Task], measured: Measured) -> list[dict[str, Any]]:
    rows = []
    workers = max(task.workers for task in tasks)
    everywhere = {"CPU": workers, "any": workers}
    resources = [{"CPU": 0}, {**everywhere, "first": workers}, *[everywhere] * (MOST - 1)]
    with tempfile.TemporaryDirectory(prefix="penstock-model-") as folder, Hosts(resources, Path(folder)) as hosts:
        for task in tasks:
            for host in hosts.all:
                host.limit(task.link_bytes_s or 0.0)
            for number, where in ((1, "first"), (MOST, "any")):
                words = [*on_cluster(hosts.address), "--resources", f"env: {{{where}: 1}}"]
                real = trained(task, number * task.workers, words, trains=_trains_on(hosts.all[0]))
                rows.append(_beside(real, task, number, 0, measured))
    return rows


def _trains_on(host: Host) -> Trains:
    """Trains on a host in a network namespace."""

    def there(folder: Path, words: Sequence[str]) -> Path:
        command = host.popen([str(BIN / "penstock"), "train", *words, "--log_dir", str(folder)])
        if status := command.wait(LIMIT_S):
            raise RuntimeError(f"the run in {folder} ended with {status}")
        (run,) = folder.glob("[!.]*")
        return run

    return there


def _beside(real: Run, task: Task, hosts: int, lag: int, measured: Measured) -> dict[str, Any]:
    """One row: a real run beside the model."""
    costs, shared = measured.costs, measured.shared(task)
    setting = setting_of(task, lag, costs, measured.step_s)
    whole = Cluster(setting, costs, hosts, shared).run()
    row: dict[str, Any] = {
        "task": task.name,
        "hosts": hosts,
        "lag": lag,
        "measured": round(real.steps_per_s, 1),
        "model": round(whole.steps_per_s, 1),
        "off": round(whole.steps_per_s / real.steps_per_s - 1, 3),
        "limit": whole.limit,
        "cores_busy": round(real.work_s / real.period_s / shared.cores, 2),
    }
    if (less := without(task.name, setting, costs)) is not None:
        found = Cluster(*less, hosts, shared).run().steps_per_s
        row |= {"model_without": round(found, 1), "off_without": round(found / real.steps_per_s - 1, 3)}
    print(row, flush=True)
    return row


def setting_of(task: Task, lag: int, costs: Costs, step_s: float) -> Setting:
    """What the model simulates for a task."""
    share = (FRAME_BYTES - HEADER_BYTES) / FRAME_BYTES
    return Setting(
        name=task.name,
        workers=task.workers,
        lanes=1,
        num_steps=task.num_steps,
        step_s=step_s,
        row_bytes=task.row_bytes,
        weights_bytes=task.weights_bytes,
        link_bytes_s=costs.local_bytes_s if task.link_bytes_s is None else share * task.link_bytes_s,
        row_s=costs.row_s * task.epochs / EPOCHS,
        spread=0.0,
        lag=lag,
        epochs=task.epochs,
    )


def without(name: str, setting: Setting, costs: Costs) -> tuple[Setting, Costs] | None:
    """The same if the limit of this name cost nothing; ``None`` for workers, without which nothing is left."""
    return {
        "learners": (replace(setting, row_s=0.0), replace(costs, pass_s=0.0)),
        "relay": (setting, replace(costs, rollout_s=0.0)),
        "turn": (setting, replace(costs, turn_s=0.0)),
        "link in": (replace(setting, row_bytes=0), costs),
        "link out": (replace(setting, weights_bytes=0), costs),
    }.get(name)


def median_measured(rounds: Sequence[Measured]) -> Measured:
    """The median of each figure over some rounds."""
    costs = {name: median(asdict(one.costs)[name] for one in rounds) for name in asdict(rounds[0].costs)}
    return Measured(Costs(**costs), *(median(values) for values in zip(*(one[1:] for one in rounds), strict=True)))


def median_check(rounds: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The rows of some rounds as one: the median of each number. ``limit`` is the most frequent one.

    ``off`` compares a real run with a model whose costs were measured in the same round. It is therefore not the
    quotient of the two median speeds.
    """
    rows = []
    for runs in zip(*rounds, strict=True):
        named = {name: mode(run[name] for run in runs) for name in ("task", "hosts", "lag", "limit")}
        rows.append({name: named[name] if name in named else median(run[name] for run in runs) for name in runs[0]})
    return rows


def bars_of(check: Sequence[dict[str, Any]]) -> list[Bar]:
    """How far the model is off; and that it would be farther off without each of the costs that it was given."""
    worst = max(abs(row["off"]) for row in check)
    bars = [Bar("model beside real hosts, largest difference", worst, WITHIN, at_most=True)]
    for name in dict.fromkeys(row["task"] for row in check if "off_without" in row):
        found = max(abs(row["off_without"]) for row in check if row["task"] == name)
        bars.append(Bar(f"the same if {name} cost nothing, largest difference", found, WITHIN))
    return bars
