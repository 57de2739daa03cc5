"""PPO on Pendulum-v1 with the Ray runtime, on one machine: beside the local runtime, and beside RLlib. Ratios first.

    python -m benchmarks.cluster                       # 5 rounds; about 9 minutes on 2 cores; needs penstock[ray]
    python -m benchmarks.cluster --write FILE

1. The published setting (8 environments of 2,048 steps, minibatches of 64) on both runtimes. Ray may cost 5 %.
2. `DistributedPPO` at its defaults (4 workers of 512 steps, minibatches of 64) beside RLlib's PPO at the same setting.
   The bar is 10 times as many steps a second.
3. The table that the project set out from: one environment, 8 environments, and 16 workers on Ray, each for a million
   steps at the defaults otherwise. Steps a second of the whole training, training episodes until the last 100 of them
   reach the return that was claimed for the row, and the return of 100 greedy episodes at the end.

Steady state in 1 and 2: updates are included; start-up and compilation are not, nor, of ours, the first three seconds,
in which Ray may still start. Single windows of three seconds were up to 15 % slower, on either runtime, and gave ratios
of 0.82 to 1.1 in one sitting. So a round has more than ten seconds.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.arguments import positive_int
from benchmarks.bars import Bar, exit_status
from benchmarks.end_to_end import SETTING as PUBLISHED
from benchmarks.peers.run import result_of
from benchmarks.record import command_of, destination, write
from benchmarks.runs import Curve, curve, flags, rate, train
from penstock.metrics.report import EPISODES, EVAL_RETURN, RETURN, STEPS_PER_SECOND

DISTRIBUTED = {
    "env": "Pendulum-v1",
    "num_workers": 4,
    "num_envs": 4,
    "num_steps": 512,
    "epochs": 10,
    "mini_batch_size": 64,
    "lr": 3e-4,
}
"""The defaults of `penstock.DistributedPPO`."""
RUNTIMES = ("local", "ray")
OURS, RLLIB = "DistributedPPO", "RLlib"
TIMESTEPS = 1_000_000
WARM_UP_S = 3.0


class Claim(NamedTuple):
    """A row of the table, and what was claimed for it."""

    what: str
    settings: dict[str, Any]
    steps_per_s: int
    mean_return: int
    episodes: int
    """Until training episodes reach this return."""


CLAIMS = (
    Claim("1 environment", {"num_envs": 1}, 500, -200, 200),
    Claim("8 environments", {"num_envs": 8}, 3_000, -180, 150),
    Claim("16 workers on Ray", DISTRIBUTED | {"num_workers": 16, "num_envs": 16, "runtime": "ray"}, 10_000, -170, 120),
)


def speed(setting: dict[str, Any], updates: int) -> float:
    """Steps per second of penstock, from ``WARM_UP_S`` to its last commit.

    Raises:
        ValueError: the run is not longer.
    """
    words = flags(setting | {"timesteps": updates * setting["num_envs"] * setting["num_steps"], "eval_episodes": 0})
    with tempfile.TemporaryDirectory() as folder:
        log = curve(train(Path(folder), [*words, "--log_interval", "1"]), STEPS_PER_SECOND)
    return rate(log, settled(log))


def settled(log: Curve) -> int:
    """The first entry of a log from ``WARM_UP_S`` on.

    Raises:
        ValueError: none is behind it.
    """
    first = sum(seconds < WARM_UP_S for seconds in log.seconds)
    if first >= len(log.seconds) - 1:
        raise ValueError(f"the run took {log.seconds[-1]:.1f} s, and {WARM_UP_S} s do not count; give more updates")
    return first


def rllib(updates: int) -> float:
    """Steps per second of RLlib at the setting of `DistributedPPO`."""
    return float(result_of("rllib", [*flags(DISTRIBUTED), "--updates", str(updates)])["steps_per_s"])


def row(claim: Claim, timesteps: int) -> dict[str, Any]:
    """One row of the table: what was claimed, and what one run gives."""
    words = flags({"env": "Pendulum-v1"} | claim.settings | {"timesteps": timesteps})
    with tempfile.TemporaryDirectory() as folder:
        run = train(Path(folder), [*words, "--eval_episodes", "100", "--eval_seconds", "600"])
        returns, episodes, final = (curve(run, metric) for metric in (RETURN, EPISODES, EVAL_RETURN))
    reached = [
        count for count, value in zip(episodes.values, returns.values, strict=False) if value >= claim.mean_return
    ]
    return {
        "what": claim.what,
        "command": f"penstock train {' '.join(words)}",
        "claimed": {name: getattr(claim, name) for name in ("steps_per_s", "mean_return", "episodes")},
        "steps_per_s": round(returns.steps[-1] / returns.seconds[-1]),
        "mean_return": round(final.values[-1], 1),
        "episodes": int(reached[0]) if reached else None,
    }


def judged(rates: dict[str, list[float]], table: list[dict[str, Any]]) -> list[Bar]:
    """Ratios of medians, and the rows of the table, beside their bars."""
    medians = {name: statistics.median(values) for name, values in rates.items()}
    claims = [
        Bar(f"{one['what']}: {name}", one[name], one["claimed"][name])
        for one in table
        for name in ("steps_per_s", "mean_return")
    ]
    return [
        Bar("Ray runtime / local runtime, one machine", medians["ray"] / medians["local"], 0.95),
        Bar(f"{OURS} / {RLLIB}'s PPO", medians[OURS] / medians[RLLIB], 10.0),
        *claims,
    ]


def main() -> int:
    """Alternate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive_int, default=5)
    parser.add_argument("--updates", type=positive_int, default=96, help="batches of 1 in a round")
    parser.add_argument("--small_updates", type=positive_int, default=512, help="the same of penstock in 2")
    parser.add_argument("--peer_updates", type=positive_int, default=8, help="measured batches of RLlib in a round")
    parser.add_argument("--timesteps", type=positive_int, default=TIMESTEPS, help="of each row of the table")
    parser.add_argument("--write", type=destination, help="write the result here as JSON")
    args = parser.parse_args()
    rates: dict[str, list[float]] = {name: [] for name in (*RUNTIMES, RLLIB, OURS)}
    for number in range(args.rounds):
        for runtime in RUNTIMES[:: -1 if number % 2 else 1]:
            rates[runtime].append(speed(PUBLISHED | {"runtime": runtime}, args.updates))
        rates[RLLIB].append(rllib(args.peer_updates))
        rates[OURS].append(speed(DISTRIBUTED | {"runtime": "ray"}, args.small_updates))
        print(
            f"round {number}: " + "; ".join(f"{name} {values[-1]:,.0f}" for name, values in rates.items()), flush=True
        )
    table = [row(claim, args.timesteps) for claim in CLAIMS]
    for one in table:
        print("; ".join(f"{name} {value}" for name, value in one.items()), flush=True)
    bars = judged(rates, table)
    print("\n".join(bar.line() for bar in bars))
    if args.write:
        result = {
            "command": command_of("python -m benchmarks.cluster"),
            "settings": {"published": PUBLISHED, "distributed": DISTRIBUTED},
            "bars": [bar.entry() for bar in bars],
            "steps_per_s": {name: [round(value) for value in values] for name, values in rates.items()},
            "table": table,
        }
        write(args.write, result)
    return exit_status(bars)


if __name__ == "__main__":
    sys.exit(main())
