"""Recurrent PPO beside sb3-contrib's RecurrentPPO, on CartPole-v1 without velocities, in one sitting: ratios first.

    python -m benchmarks.recurrent                    # 3 rounds; about 5 minutes on 2 cores
    python -m benchmarks.recurrent --rounds 1 --updates 4 --peer_updates 1
    python -m benchmarks.recurrent --write FILE

64 environments, 128 steps, minibatches of 2,048 rows, 10 epochs, layers of 64 and an LSTM of 64 on both sides. Whole
runs, in steady state: updates included, start-up, compilation and the first batch left out, on both sides. The peer may
share one LSTM between actor and critic, or have two of them, as both sides do by default. Each side is judged by its
best way. Every other round takes the ways in the opposite order. A cold compile takes half a minute once.

The minibatches differ: ours are whole lanes from a carry that was stored once, the peer's are padded episodes from
states that were stored with every step. Does not judge how well anything learns.
"""

import argparse
import statistics
import subprocess
import sys

from benchmarks.arguments import positive_int
from benchmarks.bars import Bar, exit_status
from benchmarks.peers.install import python_of
from benchmarks.peers.run import LIMIT_S, parse
from benchmarks.record import ROOT, command_of, destination, write
from benchmarks.runs import flags, throughput

SETTING = {
    "num_envs": 64,
    "num_steps": 128,
    "epochs": 10,
    "mini_batch_size": 2048,
    "memory_size": 64,
    "lr": 3e-4,
}
BATCH = 64 * 128
ENV = "benchmarks.peers.stateless_cartpole:make_env"
WAYS = {
    "eager, one LSTM": ["--share_memory", "True", "--backend", "eager", "--threads", "1"],
    "compiled, one LSTM": ["--share_memory", "True", "--backend", "compiled", "--threads", "1"],
    "eager, two LSTMs": ["--backend", "eager", "--threads", "1"],
}
PEERS = {
    "sb3-contrib, one LSTM, 1 thread": ["--shared", "--threads", "1"],
    "sb3-contrib, one LSTM, 2 threads": ["--shared", "--threads", "2"],
    "sb3-contrib, two LSTMs, 1 thread": ["--threads", "1"],
}


def ours(extra: list[str], updates: int) -> float:
    """Steps per second of penstock: from its second commit to its last, by its own log of every update."""
    words = ["--env", ENV, "--model", "lstm", "--timesteps", str((updates + 2) * BATCH)]
    return throughput([*flags(SETTING), *words, *extra])


def peer(extra: list[str], updates: int) -> float:
    """Steps per second of sb3-contrib."""
    script = ROOT / "benchmarks/peers/sb3_recurrent.py"
    command = [python_of("sb3-recurrent"), script, *flags(SETTING), "--updates", str(updates), *extra]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout
    return float(parse(output)["steps_per_s"])


def measure(rounds: int, updates: int, peer_updates: int) -> dict[str, list[float]]:
    """Every way in turn, so often, and every other time from the last to the first: steps per second in each round."""
    ways = {name: (peer, extra, peer_updates) for name, extra in PEERS.items()}
    ways |= {name: (ours, extra, updates) for name, extra in WAYS.items()}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in in_turn(list(ways), number):
            train_one, extra, count = ways[name]
            found[name].append(train_one(extra, count))
            print(f"round {number}: {name}: {found[name][-1]:,.0f} steps/s", flush=True)
    return found


def in_turn(names: list[str], number: int) -> list[str]:
    """The order of one round."""
    return names[::-1] if number % 2 else names


def judged(found: dict[str, list[float]]) -> Bar:
    """Ours beside the peer, each at its best."""
    best, theirs = (max(statistics.median(found[name]) for name in ways) for ways in (WAYS, PEERS))
    return Bar("recurrent PPO at its best / sb3-contrib at its best", best / theirs, 3.0)


def main() -> int:
    """Alternate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive_int, default=3)
    parser.add_argument("--updates", type=positive_int, default=16, help="measured batches of penstock in a round")
    parser.add_argument("--peer_updates", type=positive_int, default=4, help="measured batches of the peer in a round")
    parser.add_argument("--write", type=destination, help="write the result here as JSON")
    args = parser.parse_args()
    found = measure(args.rounds, args.updates, args.peer_updates)
    bar = judged(found)
    print(bar.line())
    if args.write:
        rates = {name: [round(value) for value in values] for name, values in found.items()}
        orders = [in_turn(list(found), number) for number in range(args.rounds)]
        entries = {"bars": [bar.entry()], "setting": SETTING, "orders": orders, "steps_per_s": rates}
        write(args.write, {"command": command_of("python -m benchmarks.recurrent"), **entries})
    return exit_status([bar])


if __name__ == "__main__":
    sys.exit(main())
