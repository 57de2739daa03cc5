"""Asking a policy node: the round trip of a question, and steps per second beside inference in place.

    python -m benchmarks.central_inference                # about 8 minutes on 2 cores
    python -m benchmarks.central_inference --write FILE

1. Round trip: a process writes an observation, asks, and sleeps until the action is readable. A second process is a
   policy node, and sleeps in between, too. Beside it: the same policy in place, and as the physical limit two processes
   that wake each other and compute nothing. The bar for one lane is 120 us at the median.
2. Steps per second of CartPole-v1 by network and lanes, in place and with a policy node. Two environment processes step
   there, or four: then some step while others wait. The policy node answers what has arrived, or waits up to 2 ms for
   all or for half of the lanes. A sink takes the learner's place.
"""

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import penstock
from benchmarks.arguments import positive_float, positive_int
from benchmarks.crossing import PAUSE_S, shared
from benchmarks.measured import Measured, parser, report
from benchmarks.sink import without_learning
from benchmarks.timing import Contestant, compare
from penstock.memory.doorbell import Doorbells
from penstock.memory.segment import Segment
from penstock.planning import plan, prepare
from penstock.processes.starts import Processes
from penstock.processes.worker import WorkerSpec, run_nodes
from penstock.program.graph import Program
from penstock.program.plan import Plan
from penstock.registry import load
from penstock.runtime.local import launch
from penstock.topologies.async_on_policy import build
from penstock.types import Array, Arrays
from penstock.wiring.edges import Placement, Wiring, placement
from penstock.wiring.ports import NodePorts

_FORK = multiprocessing.get_context("fork")
# With fork both sides hold the same segment. No thread has been started before.

NUM_STEPS = 128
MAY_BE_US = 120.0
SMALL = (64, 64)
TRIP_LANES = (1, 8, 64)
HIDDEN = (64, 256, 512, 1024)
LANES = (8, 64)
ENV, NODE, LEARNER = 1, 2, 3
"""Lives."""


class Place(NamedTuple):
    """Where the policy runs, and in how many processes environments step."""

    settings: Mapping[str, Any]
    together: int = 1
    """Environment nodes in one process. They take turns: one steps while the other waits."""


