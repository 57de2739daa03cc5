"""PPO at the published setting beside stable-baselines3, alternating in one sitting: ratios first.

    python -m benchmarks.end_to_end                  # 3 rounds of peer, penstock; about 4 minutes on 2 cores
    python -m benchmarks.end_to_end --backend eager  # another backend of the update

Steady state: updates included, start-up, compilation and the first batch left out, on both sides. Does not judge how
well anything learns: `benchmarks/learning` does.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.peers.install import python_of
from benchmarks.record import ROOT, write
from benchmarks.runs import curve, train
from penstock.metrics.report import STEPS_PER_SECOND

SETTING = {
    "env": "Pendulum-v1",
    "num_envs": 8,
    "num_steps": 2048,
    "epochs": 10,
    "mini_batch_size": 64,
    "lr": 3e-4,
}
BATCH = 8 * 2048


def flags(setting: dict[str, Any]) -> list[str]:
    """A setting as command-line flags, the same on both sides."""
    return [word for name, value in setting.items() for word in (f"--{name}", str(value))]


def peer(python: Path, threads: int, updates: int) -> float:
    """Steps per second of stable-baselines3."""
    script = ROOT / "benchmarks/peers/sb3_ppo.py"
    command = [python, script, *flags(SETTING), "--threads", str(threads), "--updates", str(updates)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    line = next(line for line in output.splitlines() if line.startswith("RESULT "))
    return float(json.loads(line.removeprefix("RESULT "))["steps_per_s"])


def ours(extra: list[str], updates: int) -> float:
    """Steps per second of penstock: from its second commit to its last, by its own log of every update."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*flags(SETTING), "--timesteps", str((updates + 2) * BATCH), "--eval_episodes", "1", *extra]
        log = curve(train(Path(folder), words), STEPS_PER_SECOND)
    return (log.steps[-1] - log.steps[1]) / (log.seconds[-1] - log.seconds[1])


def main() -> None:
    """Alternate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=16, help="batches of penstock that are measured in a round")
    parser.add_argument("--peer_updates", type=int, default=4, help="batches of the peer that are measured in a round")
    parser.add_argument("--peer_threads", type=int, default=1)
    parser.add_argument("--write", type=Path, help="write the result here as JSON")
    args, extra = parser.parse_known_args()
    python = python_of("sb3")
    peers, own = [], []
    for number in range(args.rounds):
        peers.append(peer(python, args.peer_threads, args.peer_updates))
        own.append(ours(extra, args.updates))
        print(f"round {number}: stable-baselines3 {peers[-1]:,.0f}, penstock {own[-1]:,.0f} steps/s", flush=True)
    ratio = statistics.median(own) / statistics.median(peers)
    print(f"ratio of medians {ratio:.2f}")
    if args.write:
        result = {
            "command": " ".join(["python -m benchmarks.end_to_end", f"--rounds {args.rounds}", *extra]),
            "setting": SETTING,
            "ratio": round(ratio, 2),
            "penstock_steps_per_s": [round(value) for value in own],
            "stable_baselines3_steps_per_s": [round(value) for value in peers],
        }
        write(args.write, result)


if __name__ == "__main__":
    main()
