"""What actors that explore differently find in equal steps: Ape-X with 1, 4 and 8 actors beside DQN.

    python -m benchmarks.exploration                    # 6 seeds of both tasks: about 5 minutes on 2 cores
    python -m benchmarks.exploration --cases chain --seeds 0 1
    python -m benchmarks.exploration --write FILE
    python -m benchmarks.plots exploration              # draws the committed result

The tasks are those of `benchmarks/hidden_goals.py`: their goal is hard to find, and their best return is known. An
actor is one lane. All rows have the same steps, network, gradient steps and steps between two policies. DQN learns as
Ape-X does here: double, over three steps, by priorities.

- visited: number of states that some lane has visited. `curve` has it over the steps, as the mean over the seeds.
- found: share of runs in which some lane reached the goal.
- learned: share of runs whose greedy policy has the best return at the end.

Intervals are a percentile bootstrap over the seeds, 95 %. Each seed is a layout of its own. `ladder_less` of a row is
the difference between Ape-X with 8 actors and this row. The sizes of the tasks were chosen by DQN alone: so that it
finds the goal in about half of its runs.

A run that has ended is kept under `build/exploration/<commit>`. So a call that was interrupted goes on from there,
unless code has changed. Does not measure time.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import penstock
from benchmarks.arguments import positive_int
from benchmarks.hidden_goals import CASES, HiddenGoal, first_visits
from benchmarks.record import ROOT, command_of, commit, destination, write
from benchmarks.runs import flags
from penstock.saved_runs.comparison.bootstrap import difference, estimate
from penstock.types import Array

TURN = 128
"""Steps of all lanes between two policies."""
SETTING: dict[str, Any] = {
    "num_workers": 1,
    "hidden_sizes": [32, 32],
    "mini_batch_size": 64,
    "updates_per_step": 0.5,
    "min_rows": 512,
    "lr": 1e-3,
    "n_step": 3,
    "prioritised": True,
    "backend": "fused",
    "threads": 1,
    "eval_episodes": 0,
}
MIDDLE = round(0.4**4.5, 4)
"""The geometric mean of the ladder's epsilons, which are 0.4 to 0.4^8."""
LADDER = "Ape-X, 8 actors"
ROWS: dict[str, dict[str, Any]] = {
    "DQN, 1 environment": {"algo": "dqn", "num_envs": 1},
    "DQN, 8 environments": {"algo": "dqn", "num_envs": 8},
    "Ape-X, 1 actor": {"algo": "apex", "num_envs": 1},
    "Ape-X, 4 actors": {"algo": "apex", "num_envs": 4},
    LADDER: {"algo": "apex", "num_envs": 8},
    "8 actors, epsilon 0.4 each": {"algo": "apex", "num_envs": 8, "epsilon_power": 0.0},
    f"8 actors, epsilon {MIDDLE:.3f} each": {
        "algo": "apex",
        "num_envs": 8,
        "epsilon_base": MIDDLE,
        "epsilon_power": 0.0,
    },
}
MEASURES = ("visited", "found", "learned")
POINTS = 32
"""Of a curve."""
RESAMPLES = 10_000
ENOUGH = 1e-6
"""A return that is less below the best one is the best one: the rest is rounding."""


class Explored(NamedTuple):
    """What one run has found."""

    seed: int
    visited: int
    goal_step: int | None
    """Steps of all lanes until one of them reached the goal; ``None``: none did."""
    greedy_return: float
    """Of one episode, in which nothing is random."""
    curve: list[int]
    """States visited after each part of the run."""

    def measured(self, best: float) -> dict[str, float]:
        """The value of each measure, where ``best`` is the best return."""
        learned = self.greedy_return > best - ENOUGH
        return {"visited": self.visited, "found": float(self.goal_step is not None), "learned": float(learned)}


