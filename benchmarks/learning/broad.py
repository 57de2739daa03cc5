"""Every algorithm at its defaults on tasks that nobody tuned for, beside stable-baselines3's.

    python -m benchmarks.learning.broad                        # goes on with the first open run, until all are done
    python -m benchmarks.learning.broad --runs 3 LunarLander-v3 Acrobot-v1      # at most three runs, of these tasks
    python -m benchmarks.learning.broad --algo ppo sac --side penstock          # of these algorithms, only our side
    python -m benchmarks.learning.broad --page                 # writes only the page

`broad.toml` lists tasks, algorithms and steps, `broad_plan.py` the runs in their order. All of them take several
nights of two cores, so each is a result of its own, `results/broad/<task>/<algorithm>-<side>-<seed>.json`, and one
that is there is not repeated, unless a default or the steps have changed since. Seeds are the outer loop: every task is
seen once before any is seen twice. After each run the page is written anew: `results/broad/README.md` and `curves.png`
(`broad_page.py`).

Needs `penstock[box2d,learn,mujoco]`. The peer's environment is made by itself.
"""

import argparse
import sys
import time

from benchmarks.arguments import positive_int
from benchmarks.learning.beside import train_ours, train_theirs
from benchmarks.learning.broad_page import write_page
from benchmarks.learning.broad_plan import RESULTS, Run, runs, tasks
from benchmarks.learning.pairs import OURS, PEER
from benchmarks.record import destination, write


def train(run: Run) -> None:
    """Train and write the result."""
    path = destination(run.path())
    pair = run.pair()
    name = f"broad/{path.parent.name}-{run.algo}"
    trained = train_ours(name, pair, run.seed) if run.side == OURS else train_theirs(pair, run.seed)
    write(
        path,
        {
            "date": time.strftime("%Y-%m-%d"),
            "task": run.task,
            "algo": run.algo,
            "timesteps": run.timesteps,
            "side": run.side,
            "settings": pair.settings()[run.side],
            **trained.entry(),
        },
    )


def main() -> int:
    """Take open runs one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = tasks()
    parser.add_argument("tasks", nargs="*", help=f"of {', '.join(listed)}; left out: all", metavar="TASK")
    parser.add_argument("--runs", type=positive_int, help="stop after so many runs", metavar="N")
    algorithms = sorted({algo for steps in listed.values() for algo in steps})
    parser.add_argument("--algo", nargs="+", choices=algorithms, default=algorithms, help="only of these")
    parser.add_argument("--side", choices=(OURS, PEER), help="only of this side")
    parser.add_argument("--page", action="store_true", help="train nothing, write only the page")
    args = parser.parse_args()
    if unknown := set(args.tasks) - set(listed):
        parser.error(f"broad.toml has no task {', '.join(sorted(unknown))}")
    wanted = runs({task: listed[task] for task in args.tasks or listed})
    sides = (OURS, PEER) if args.side is None else (args.side,)
    still_open = [run for run in wanted if run.algo in args.algo and run.side in sides and run.result() is None]
    for number, run in enumerate([] if args.page else still_open[: args.runs], 1):
        print(f"{number} of {len(still_open)}: {run.task} {run.algo}, {run.side}, seed {run.seed}", flush=True)
        train(run)
        write_page(RESULTS, list(runs(listed)))
    write_page(RESULTS, list(runs(listed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
