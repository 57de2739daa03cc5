"""PPO on CartPole-v1 at 64 environments beside its peers, alternating in one sitting: ratios first.

    python -m benchmarks.throughput                  # 3 rounds; about 5 minutes on 2 cores
    python -m benchmarks.throughput --shared         # and Sample Factory with one trunk for actor and critic
    python -m benchmarks.throughput --write FILE

- penstock steps Python environments, Gymnasium's NumPy vector environment, and EnvPool (`pip install
  'penstock[envpool]'`).
- stable-baselines3 steps Python environments, with the better of 1 and 2 threads.
- Sample Factory steps EnvPool, with the batches and workers that were found best for it.

All have two separate networks of 64, 64 units in float32. Steady state: updates are included, start-up is not. Does not
judge how well anything learns.
"""

import argparse
import statistics
import sys

from benchmarks.arguments import positive_float, positive_int
from benchmarks.bars import Bar, exit_status
from benchmarks.peers.run import result_of
from benchmarks.record import command_of, destination, write
from benchmarks.runs import flags, throughput

SETTING = {"num_envs": 64, "num_steps": 128, "epochs": 4, "mini_batch_size": 2048, "lr": 3e-4}
BATCH = 64 * 128
SB3_THREADS = (1, 2)
OURS = {
    "penstock, Python environments": ["--env", "CartPole-v1"],
    "penstock, NumPy vector environment": ["--env", "CartPole-v1", "--vector_env", "true"],
    "penstock, EnvPool": ["--env", "envpool:CartPole-v1"],
}
SAMPLE_FACTORY, SHARED = "Sample Factory, EnvPool", "Sample Factory, EnvPool, shared trunk"


def sb3(threads: int) -> str:
    """The name of stable-baselines3 with this many threads in results."""
    return f"stable-baselines3, {threads} thread{'s' * (threads > 1)}"


def one_round(updates: int, peer_updates: int, peer_seconds: float, *, shared: bool) -> dict[str, float]:
    """Steps per second of each, one after the other."""
    measured = {}
    for threads in SB3_THREADS:
        words = ["--env", "CartPole-v1", *flags(SETTING), "--threads", str(threads), "--updates", str(peer_updates)]
        measured[sb3(threads)] = float(result_of("sb3", words)["steps_per_s"])
    for name, words in OURS.items():
        measured[name] = throughput([*words, *flags(SETTING), "--timesteps", str(updates * BATCH)], skip=5)
    seconds = ["--seconds", str(peer_seconds)]
    measured[SAMPLE_FACTORY] = float(result_of("sample_factory", seconds)["steps_per_s"])
    if shared:
        measured[SHARED] = float(result_of("sample_factory", [*seconds, "--shared"])["steps_per_s"])
    return measured


def bars(medians: dict[str, float]) -> list[Bar]:
    """The ratios of medians, beside their bars."""
    best = max(medians[sb3(threads)] for threads in SB3_THREADS)
    beside = (best, best, medians[SAMPLE_FACTORY])
    against = ("stable-baselines3", "stable-baselines3", "Sample Factory")
    return [
        Bar(f"{name} / {peer}", medians[name] / value, bar)
        for name, peer, value, bar in zip(OURS, against, beside, (4, 7, 4), strict=True)
    ]


def main() -> int:
    """Alternate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive_int, default=3)
    parser.add_argument("--updates", type=positive_int, default=150, help="batches of penstock in a round")
    parser.add_argument("--peer_updates", type=positive_int, default=15, help="batches of stable-baselines3 in a round")
    parser.add_argument("--peer_seconds", type=positive_float, default=15, help="seconds of Sample Factory in a round")
    parser.add_argument("--shared", action="store_true", help="measure Sample Factory with a shared trunk as well")
    parser.add_argument("--write", type=destination, help="write the result here as JSON")
    args = parser.parse_args()
    rounds = []
    for number in range(args.rounds):
        rounds.append(one_round(args.updates, args.peer_updates, args.peer_seconds, shared=args.shared))
        print(f"round {number}: " + "; ".join(f"{name} {value:,.0f}" for name, value in rounds[-1].items()), flush=True)
    reached = bars({name: statistics.median(one[name] for one in rounds) for name in rounds[0]})
    print("\n".join(bar.line() for bar in reached))
    if args.write:
        result = {
            "command": command_of("python -m benchmarks.throughput"),
            "setting": SETTING,
            "ratios": [bar.entry() for bar in reached],
            "steps_per_s": {name: [round(one[name]) for one in rounds] for name in rounds[0]},
        }
        write(args.write, result)
    return exit_status(reached)


if __name__ == "__main__":
    sys.exit(main())
