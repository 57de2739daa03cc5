"""Training through 16 sessions of games over TCP, beside the same environment in-process: steps a second of APPO.

    python -m benchmarks.games                              # a minute
    python -m benchmarks.games --rounds 1 --batches 2       # to see that it runs

A step of the environment takes 200 µs of a processor (`benchmarks/busy.py`).

- In-process: as many environment processes as cores step the 16 lanes.
- Through games: as many game processes as cores play the 16 sessions, in C++ (`benchmarks/busy.cpp`, which needs a
  compiler) and in Python. They share the cores with the run. Either each session is a game of one agent with its own
  connection, or four sessions are the agents of one game, which act together over one connection.

All take turns, and a figure is the median over the rounds. Bar: games in C++ make at least 60 % of the steps a second
of the environment in-process, with one agent and with four. Games in Python have no bar.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.arguments import positive_int
from benchmarks.bars import Bar, exit_status
from benchmarks.programs import built
from benchmarks.record import ROOT, command_of, destination, write
from benchmarks.runs import curve, flags, rate, train
from penstock.metrics.report import STEPS_PER_SECOND

SESSIONS, NUM_STEPS, SKIP = 16, 64, 1
AGENTS = 4
"""Of each game whose agents act together."""
SHARE = 0.6
HEADERS = [f"-I{ROOT / path}" for path in ("clients/cpp/include", "native/gamecore/include")]


def in_process(batches: int, processes: int) -> float:
    """Steps a second of a run that steps the environment itself."""
    return _trained(["--env", "benchmarks.busy:Busy", *flags({"num_workers": processes})], batches)


def through_games(game: Sequence[str | Path], agents: int, batches: int, processes: int) -> float:
    """Steps a second of a run that games connect to, each with so many agents. A game's command gets more arguments."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    each = [SESSIONS // processes + (number < SESSIONS % processes) for number in range(processes)]
    # A client waits until the run listens.
    games = [
        subprocess.Popen(
            [*game, "127.0.0.1", str(port), *flags({"sessions": n, "agents": agents, "name": f"busy-{number}"})],
            cwd=ROOT,
        )
        for number, n in enumerate(each)
    ]
    try:
        return _trained(["--env", "gamecore://benchmarks.busy:BusyAgent", "--tcp_port", str(port)], batches)
    finally:
        for one in games:
            one.terminate()
            one.wait()


def _trained(words: list[str], batches: int) -> float:
    sizes = {"algo": "appo", "num_envs": SESSIONS, "num_steps": NUM_STEPS, "eval_episodes": 0}
    steps = (batches + SKIP + 1) * SESSIONS * NUM_STEPS
    with tempfile.TemporaryDirectory() as folder:
        run = train(Path(folder), [*words, *flags({**sizes, "timesteps": steps})])
        return rate(curve(run, STEPS_PER_SECOND), SKIP)


def main() -> int:
    """Measure both in turns, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive_int, default=3)
    parser.add_argument("--batches", type=positive_int, default=40, help="batches that are measured in each round")
    parser.add_argument("--write", type=destination, help="write the result here as JSON")
    args = parser.parse_args()
    processes = min(SESSIONS, len(os.sched_getaffinity(0)))
    commands: dict[str, Sequence[str | Path]] = {
        "games in C++": [built("busy", ["-O2", "-std=c++17", "-pthread", *HEADERS])],
        "games in Python": [sys.executable, "-m", "benchmarks.busy"],
    }
    games: dict[str, tuple[Sequence[str | Path], int]] = {
        name if agents == 1 else f"{name}, {agents} agents each": (command, agents)
        for name, command in commands.items()
        for agents in (1, AGENTS)
    }
    found: dict[str, list[float]] = {"in-process": [], **{what: [] for what in games}}
    for number in range(args.rounds):
        found["in-process"].append(in_process(args.batches, processes))
        for what, (game, agents) in games.items():
            found[what].append(through_games(game, agents, args.batches, processes))
        print(f"round {number}: " + ", ".join(f"{what} {rates[-1]:,.0f} steps/s" for what, rates in found.items()))
    middle = {what: statistics.median(rates) for what, rates in found.items()}
    shares = {what: middle[what] / middle["in-process"] for what in games}
    bars = [Bar(f"{what}, share of in-process", share, SHARE) for what, share in shares.items() if "C++" in what]
    for bar in bars:
        print(bar.line())
    for what in [what for what in games if "Python" in what]:
        print(f"{what}: {shares[what]:.2f} of in-process")
    if args.write:
        command = command_of("python -m benchmarks.games")
        rows = [
            {"what": what, "steps_per_s": round(rate, 1), "rounds": [round(one, 1) for one in found[what]]}
            for what, rate in middle.items()
        ]
        write(args.write, {"command": command, "bars": [bar.entry() for bar in bars], "rows": rows})
    return exit_status(bars)


if __name__ == "__main__":
    sys.exit(main())
