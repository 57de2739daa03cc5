"""IMPALA on Pong beside the peers that have it, alternating in one sitting: ratios first.

    python -m benchmarks.impala                  # 3 rounds; about 10 minutes on 2 cores
    python -m benchmarks.impala --write FILE

32 environments, 20 steps, gradient steps of 320 rows, one pass over each batch, the network of the Atari papers under
both heads, four frames of the emulator for each action. Steady state, on all sides: updates are included, start-up is
not.

- RLlib's IMPALA steps the same emulator as ours, in two processes.
- Sample Factory, with one pass and no correction, steps EnvPool's; so do we beside it.

Does not judge how well anything learns.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.arguments import positive_float, positive_int
from benchmarks.bars import Bar, exit_status
from benchmarks.peers.run import result_of
from benchmarks.record import destination, write
from benchmarks.runs import curve, flags, idle, rate, train
from penstock.metrics.report import STEPS_PER_SECOND

FRAMES = 4
"""Frames for each action."""
SETTING = {"num_envs": 32, "num_steps": 20, "mini_batch_size": 320}
BATCH = 32 * 20
SKIP = 10
"""Batches at the beginning that are not measured."""
TIMES = 1.3
"""How many times as fast as the fastest peer ours has to be."""
OURS = {
    "penstock": ["--env", "ALE/Pong-v5"],
    "penstock, EnvPool": ["--env", "envpool:Pong-v5"],
}
PEERS = {"RLlib": "rllib", "Sample Factory, EnvPool": "sample_factory"}


def ours(words: list[str], batches: int) -> tuple[float, dict[str, float]]:
    """Frames per second of penstock, and the idle share of each node."""
    sizes = flags({**SETTING, "num_workers": 2, "timesteps": (batches + SKIP) * BATCH, "eval_episodes": 0})
    told = ["--algo", "impala", *words, *sizes, "--policy_placement", "node", "--clip_reward", "true"]
    with tempfile.TemporaryDirectory() as folder:
        run = train(Path(folder), told)
        return FRAMES * rate(curve(run, STEPS_PER_SECOND), SKIP), idle(run, SKIP)


def theirs(peer: str, seconds: float) -> float:
    """Frames per second of a peer."""
    found = result_of(peer, [*flags(SETTING), "--seconds", str(seconds)], "impala")
    return FRAMES * float(found["steps_per_s"])


def main() -> int:
    """Alternate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive_int, default=3)
    parser.add_argument("--batches", type=positive_int, default=40, help="of penstock that are measured in a round")
    parser.add_argument("--seconds", type=positive_float, default=40.0, help="of a peer that are measured in a round")
    parser.add_argument("--write", type=destination, help="write the result here as JSON")
    args = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in (*OURS, *PEERS)}
    waits: dict[str, dict[str, float]] = {}
    for number in range(args.rounds):
        for name, words in OURS.items():
            speed, waits[name] = ours(words, args.batches)
            found[name].append(speed)
        for name, peer in PEERS.items():
            found[name].append(theirs(peer, args.seconds))
        print(f"round {number}: " + ", ".join(f"{name} {each[-1]:,.0f}" for name, each in found.items()), flush=True)
    middle = {name: statistics.median(each) for name, each in found.items()}
    fastest = max(PEERS, key=lambda name: middle[name])
    bars = [Bar(f"{name}, times {fastest}", middle[name] / middle[fastest], TIMES) for name in OURS]
    for bar in bars:
        print(bar.line())
    if args.write:
        command = f"python -m benchmarks.impala --rounds {args.rounds} --batches {args.batches}"
        write(
            args.write,
            {
                "command": f"{command} --seconds {args.seconds:g}",
                "bars": [bar.entry() for bar in bars],
                "frames_per_s": {name: [round(one) for one in each] for name, each in found.items()},
                "idle": {name: {node: round(share, 3) for node, share in each.items()} for name, each in waits.items()},
            },
        )
    return exit_status(bars)


if __name__ == "__main__":
    sys.exit(main())
