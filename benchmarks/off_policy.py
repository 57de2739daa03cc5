"""SAC on Pendulum-v1 at the paper's sizes beside stable-baselines3, and two asynchronous learners: ratios first.

    python -m benchmarks.off_policy                     # 3 rounds; about 15 minutes on 2 cores
    python -m benchmarks.off_policy --rounds 1 --updates 200
    python -m benchmarks.off_policy --write FILE

Two layers of 256, minibatches of 256, one update for each environment step.

- Whole runs are measured in steady state, on both sides: environments, replay and learning are included; start-up,
  compilation and the time before the first update are not.
- Each side may have one or two threads. stable-baselines3 may step one environment before each update, as it does by
  default; or 8 environments 8 times before 64 updates, as ours does. Each side is judged by its best way.
- Every other round takes the ways in the opposite order.
- The first compilation of the update takes half a minute.

The result also has the idle share of each node. Does not judge how well anything learns: `benchmarks/learning` does.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.arguments import positive_int
from benchmarks.bars import Bar, exit_status
from benchmarks.peers.run import result_of
from benchmarks.record import command_of, destination, write
from benchmarks.runs import Curve, curve, flags, idle, rate, train
from penstock.metrics.report import STEPS_PER_SECOND

SETTING = {"algo": "sac", "env": "Pendulum-v1", "num_envs": 8, "num_steps": 8, "min_rows": 1000}
TURN = 8 * 8
SKIP = 1000 + 4 * TURN
"""Number of steps that are left out: those before the first update, and some more."""
WAYS = {
    "fused, lock step, 1 thread": ["--backend", "fused", "--threads", "1"],
    "fused, lock step, 2 threads": ["--backend", "fused", "--threads", "2"],
    "fused, overlapping, 2 threads": ["--backend", "fused", "--threads", "2", "--sync_mode", "non_blocking"],
    "compiled, lock step, 2 threads": ["--backend", "compiled", "--threads", "2"],
    "eager, lock step, 2 threads": ["--backend", "eager", "--threads", "2"],
}
TOGETHER = "two asynchronous learners, 1 thread each"
ASYNCHRONOUS = [
    *("--backend", "fused", "--threads", "1", "--sync_mode", "non_blocking", "--learners", "2"),
    *("--max_policy_lag", "10"),
]
AS_OURS = ["--num_envs", "8", "--train_freq", "8"]
PEERS = {
    "stable-baselines3, 1 environment, 1 thread": ["--threads", "1"],
    "stable-baselines3, 1 environment, 2 threads": ["--threads", "2"],
    "stable-baselines3, 8 environments, 64 updates each 8 steps, 1 thread": [*AS_OURS, "--threads", "1"],
    "stable-baselines3, 8 environments, 64 updates each 8 steps, 2 threads": [*AS_OURS, "--threads", "2"],
}


class Ran(NamedTuple):
    """One run."""

    updates_per_s: float
    idle: dict[str, float]


def ours(extra: list[str], updates: int) -> Ran:
    """One training.

    Asynchronous learners report the number of applied updates. A single learner reports none, so its environment steps
    count instead: each makes one update due, and the update is done before the step is reported.
    """
    words = [*flags(SETTING), "--timesteps", str(SKIP + updates)]
    with tempfile.TemporaryDirectory() as folder:
        run = train(Path(folder), [*words, *extra, "--eval_episodes", "1"])
        applied, steps = curve(run, "gradients/applied"), curve(run, STEPS_PER_SECOND)
        shares = idle(run, begin(steps))
        if applied.values:
            skip = begin(applied)
            counted = applied.values[-1] - applied.values[skip]
            return Ran(counted / (applied.seconds[-1] - applied.seconds[skip]), shares)
        return Ran(rate(steps, begin(steps)), shares)


def begin(log: Curve) -> int:
    """The report from which on a run is measured. A turn may hold the rollout of one worker or of both."""
    return next(number for number, steps in enumerate(log.steps) if steps >= SKIP)


def peer(extra: list[str], updates: int) -> Ran:
    """One training of stable-baselines3. It reports its number of updates."""
    words = [*extra, "--min_rows", "1000", "--timesteps", str(1100 + updates)]
    return Ran(float(result_of("sb3", words, "sac")["updates_per_s"]), {})


def measure(rounds: int, updates: int) -> dict[str, list[Ran]]:
    """Run all ways in each round, in every other round from the last to the first. Returns the results of each way."""
    ways = {name: (peer, extra) for name, extra in PEERS.items()}
    ways |= {name: (ours, extra) for name, extra in {**WAYS, TOGETHER: ASYNCHRONOUS}.items()}
    found: dict[str, list[Ran]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in in_turn(list(ways), number):
            train_one, extra = ways[name]
            ran = train_one(extra, updates)
            found[name].append(ran)
            shares = "; idle " * bool(ran.idle) + ", ".join(f"{node} {share:.0%}" for node, share in ran.idle.items())
            print(f"round {number}: {name}: {ran.updates_per_s:.1f} updates/s{shares}", flush=True)
    return found


def in_turn(names: list[str], number: int) -> list[str]:
    """The order of one round."""
    return names[::-1] if number % 2 else names


def judged(found: dict[str, list[Ran]]) -> list[Bar]:
    """The bars: one learner beside the peer, each at its best; and two asynchronous learners."""
    medians = {name: statistics.median(ran.updates_per_s for ran in values) for name, values in found.items()}
    best, theirs = (max(medians[name] for name in ways) for ways in (WAYS, PEERS))
    return [
        Bar("one learner at its best / stable-baselines3 at its best", best / theirs, 1.5),
        Bar("two asynchronous learners, updates/s together", medians[TOGETHER], 260.0),
    ]


def entry(values: list[Ran]) -> dict[str, Any]:
    """The entry of one way in the result: each round in order, and the range of all rounds."""
    rates = [round(ran.updates_per_s, 1) for ran in values]
    spread = {"median": round(statistics.median(rates), 1), "range": [min(rates), max(rates)]}
    idles = {node: [round(ran.idle[node], 4) for ran in values] for node in values[0].idle}
    return {"updates_per_s": rates, **spread, **({"idle": idles} if idles else {})}


def main() -> int:
    """Alternate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive_int, default=3)
    parser.add_argument("--updates", type=positive_int, default=2000, help="updates of a run that are measured")
    parser.add_argument("--write", type=destination, help="write the result here as JSON")
    args = parser.parse_args()
    found = measure(args.rounds, args.updates)
    bars = judged(found)
    print("\n".join(bar.line() for bar in bars))
    if args.write:
        command = command_of("python -m benchmarks.off_policy")
        ways = {name: entry(values) for name, values in found.items()}
        orders = [in_turn(list(found), number) for number in range(args.rounds)]
        entries = {"bars": [bar.entry() for bar in bars], "setting": SETTING, "orders": orders, "ways": ways}
        write(args.write, {"command": command, **entries})
    return exit_status(bars)


if __name__ == "__main__":
    sys.exit(main())