def places(lanes: int) -> dict[str, Place]:
    """What is compared where so many lanes are stepped."""
    node = {"policy_placement": "node"}
    waiting = {**node, "num_workers": 4, "max_wait": 0.002}
    halves = {**waiting, "max_batch": lanes // 2}
    return {
        "in place": Place({"policy_placement": "env", "num_workers": 2}),
        "policy node": Place({**node, "num_workers": 2}),
        "4 processes": Place({**node, "num_workers": 4}),
        "4 processes, max_wait 2 ms": Place(waiting),
        "4 processes, max_wait 2 ms, half of the lanes a batch": Place(halves),
        "2 processes of 2 nodes, else the same": Place(halves, together=2),
    }


def settled(folder: Path, **settings: object) -> Plan:
    """The plan of PPO on CartPole-v1 with native networks."""
    fixed = {"env": "CartPole-v1", "num_steps": NUM_STEPS, "backend": "fused", "inference": "native"}
    with Processes() as processes:
        config = penstock.from_mapping({**fixed, **settings, "log_dir": str(folder)})
        return plan(prepare(config, processes), folder, quiet=True)


def published(of: Plan) -> Arrays:
    """The first parameters and statistics."""
    state = load(of.learning.initial)(of.spaces, of.learning.algorithm_config, of.run.seed)
    return {part.name: state[part.name] for part in of.learning.spec.published()}


class Asking:
    """The end of an environment process. If the plan has a policy node, it runs in a process of its own."""

    def __init__(self, of: Plan) -> None:
        program = build(of)
        wiring = Wiring(program.edges, [(node.name, node.group) for node in program.nodes])
        self._segment = Segment.create(wiring.nbytes, "benchmark")
        wiring.attach(self._segment.bytes)
        NodePorts(wiring, "learner", "learner", LEARNER).board_writer("policy").publish(published(of), 0)
        self._bells, self._bell = wiring.bells, wiring.bell_of("env.0")
        parts = [placement(program, group) for group in program.groups if group == "policy.0"]
        self._others = [_FORK.Process(target=_answer, args=(part, self._segment), daemon=True) for part in parts]
        for other in self._others:
            other.start()
        ports = NodePorts(wiring, "env.0", "env.0", ENV)
        stream, self._policy = ports.stream_writer("rollouts"), ports.policy("act", 0, of.run.num_envs)
        index = stream.claim(0)
        if index is None:
            raise RuntimeError("a new stream has no free slot")
        self._slot = stream.slot(index)
        self._handle = self._policy.bind(self._slot)
        self._policy.refresh()
        self._obs = np.full_like(self._slot["obs"][0], 0.1)
        self._step = 0

    def ask(self) -> None:
        """Write an observation, ask, and sleep until the action is readable."""
        row = self._step % NUM_STEPS
        self._slot["obs"][row] = self._obs
        self._policy.ask(self._handle, row, self._step)
        while True:
            seen = self._bells.word(self._bell)
            if self._policy.answered():
                break
            self._bells.wait(self._bell, seen)
        self._step += 1

    def close(self) -> None:
        """End the second process."""
        for other in self._others:
            other.kill()
            other.join()


def _answer(part: Placement, segment: Segment) -> None:
    (node,) = part.nodes
    run_nodes(WorkerSpec(part, {node.name: NODE}, {node.name: ()}), segment)


class Bells:
    """Two processes that wake each other and compute nothing."""

    def __init__(self) -> None:
        self._bells = Doorbells(shared(Doorbells.required(2)), 2)
        self._other = _FORK.Process(target=self._echo, daemon=True)
        self._other.start()

    def there_and_back(self) -> None:
        """Wake the other process, and sleep until it wakes this one."""
        seen = self._bells.word(0)
        self._bells.ring(1)
        while self._bells.word(0) == seen:
            self._bells.wait(0, seen)

    def close(self) -> None:
        """End the second process."""
        self._other.kill()
        self._other.join()

    def _echo(self) -> None:
        seen = 0
        while True:
            while (word := self._bells.word(1)) == seen:
                self._bells.wait(1, word)
            seen = word
            self._bells.ring(0)


def after_a_pause(function: Callable[[], object], calls: int) -> Callable[[], Array]:
    """A round of calls, each timed. Before each of them the other process falls asleep, as while environments step."""

    def run() -> Array:
        seconds = np.empty(calls)
        for number in range(calls):
            end = time.perf_counter() + PAUSE_S
            while time.perf_counter() < end:
                pass
            begun = time.perf_counter()
            function()
            seconds[number] = time.perf_counter() - begun
        return seconds

    return run


def round_trips(lanes: int, rounds: int, calls: int, folder: Path) -> list[Measured]:
    """The rows of one width."""
    sizes = {"num_envs": lanes, "num_workers": 1, "mini_batch_size": NUM_STEPS, "hidden_sizes": SMALL}
    node, here = (Asking(settled(folder, policy_placement=place, **sizes)) for place in ("node", "env"))
    bells = Bells()
    contestants = [
        Contestant("policy node", "penstock", after_a_pause(node.ask, calls)),
        Contestant("in place", "penstock", after_a_pause(here.ask, calls)),
        Contestant("two wake-ups alone", "limit", after_a_pause(bells.there_and_back, calls)),
    ]
    case = f"round trip: two networks of {SMALL[0]}, {SMALL[1]}, {lanes} lane{'s' * (lanes > 1)}"
    try:
        first, *others = compare(case, contestants, rounds)
    finally:
        for end in (node, here, bells):
            end.close()
    return [first._replace(may_be_us=MAY_BE_US) if lanes == 1 else first, *others]


def grouped(program: Program, together: int) -> Program:
    """The program with so many environment nodes in each of their processes."""
    for number, node in enumerate([node for node in program.nodes if node.kind == "env"]):
        program = program.with_node(replace(node, group=f"env.{number - number % together}"))
    return program


def throughput(hidden: int, lanes: int, place: Place, seconds: float, folder: Path) -> float:
    """Steps per second of environment processes that share so many lanes."""
    sizes = {"num_envs": lanes, "mini_batch_size": NUM_STEPS, "hidden_sizes": (hidden, hidden)}
    program = build(settled(folder, **sizes, **place.settings))
    program = without_learning(grouped(program, place.together), warm_up=8, seconds=seconds)
    with Processes() as processes:
        record = launch(program, processes).record
    return float(record["steps"] / record["elapsed_s"])


def widths(hidden: Sequence[int], lanes: Sequence[int], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Steps per second of each network and width, and what they are beside those in place; medians over the rounds."""
    found = []
    for units, count in product(hidden, lanes):
        compared = places(count)
        rates: dict[str, list[float]] = {name: [] for name in compared}
        for _ in range(rounds):
            for name, place in compared.items():
                with tempfile.TemporaryDirectory() as folder:
                    rates[name].append(throughput(units, count, place, seconds, Path(folder)))
        steps_per_s = {name: round(statistics.median(values)) for name, values in rates.items()}
        beside = {name: round(value / steps_per_s["in place"], 3) for name, value in steps_per_s.items()}
        print(f"{units}, {units} units, {count} lanes: {steps_per_s} steps/s; beside in place: {beside}", flush=True)
        found.append({"hidden": units, "lanes": count, "steps_per_s": steps_per_s, "beside_in_place": beside})
    return found


def main() -> None:
    """Measure, print, and write the result."""
    arguments = parser("central_inference", __doc__, rounds=3)
    arguments.add_argument("--calls", type=positive_int, default=1000, help="questions of a round")
    arguments.add_argument("--seconds", type=positive_float, default=2.0, help="seconds of each throughput")
    arguments.add_argument("--trips", nargs="+", type=positive_int, default=list(TRIP_LANES), help="lanes that ask")
    arguments.add_argument("--hidden", nargs="+", type=positive_int, default=list(HIDDEN), help="units of both layers")
    arguments.add_argument("--lanes", nargs="+", type=positive_int, default=list(LANES))
    args = arguments.parse_args()
    rows = []
    for lanes in args.trips:
        with tempfile.TemporaryDirectory() as folder:
            rows += round_trips(lanes, args.rounds, args.calls, Path(folder))
    rates = widths(args.hidden, args.lanes, args.rounds, args.seconds)
    report(arguments, args, rows, {"throughput": rates})


if __name__ == "__main__":
    main()
