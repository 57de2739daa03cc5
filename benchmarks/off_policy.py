"""SAC on Pendulum-v1 at the paper's sizes beside stable-baselines3, and two asynchronous learners: ratios first.

    python -m benchmarks.off_policy                     # 3 rounds; about 8 minutes on 2 cores
    python -m benchmarks.off_policy --rounds 1 --updates 500
    python -m benchmarks.off_policy --write FILE

Two layers of 256, minibatches of 256, one update a step of an environment. Whole runs, in steady state: environments,
replay and learning included; start-up, compilation and what comes before the first update left out, on both sides. Each
side may have one or two threads, and is judged by its best. A cold compile of the update takes half a minute once.

The share of its time in which each node had nothing to do stands beside each way. Does not judge how well anything
learns: `benchmarks/learning` does.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bars import Bar
from benchmarks.peers.run import result_of
from benchmarks.record import write
from benchmarks.runs import curve, flags, idle, rate, train
from penstock.metrics.report import STEPS_PER_SECOND

SETTING = {"algo": "sac", "env": "Pendulum-v1", "num_envs": 8, "num_steps": 8, "min_rows": 1000}
TURN = 8 * 8
SKIP = 1000 // TURN + 4
"""Reports that are left out: those before the first update, and three more."""
WAYS = {
    "lock step, 1 thread": ["--threads", "1"],
    "lock step, 2 threads": ["--threads", "2"],
    "overlapping, 2 threads": ["--threads", "2", "--sync_mode", "non_blocking"],
}
TOGETHER = "two asynchronous learners, 1 thread each"
ASYNCHRONOUS = ["--threads", "1", "--sync_mode", "non_blocking", "--learners", "2", "--max_policy_lag", "10"]
PEER_THREADS = (1, 2)


class Ran(NamedTuple):
    """One run."""

    updates_per_s: float
    idle: dict[str, float]


def ours(extra: list[str], updates: int) -> Ran:
    """One training. In lock step a step makes one update due, and has it; else the updates are counted."""
    words = [*flags(SETTING), "--timesteps", str(1000 + 4 * TURN + updates), "--backend", "compiled"]
    with tempfile.TemporaryDirectory() as folder:
        run = train(Path(folder), [*words, *extra, "--eval_episodes", "1"])
        applied = curve(run, "gradients/applied")
        if applied.values:
            counted = applied.values[-1] - applied.values[SKIP]
            return Ran(counted / (applied.seconds[-1] - applied.seconds[SKIP]), idle(run, SKIP))
        return Ran(rate(curve(run, STEPS_PER_SECOND), SKIP), idle(run, SKIP))


def peer(threads: int, updates: int) -> float:
    """Updates per second of stable-baselines3."""
    words = ["--threads", str(threads), "--min_rows", "1000", "--timesteps", str(1100 + updates)]
    return float(result_of("sb3", words, "sac")["updates_per_s"])


def measure(rounds: int, updates: int) -> dict[str, list[Any]]:
    """Every way in turn, so often: what each gave in each round."""
    found: dict[str, list[Any]] = {}
    for number in range(rounds):
        for threads in PEER_THREADS:
            theirs = peer(threads, updates)
            found.setdefault(f"stable-baselines3, {threads} threads", []).append(theirs)
            print(f"round {number}: stable-baselines3, {threads} threads: {theirs:.1f} updates/s", flush=True)
        for name, extra in {**WAYS, TOGETHER: ASYNCHRONOUS}.items():
            ran = ours(extra, updates)
            found.setdefault(name, []).append(ran)
            shares = ", ".join(f"{node} {share:.0%}" for node, share in ran.idle.items())
            print(f"round {number}: {name}: {ran.updates_per_s:.1f} updates/s; idle {shares}", flush=True)
    return found


def judged(found: dict[str, list[Any]]) -> list[Bar]:
    """One learner beside the peer, each at its best; and two learners that do not wait for each other."""
    best = max(statistics.median(ran.updates_per_s for ran in found[name]) for name in WAYS)
    theirs = max(statistics.median(found[f"stable-baselines3, {threads} threads"]) for threads in PEER_THREADS)
    both = statistics.median(ran.updates_per_s for ran in found[TOGETHER])
    return [
        Bar("one learner at its best / stable-baselines3 at its best", best / theirs, 1.5),
        Bar("two asynchronous learners, updates/s together", both, 200.0),
    ]


def entry(values: list[Any]) -> dict[str, Any]:
    """One way for the result."""
    if not isinstance(values[0], Ran):
        return {"updates_per_s": values}
    idles = {node: round(statistics.median(ran.idle[node] for ran in values), 4) for node in values[0].idle}
    return {"updates_per_s": [round(ran.updates_per_s, 1) for ran in values], "idle": idles}


def main() -> None:
    """Alternate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=3000, help="updates of a run that are measured")
    parser.add_argument("--write", type=Path, help="write the result here as JSON")
    args = parser.parse_args()
    found = measure(args.rounds, args.updates)
    bars = judged(found)
    print("\n".join(bar.line() for bar in bars))
    if args.write:
        command = f"python -m benchmarks.off_policy --rounds {args.rounds} --updates {args.updates}"
        ways = {name: entry(values) for name, values in found.items()}
        write(args.write, {"command": command, "bars": [bar.entry() for bar in bars], "setting": SETTING, "ways": ways})


if __name__ == "__main__":
    main()
