"""A cluster of 1 to 1,000 machines, simulated from measured costs: throughput, lag, and what limits it.

    python -m benchmarks.cluster_model                       # the tables, from the committed costs
    python -m benchmarks.cluster_model --measure             # also measures costs, and checks the model on real hosts
    python -m benchmarks.cluster_model --measure --tasks relay turn
    python -m benchmarks.cluster_model --measure --write benchmarks/results/cluster_model.json

`benchmarks.simulated_cluster` is the model, `benchmarks.cluster_check` measures and compares. `--measure` takes about
9 minutes a round, and needs `penstock[ray]`, root and iproute2. Each round measures the costs anew just before its real
runs. Medians of the rounds count, because the speed of rented cores changes within minutes.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from benchmarks.arguments import positive_int
from benchmarks.bars import exit_status
from benchmarks.cluster_check import TASKS, bars_of, checked, measure, median_check, median_measured
from benchmarks.record import ROOT, command_of, destination, write
from benchmarks.simulated_cluster import Cluster, Costs, Setting
from benchmarks.sleeping import FIXED_S

RESULT = ROOT / "benchmarks/results/cluster_model.json"
MACHINES = (1, 3, 10, 30, 100, 300, 1000)

ADVICE = {
    "workers": "more machines",
    "link in": "a faster link, fewer bytes a row (smaller frames), or several launchers",
    "relay": "longer rollouts or more lanes in each (`--num_steps`, fewer `--num_workers`)",
    "learners": "more learners (`--learners K`) or a GPU",
    "link out": "larger batches, so that versions are rarer, or a faster link",
}


def committed_costs() -> Costs:
    """The costs of the committed result."""
    return Costs(**json.loads(RESULT.read_text("utf-8"))["costs"])


def settings(costs: Costs) -> list[Setting]:
    """The clusters of the page: machines of 16 cores, and PPO with two networks of 64, 64 units.

    The one with frames has convolutions, and a learner that is assumed to take 50,000 rows a second.
    """
    vector = Setting(
        name="200 us a step, 17 numbers, 1 Gbit/s",
        workers=16,
        lanes=4,
        num_steps=512,
        step_s=4 * 200e-6,
        row_bytes=120,
        weights_bytes=50_000,
        link_bytes_s=125e6,
        row_s=costs.row_s,
    )
    slow = replace(vector, name="5 ms a step, 17 numbers, 1 Gbit/s", step_s=4 * 5e-3)
    images = replace(
        vector,
        name="1 ms a step, frames of 84 x 84, 50,000 rows/s learned, 10 Gbit/s",
        step_s=4 * 1e-3,
        num_steps=128,
        row_bytes=7_100,
        weights_bytes=6_800_000,
        link_bytes_s=1.25e9,
        row_s=1 / 50_000,
    )
    ahead = [replace(one, name=f"{one.name}, lag 1", lag=1) for one in (vector, slow, images)]
    several = replace(
        ahead[1], name=f"{ahead[1].name}, 8 learners, minibatches of 16,384", learners=8, mini_batch_size=16_384
    )
    return [vector, ahead[0], slow, ahead[1], several, images, ahead[2]]


def table(setting: Setting, costs: Costs, machines: Sequence[int]) -> list[dict[str, Any]]:
    """One row for each number of machines."""
    rows: list[dict[str, Any]] = []
    for number in machines:
        outcome = Cluster(setting, costs, number).run()
        alone = rows[0]["steps_per_s"] if rows else outcome.steps_per_s
        rows.append(
            {
                "machines": number,
                "steps_per_s": round(outcome.steps_per_s),
                "of_linear": round(outcome.steps_per_s / alone / number * machines[0], 3),
                "lag": round(outcome.lag, 2),
                "limit": outcome.limit,
                "busy": {name: round(share, 3) for name, share in outcome.busy.items()},
                "mbit_s_in": round(outcome.steps_per_s * setting.row_bytes * 8e-6, 1),
            }
        )
    return rows


def main() -> int:
    """Print the tables; with ``--measure``, measure what they stand on, and compare with real hosts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="measure the costs here, and check the model")
    tasks = [task.name for task in TASKS]
    parser.add_argument(
        "--tasks", nargs="+", choices=tasks, default=tasks, help="with --measure: what real hosts train"
    )
    parser.add_argument("--rounds", type=positive_int, default=3, help="with --measure (default: %(default)s)")
    parser.add_argument("--machines", nargs="+", type=int, default=list(MACHINES))
    parser.add_argument("--write", type=destination, help="with --measure: write the result here as JSON")
    args = parser.parse_args()
    result: dict[str, Any] = {"command": command_of("python -m benchmarks.cluster_model")}
    bars = []
    if args.measure:
        rounds, checks = [], []
        for _ in range(args.rounds):
            rounds.append(measure())
            print(rounds[-1], f"a sleep is {1000 * FIXED_S:g} ms", flush=True)
            checks.append(checked([task for task in TASKS if task.name in args.tasks], rounds[-1]))
        measured, check = median_measured(rounds), median_check(checks)
        costs = measured.costs
        bars = bars_of(check)
        print("\n".join(bar.line() for bar in bars))
        hosts = {name: value for name, value in measured._asdict().items() if name != "costs"}
        result |= {"bars": [bar.entry() for bar in bars], "rounds": args.rounds, "hosts": hosts, "check": check}
    else:
        costs = committed_costs()
    tables = {setting.name: table(setting, costs, args.machines) for setting in settings(costs)}
    for name, rows in tables.items():
        print(f"\n{name}")
        for row in rows:
            speed = f"{row['steps_per_s']:12,} steps/s {row['of_linear']:7.1%} of linear"
            limit = f"limit: {row['limit']}: {ADVICE[row['limit']]}"
            print(
                f"{row['machines']:6,} machines {speed}, lag {row['lag']:.1f}, {row['mbit_s_in']:9,.1f} Mbit/s; {limit}"
            )
    if args.write and args.measure:
        write(args.write, {**result, "costs": asdict(costs), "tables": tables})
    return exit_status(bars)


if __name__ == "__main__":
    sys.exit(main())
