"""How soon things start and how much an environment process holds: floors beside each, medians of repeated runs.

    python -m benchmarks.start                  # 7 repeats, about 15 seconds
    python -m benchmarks.start --write FILE

An environment process is the real worker with one EnvNode of 4 Pendulum environments, started as the local runtime
does; its clock runs from its spawn to its first finished vector step.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.record import write
from penstock.algorithms.ppo.spec import PPOConfig, init_state, spec
from penstock.envs.sources import probe
from penstock.inference import native
from penstock.memory.board import Board as BoardMemory
from penstock.memory.segment import Segment
from penstock.memory.stream import Stream as StreamMemory
from penstock.node import LaneStart
from penstock.nodes.env import EnvSettings
from penstock.nodes.policy import PolicySettings
from penstock.program.graph import ActionLog, Ask, Board, LocalAnswer, NodeSpec, Program, Stream
from penstock.program.rollout import rollout_specs
from penstock.scheduler.processes import Processes
from penstock.scheduler.wiring import Wiring, placement
from penstock.scheduler.worker import WorkerSpec
from penstock.types import BackendSpec

LANES = 4
NAME = "env.0"


def one_environment_node() -> tuple[Program, dict[str, Any]]:
    """A program of one EnvNode whose rollouts are a single step, and the parameters it acts with."""
    profile, config = probe("Pendulum-v1"), PPOConfig()
    algorithm = spec(profile.spaces, config)
    starts = tuple(LaneStart() for _ in range(LANES))
    settings = EnvSettings("Pendulum-v1", False, profile.spaces, 0, 1, 0, LANES, 1, 0, starts, 60.0)
    backend = BackendSpec(f"{native.__name__}:build", (algorithm.policy,))
    policy = PolicySettings(backend, algorithm.policy, algorithm.noise, profile.spaces, algorithm.row, 0)
    rollout = rollout_specs(profile.spaces, algorithm.row, 1, LANES, same_step=profile.same_step)
    edges = (
        Stream("rollouts", (NAME,), (NAME,), rollout, 1, "wait"),
        ActionLog(f"actions.{NAME}", NAME, (), LANES, ("obs",), profile.spaces.action_spec(), 100),
        Board("policy", NAME, (NAME,), algorithm.published()),
        Ask("act", (NAME,), "policy", LocalAnswer("policy", policy)),
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
    processes.start(segment, WorkerSpec(placement(program, NAME), {NAME: 1}), 1)
    while not rollouts.ready():
        if processes.exits():
            raise RuntimeError("the environment process ended early")
        time.sleep(0.0005)
    seconds = time.perf_counter() - begun
    megabytes = memory(processes.pid(NAME)) / 1024
    processes.kill_all()
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


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--write", type=Path, help="write the result here as JSON")
    args = parser.parse_args()
    environments = [environment_process() for _ in range(args.repeats)]
    result = {
        "command": "python -m benchmarks.start",
        "environment_process_first_step_s": statistics.median(seconds for seconds, _ in environments),
        "environment_process_pss_mb": statistics.median(megabytes for _, megabytes in environments),
        "penstock_help_s": statistics.median(command("-m", "penstock", "--help") for _ in range(args.repeats)),
        "floor_python_with_numpy_s": statistics.median(command("-c", "import numpy") for _ in range(args.repeats)),
        "floor_python_s": statistics.median(command("-c", "pass") for _ in range(args.repeats)),
    }
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in result.items()}
    print("RESULT", json.dumps(rounded))
    if args.write:
        write(args.write, rounded)


if __name__ == "__main__":
    main()
