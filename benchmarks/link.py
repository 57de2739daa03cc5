"""Two learners over a simulated link of 100 Mbit/s: bytes of an update, and how fast they learn, by compression.

    python -m benchmarks.link                       # three seeds, some minutes on 2 cores
    python -m benchmarks.link --write FILE
    python -m benchmarks.plots link                 # draws the committed result

PPO on CartPole-v1 with ``--learners 2 --exchange allreduce``. The learners meet in shared memory as ever. Then each
waits as long as the bytes that it has sent take at 100 Mbit/s, and half a millisecond: the way to the other machine.
The first row has no link. Returns are those of the last 100 training episodes.
"""

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import penstock
from benchmarks.arguments import positive_int
from benchmarks.record import command_of, destination, write
from benchmarks.runs import Curve, curve
from penstock.gradient_exchange.all_reduce import AllReduce
from penstock.gradient_exchange.feedback import ErrorFeedback
from penstock.gradient_exchange.meeting import signing
from penstock.nodes.contract import Ports
from penstock.nodes.learner import LearnerSettings, StreamReplicaSettings
from penstock.planning import plan, prepare
from penstock.processes.starts import Processes
from penstock.program.graph import Program
from penstock.registry import compression_of
from penstock.runtime.local import launch
from penstock.topologies.on_policy import build as build_program
from penstock.types import Array
from penstock.updates.settings import UpdaterSettings

LEARNERS = 2
BITS_PER_S = 100e6
LATENCY_S = 0.0005
SETTINGS = {
    "env": "CartPole-v1",
    "num_envs": 8,
    "num_workers": 2,
    "num_steps": 128,
    "epochs": 4,
    "mini_batch_size": 256,
    "lr": 1e-3,
    "learners": LEARNERS,
    "exchange": "allreduce",
    "save_interval": 10_000,
}
SOLVED = 475.0
CASES = (("none", False), ("none", True), ("int8", True), ("topk:0.1", True), ("topk:0.01", True))
"""Compression, and whether there is a link."""


def build(ports: Ports, settings: UpdaterSettings, learners: int) -> "Linked":
    """A learner's end of rounds whose gradients go over a link; as `penstock.gradient_exchange.all_reduce.build`."""
    del learners
    compression = compression_of(settings.compress)
    compressed = None if compression is None else ErrorFeedback(compression)
    return Linked(ports.rounds("gradients"), me=settings.learner, alive=signing(ports), compressed=compressed)


class Linked(AllReduce):
    """An all-reduce in which each learner's bytes take their time."""

    def _meet(self, payload: list[Array], weight: float) -> None:
        begun = time.perf_counter()
        super()._meet(payload, weight)
        end = begun + LATENCY_S + 8.0 * sum(values.nbytes for values in payload) / BITS_PER_S
        time.sleep(max(0.0, end - time.perf_counter()))


def linked(program: Program) -> Program:
    """The program with a link between its learners."""
    for node in program.nodes:
        if isinstance(node.settings, LearnerSettings | StreamReplicaSettings):
            epochs = replace(node.settings.epochs, team="benchmarks.link:build")
            program = program.with_node(replace(node, settings=replace(node.settings, epochs=epochs)))
    return program


def run(compress: str, link: bool, timesteps: int, seed: int) -> dict[str, Any]:
    """One training: bytes of an update, seconds, returns over steps and seconds."""
    with tempfile.TemporaryDirectory() as folder, Processes() as processes:
        settings = {**SETTINGS, "timesteps": timesteps, "compress": compress, "seed": seed, "log_dir": folder}
        program = build_program(plan(prepare(penstock.from_mapping(settings), processes), Path(folder), quiet=True))
        launch(linked(program) if link else program, processes)
        returns, sent = (curve(Path(folder), metric) for metric in ("rollout/return_mean", "exchange/bytes"))
    solved = first_at(returns, SOLVED)
    return {
        "bytes_an_update": statistics.median(sent.values),
        "seconds": returns.seconds[-1],
        "steps_per_s": returns.steps[-1] / returns.seconds[-1],
        "return": returns.values[-1],
        "steps_to_solve": None if solved is None else returns.steps[solved],
        "seconds_to_solve": None if solved is None else round(returns.seconds[solved], 2),
        "curve": returns._asdict(),
    }


def first_at(returns: Curve, threshold: float) -> int | None:
    """Place of the first return that reaches the threshold."""
    return next((place for place, value in enumerate(returns.values) if value >= threshold), None)


def main() -> int:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--timesteps", type=positive_int, default=200_000)
    parser.add_argument("--write", type=destination, help="file for the result; without it, results are only printed")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for compress, link in CASES:
        found = [run(compress, link, args.timesteps, seed) for seed in args.seeds]
        rows.append({"compress": compress, "link": link, "runs": found})
        means = {name: statistics.mean(one[name] for one in found) for name in ("bytes_an_update", "steps_per_s")}
        ends = [round(one["return"], 1) for one in found]
        solved = [one["seconds_to_solve"] for one in found]
        print(
            f"{compress}{', 100 Mbit/s' * link}: {means['bytes_an_update']:,.0f} bytes an update, "
            f"{means['steps_per_s']:,.0f} steps/s, return {ends}, seconds to {SOLVED:.0f}: {solved}",
            flush=True,
        )
    if args.write:
        command = command_of("python -m benchmarks.link")
        write(args.write, {"command": command, "timesteps": args.timesteps, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
