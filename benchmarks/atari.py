"""PPO on Pong beside stable-baselines3, alternating in one sitting: ratios first.

    python -m benchmarks.atari                           # 3 rounds of peer, float32, bfloat16
    python -m benchmarks.atari --env PongNoFrameskip-v4  # without sticky actions, as the peer's
    python -m benchmarks.atari --env envpool:Pong-v5     # on EnvPool's environments

One Nature CNN under both heads, 8 environments, 128 steps, 4 epochs, 4 minibatches of 256, four frames of the emulator
for each action. Steady state, on both sides: updates are included; start-up, compilation and the first batch are not.
Does not judge how well anything learns.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from benchmarks.arguments import positive_int
from benchmarks.peers.install import python_of
from benchmarks.record import ROOT, command_of, destination, write
from benchmarks.runs import curve, train
from penstock.metrics.report import STEPS_PER_SECOND

BATCH = 8 * 128
FRAMES = 4
"""Frames for each action."""
PRECISIONS = ("float32", "bfloat16")


def peer(python: Path, threads: int, updates: int) -> float:
    """Frames per second of stable-baselines3."""
    script = ROOT / "benchmarks/peers/sb3_atari.py"
    command = [python, script, "--threads", str(threads), "--updates", str(updates)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    line = next(line for line in output.splitlines() if line.startswith("RESULT "))
    return float(json.loads(line.removeprefix("RESULT "))["frames_per_s"])


def ours(words: list[str], updates: int) -> float:
    """Frames per second of penstock, from its second commit to its last, by its own log of all updates."""
    sizes = ["--timesteps", str((updates + 2) * BATCH), "--eval_episodes", "1"]
    with tempfile.TemporaryDirectory() as folder:
        log = curve(train(Path(folder), ["--preset", "atari", *sizes, *words]), STEPS_PER_SECOND)
    return FRAMES * (log.steps[-1] - log.steps[1]) / (log.seconds[-1] - log.seconds[1])


def main() -> None:
    """Alternate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive_int, default=3)
    parser.add_argument("--updates", type=positive_int, default=10, help="measured batches of a round, on each side")
    parser.add_argument(
        "--threads", type=positive_int, default=2, help="of torch, on both sides; 2 is the peer's best on 2 cores"
    )
    parser.add_argument(
        "--backend", default="compiled", help="of penstock's update; a run of 300,000 steps compiles it"
    )
    parser.add_argument("--env", default="ALE/Pong-v5", help="penstock's; the peer plays PongNoFrameskip-v4")
    parser.add_argument("--write", type=destination, help="write the result here as JSON")
    args = parser.parse_args()
    python = python_of("sb3-atari")
    words = ["--env", args.env, "--threads", str(args.threads), "--backend", args.backend]
    peers: list[float] = []
    own: dict[str, list[float]] = {name: [] for name in PRECISIONS}
    for number in range(args.rounds):
        peers.append(peer(python, args.threads, args.updates))
        for name, found in own.items():
            found.append(ours([*words, "--precision", name], args.updates))
        figures = ", ".join(f"penstock {name} {found[-1]:,.0f}" for name, found in own.items())
        print(f"round {number}: stable-baselines3 {peers[-1]:,.0f}, {figures} frames/s", flush=True)
    ratios = {name: round(statistics.median(found) / statistics.median(peers), 2) for name, found in own.items()}
    print(f"ratios of medians {ratios}")
    if args.write:
        result = {
            "command": command_of("python -m benchmarks.atari"),
            "ratios": ratios,
            "penstock_frames_per_s": {name: [round(value) for value in found] for name, found in own.items()},
            "stable_baselines3_frames_per_s": [round(value) for value in peers],
        }
        write(args.write, result)


if __name__ == "__main__":
    main()
