"""PPO at the published setting beside stable-baselines3, alternating in one sitting: ratios first.

    python -m benchmarks.end_to_end                  # 3 rounds of peer, penstock; about 4 minutes on 2 cores
    python -m benchmarks.end_to_end --backend eager  # another backend of the update

Steady state, on both sides: updates are included; start-up, compilation and the first batch are not. Does not judge how
well anything learns: `benchmarks/learning` does. Only the native update (`--backend fused`) has a bar.
"""

import argparse
import statistics
import sys

from benchmarks.arguments import positive_int
from benchmarks.bars import Bar, exit_status
from benchmarks.peers.run import result_of
from benchmarks.record import command_of, destination, write
from benchmarks.runs import flags, throughput

SETTING = {
    "env": "Pendulum-v1",
    "num_envs": 8,
    "num_steps": 2048,
    "epochs": 10,
    "mini_batch_size": 64,
    "lr": 3e-4,
}
BATCH = 8 * 2048
TIMES = 22.0
"""The bar: so many times as many steps a second as the peer."""


def peer(threads: int, updates: int) -> float:
    """Steps per second of stable-baselines3."""
    words = [*flags(SETTING), "--threads", str(threads), "--updates", str(updates)]
    return float(result_of("sb3", words)["steps_per_s"])


def ours(extra: list[str], updates: int) -> float:
    """Steps per second of penstock, from its second commit to its last, by its own log of all updates."""
    return throughput([*flags(SETTING), "--timesteps", str((updates + 2) * BATCH), *extra])


def main() -> int:
    """Alternate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive_int, default=3)
    parser.add_argument("--updates", type=positive_int, default=16, help="measured batches of penstock in a round")
    parser.add_argument("--peer_updates", type=positive_int, default=4, help="measured batches of the peer in a round")
    parser.add_argument("--peer_threads", type=positive_int, default=1)
    parser.add_argument("--write", type=destination, help="write the result here as JSON")
    args, extra = parser.parse_known_args()
    peers, own = [], []
    for number in range(args.rounds):
        peers.append(peer(args.peer_threads, args.peer_updates))
        own.append(ours(extra, args.updates))
        print(f"round {number}: stable-baselines3 {peers[-1]:,.0f}, penstock {own[-1]:,.0f} steps/s", flush=True)
    ratio = statistics.median(own) / statistics.median(peers)
    bars = [Bar("penstock / stable-baselines3", ratio, TIMES)] if "fused" in extra else []
    print("\n".join([f"ratio of medians {ratio:.2f}", *(bar.line() for bar in bars)]))
    if args.write:
        result = {
            "command": command_of("python -m benchmarks.end_to_end"),
            "setting": SETTING,
            "ratio": round(ratio, 2),
            "bars": [bar.entry() for bar in bars],
            "penstock_steps_per_s": [round(value) for value in own],
            "stable_baselines3_steps_per_s": [round(value) for value in peers],
        }
        write(args.write, result)
    return exit_status(bars)


if __name__ == "__main__":
    sys.exit(main())