def settings(row: Mapping[str, Any], timesteps: int) -> dict[str, Any]:
    """The settings of a row's runs, without environment and seed."""
    sizes = {"num_steps": TURN // row["num_envs"], "timesteps": timesteps, "capacity": timesteps}
    return {**row, **sizes, **SETTING}


def run(case: str, row: Mapping[str, Any], timesteps: int, seed: int) -> Explored:
    """Train, see which states the lanes have visited, then play one greedy episode."""
    task, size = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        visits = Path(folder) / "visits"
        visits.mkdir()
        where = {
            "env": f"{task.__module__}:{task.__name__}",
            "env_args": {"size": size, "layout": seed, "visits": str(visits)},
            "log_dir": str(Path(folder) / "logs"),
        }
        trained = penstock.train({**settings(row, timesteps), **where, "seed": seed}, quiet=True)
        first = first_visits(visits, row["num_envs"], timesteps)
    *states, goal = first.tolist()
    reached = np.array([step for step in states if step])
    curve = [int((reached <= timesteps * part // POINTS).sum()) for part in range(1, POINTS + 1)]
    return Explored(seed, len(reached), goal or None, played(trained.policy, task(size, layout=seed)), curve)


def played(policy: penstock.Policy, env: HiddenGoal) -> float:
    """The return of one greedy episode."""
    obs, _ = env.reset()
    total, ended = 0.0, False
    while not ended:
        obs, reward, ended, _, _ = env.step(policy(obs))
        total += float(reward)
    return round(total, 6)


def kept(case: str, name: str, timesteps: int, seed: int) -> Explored:
    """A run of this commit from an earlier call, or a new one that later calls find. Changed code keeps nothing."""
    at = commit()
    if at.endswith("+"):
        return run(case, ROWS[name], timesteps, seed)
    path = ROOT / "build/exploration" / at / f"{case}-{list(ROWS).index(name)}-{timesteps}-{seed}.json"
    if path.exists():
        return Explored(**json.loads(path.read_text("utf-8")))
    found = run(case, ROWS[name], timesteps, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found._asdict()), "utf-8")
    return found


def entries(case: str, timesteps: int, found: Mapping[str, Sequence[Explored]]) -> list[dict[str, Any]]:
    """The rows of one task in the result: every measure with its interval, then the single runs."""
    generator = np.random.default_rng(0)
    best = CASES[case][0].BEST
    samples = {name: {measure: sample(runs, measure, best) for measure in MEASURES} for name, runs in found.items()}
    ladder = samples[LADDER]
    rows = []
    for name, runs in found.items():
        own = samples[name]
        row: dict[str, Any] = {"case": case, "what": name, "command": command(case, name, timesteps)}
        for measure, values in own.items():
            row[measure] = rounded(estimate(values.mean(), values, RESAMPLES, generator))
        if name != LADDER:
            row["ladder_less"] = {
                measure: rounded(difference(of.mean() - own[measure].mean(), of, own[measure], RESAMPLES, generator))
                for measure, of in ladder.items()
            }
        row["curve"] = np.mean([one.curve for one in runs], axis=0).round(2).tolist()
        row["runs"] = [{field: value for field, value in one._asdict().items() if field != "curve"} for one in runs]
        rows.append(row)
    return rows


def sample(runs: Sequence[Explored], measure: str, best: float) -> Array:
    """One measure of each run: float64 ``[runs]``."""
    return np.array([one.measured(best)[measure] for one in runs])


def command(case: str, name: str, timesteps: int) -> str:
    """The command that repeats a run of a row, without its visits."""
    task, size = CASES[case]
    words = ["--env", f"{task.__module__}:{task.__name__}", "--env_args", f'\'{{"size": {size}, "layout": SEED}}\'']
    told = {**settings(ROWS[name], timesteps), "hidden_sizes": ",".join(map(str, SETTING["hidden_sizes"]))}
    return " ".join(["penstock train", *words, *flags(told), "--seed SEED"])


def rounded(values: Sequence[float | None]) -> list[float | None]:
    """A mean and the two ends of its interval; ``None`` where there is no interval."""
    return [None if value is None else round(float(value), 3) for value in values]


def line(row: Mapping[str, Any]) -> str:
    """One row, printed."""
    texts = [
        f"{measure} {value:.2f}" + ("" if low is None else f" ({low:.2f} to {high:.2f})")
        for measure, (value, low, high) in ((measure, row[measure]) for measure in MEASURES)
    ]
    return f"{row['case']:9} {row['what']:32} {', '.join(texts)}"


def main() -> None:
    """Train, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(6)))
    parser.add_argument("--timesteps", type=positive_int, default=16_384, help="steps of each run, all lanes together")
    parser.add_argument("--write", type=destination, help="write the result here as JSON")
    args = parser.parse_args()
    found: dict[str, dict[str, list[Explored]]] = {case: {name: [] for name in ROWS} for case in args.cases}
    for seed in args.seeds:
        for case, rows in found.items():
            for name, runs in rows.items():
                runs.append(kept(case, name, args.timesteps, seed))
                _, visited, goal, greedy, _ = runs[-1]
                print(f"{case} seed {seed}: {name}: {visited} states, goal {goal}, greedy {greedy:.3f}", flush=True)
    made = [row for case, rows in found.items() for row in entries(case, args.timesteps, rows)]
    print("\n".join(line(row) for row in made))
    if args.write:
        tasks = {case: CASES[case] for case in args.cases}
        sizes = {case: {"size": size, "states": task(size, layout=0).reachable} for case, (task, size) in tasks.items()}
        setting = {"timesteps": args.timesteps, "seeds": args.seeds, "tasks": sizes}
        write(args.write, {"command": command_of("python -m benchmarks.exploration"), "setting": setting, "rows": made})


if __name__ == "__main__":
    main()
