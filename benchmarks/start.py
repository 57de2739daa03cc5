"""How soon processes start, and how much an environment process holds; floors beside.

    python -m benchmarks.start                  # 7 rounds, about 15 seconds
    python -m benchmarks.start --write FILE

An environment process is the real worker with one EnvNode of 4 Pendulum environments, started as the local runtime
starts it. Its time runs from its spawn to its first finished vector step.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.measured import Kind, Measured, parser, report
from penstock.algorithms.ppo.spec import PPOConfig, init_state, spec
from penstock.envs.sources import probe
from penstock.inference import native
from penstock.memory.board import Board as BoardMemory
from penstock.memory.segment import Segment
from penstock.memory.stream import Stream as StreamMemory
from penstock.nodes.contract import LaneStart
from penstock.nodes.env import EnvSettings
from penstock.policies.acting import PolicySettings
from penstock.policies.exploration import Exploration
from penstock.processes.starts import Processes
from penstock.processes.worker import WorkerSpec
from penstock.program.graph import ActionLog, Ask, Board, LocalAnswer, NodeSpec, Program, Stream
from penstock.program.rollout import rollout_specs
from penstock.types import BackendSpec
from penstock.wiring.edges import Wiring, placement

LANES = 4
NAME = "env.0"
CASE = "from a process's start to its work"
FIRST_US, MEGABYTES = 300_000.0, 40.0
"""The bars of an environment process: microseconds to its first step, and MB of its own memory."""
COMMANDS = {
    "penstock --help": ("-m", "penstock", "--help"),
    "python with NumPy": ("-c", "import numpy"),
    "python alone": ("-c", "pass"),
}


def one_environment_node() -> tuple[Program, dict[str, Any]]:
    """A program of one EnvNode whose rollouts are a single step, and the parameters it acts with."""
    profile, config = probe("Pendulum-v1"), PPOConfig()
    algorithm = spec(profile.spaces, config)
    starts = tuple(LaneStart() for _ in range(LANES))
    settings = EnvSettings("Pendulum-v1", False, (), profile.spaces, 0, 1, 0, LANES, 1, 1, 0, starts, "stop", 60.0)
    backend = BackendSpec(f"{native.__name__}:build", (algorithm.policy,))
    exploration = Exploration(algorithm.explore, algorithm.warmup, LANES, 1.0)
    policy = PolicySettings(backend, algorithm.policy, profile.spaces, algorithm.row, 0, exploration)
    rollout = rollout_specs(profile.spaces, algorithm.row, 1, LANES, same_step=profile.same_step)
    edges = (
        Stream("rollouts", (NAME,), (NAME,), rollout, 1, "wait"),
        ActionLog(f"actions.{NAME}", NAME, (), LANES, ("obs",), profile.spaces.action_spec(), 100),
        Board("policy", NAME, (NAME,), algorithm.published()),
        Ask("act", (NAME,), "policy", LocalAnswer("local_policy", policy)),
    )
    program = Program((NodeSpec(NAME, "env", settings, NAME),), edges, (NAME,))
    return program, init_state(profile.spaces, config, 0)


def environment_process() -> tuple[float, float]:
    """Seconds from spawn to the first finished vector step, and MB of the process's own memory (PSS)."""
    program, state = one_environment_node()
    wiring = Wiring(program.edges, [(NAME, NAME)])
    segment = Segment.create(wiring.nbytes, "start")
    wiring.attach(segment.bytes)
    board, stream = program.edge("policy"), program.edge("rollouts")
    BoardMemory(wiring.bytes_of("policy"), board.arrays).publish(state, 0)
    rollouts = StreamMemory(wiring.bytes_of("rollouts"), stream.arrays, 1)
    processes = Processes()
    begun = time.perf_counter()
    processes.start(segment, WorkerSpec(placement(program, NAME), {NAME: 1}, {NAME: ()}), 1)
    while not rollouts.ready():
        if processes.exits():
            raise RuntimeError("the environment process ended early")
        time.sleep(0.0005)
    seconds = time.perf_counter() - begun
    megabytes = memory(processes.pid(NAME)) / 1024
    processes.close()
    return seconds, megabytes


def memory(pid: int) -> int:
    """Proportional set size of a process, in KiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def command(*words: str) -> float:
    """Wall seconds of a command."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    return time.perf_counter() - begun


def measure(repeats: int) -> tuple[list[Measured], float]:
    """The compared rows, alternating, and the MB of an environment process."""
    own: list[tuple[float, float]] = []
    seconds: dict[str, list[float]] = {what: [] for what in COMMANDS}
    for _ in range(repeats):
        own.append(environment_process())
        for what, words in COMMANDS.items():
            seconds[what].append(command(*words))
    first = statistics.median(value for value, _ in own)
    rows = [Measured(CASE, "environment process, to its first step", "penstock", round(first * 1e6), None, FIRST_US)]
    for what, values in seconds.items():
        kind: Kind = "penstock" if what.startswith("penstock") else "limit"
        rows.append(Measured(CASE, what, kind, round(statistics.median(values) * 1e6)))
    return rows, round(statistics.median(megabytes for _, megabytes in own), 1)


def main() -> None:
    """Measure, print, and write the result."""
    arguments = parser("start", __doc__, rounds=7)
    args = arguments.parse_args()
    rows, megabytes = measure(args.rounds)
    print(f"an environment process holds {megabytes} MB of its own (may be {MEGABYTES:g})")
    memory_mb = {"environment_process_pss_mb": megabytes, "environment_process_pss_may_be_mb": MEGABYTES}
    report(arguments, args, rows, memory_mb)


if __name__ == "__main__":
    main()
