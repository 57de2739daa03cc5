"""Soak of actor-learner training: PPO on Pendulum for half an hour, with a fault every 5 seconds.

    python -m benchmarks.soak.on_policy                  # make soak: 30 minutes with faults, 10 without, in turns
    python -m benchmarks.soak.on_policy --minutes 1      # 3 minutes, to see that it runs: slopes are too short to judge

1. Every 4 to 6 seconds a random process of a real ``penstock train`` is ended by SIGKILL. One fault in ten stops an
   environment's process instead; the run has to find it by its time-out.
2. After half of the time Ctrl-C ends the run, and it is resumed.
3. At the end its launcher is killed, the run is resumed to its end and evaluated.

``timetable.py`` says when faults come, ``measures.py`` what is measured. Ends with 1 if a bar is missed. Runs on Linux
only.
"""

import argparse
import math
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.arguments import positive_float
from benchmarks.record import ROOT, command_of, destination
from benchmarks.runs import evaluate, flags
from benchmarks.soak.faults import Draw
from benchmarks.soak.report import Asked, Finding, save
from benchmarks.soak.sitting import BrokenError, Sitting, Watched
from benchmarks.soak.timetable import timetable

MEMBERS = {
    "env.0": ("env.0",),
    "env.1": ("env.1",),
    "learner": ("learner",),
    "evaluator": ("evaluator",),
    "monitor": ("checkpointer", "monitor"),
}
"""Process -> the nodes that it runs."""
STOPPED = ("env.0", "env.1")
SPARED = ("env.0", "learner", "evaluator", "env.1", "monitor", None)
"""The spared process of each turn. The first three turns are before Ctrl-C."""
SETTING = {
    "env": "benchmarks.soak.environment:attended",
    "num_envs": 8,
    "num_workers": 2,
    # The run ends only when it is told to.
    "timesteps": 1_000_000_000_000,
    # A third of the usual value: the run goes on for hundreds of millions of steps after it has learned the task.
    "lr": 1e-4,
    "save_interval": 20,
    "eval_interval": 40,
    "eval_episodes": 16,
    "env_timeout": 3,
}
THRESHOLD = -200.0
EPISODES = 100
LAST_STEPS = 1_000_000
"""Steps that the last resume trains before it ends by itself."""
LAST_LIMIT_S = 300.0
FULL_MINUTES = 30.0
WARM_UP_S = 60.0


def sit(sitting: Sitting, minutes: float, folder: Path) -> float:
    """Go through a whole sitting; returns the mean return of the policy at its end.

    Raises:
        BrokenError: the run did something after which the sitting cannot go on.
    """
    first, second = timetable(minutes, SPARED, lives=2)
    sitting.begin("train", *flags(SETTING), "--log_dir", str(folder))
    sitting.go_through(first)
    sitting.interrupt()
    run = sitting.watched.run
    if run is None:
        raise BrokenError("there is no run folder")
    sitting.begin("resume", str(run))
    sitting.go_through(second)
    sitting.kill()
    steps = sitting.watched.reports[-1].steps + LAST_STEPS
    sitting.begin("resume", str(run), "--timesteps", str(steps))
    sitting.wait(LAST_LIMIT_S)
    return float(evaluate(run, EPISODES)["mean_return"])


def missed(found: Finding, minutes: float) -> list[str]:
    """A line for each missed bar. In a short form, figures that were too short to judge do not count."""
    return [bar.line() for bar in found.bars if not bar.holds and (minutes >= FULL_MINUTES or math.isfinite(bar.value))]


def soak(minutes: float, seed: int, path: Path, command: str) -> list[str]:
    """Run the sitting, report every minute and at the end. Returns the missed bars."""
    turn_s = minutes * 60.0 / len(SPARED)
    asked = Asked(
        command=command,
        run=" ".join(["penstock train", *flags(SETTING)]),
        minutes=minutes,
        members=MEMBERS,
        threshold=THRESHOLD,
        warm_up_s=min(WARM_UP_S, turn_s / 2),
    )
    folder = Path(tempfile.mkdtemp(prefix="penstock-soak-"))
    draw = Draw(tuple(MEMBERS), STOPPED, seed)

    def under_way(watched: Watched) -> None:
        save(path, asked, watched, None, "")

    sitting, mean_return, broken = Sitting(folder, MEMBERS, draw, under_way), None, None
    try:
        mean_return = sit(sitting, minutes, folder)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it was, what was seen is reported
        broken = f"broken off: {str(error) or type(error).__name__}; what it has written stands in {folder}"
    finally:
        sitting.give_up()
    found = save(path, asked, sitting.watched, mean_return, broken)
    for bar in found.bars:
        print(bar.line() if math.isfinite(bar.value) else f"{bar.name}: too short to judge", flush=True)
    short = [*missed(found, minutes), *found.wrong, *([broken] if broken else [])]
    if not short:
        shutil.rmtree(folder)
    return short


def main() -> int:
    """Soak for as long as asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=positive_float, default=FULL_MINUTES, help="with faults; quiet comes on top")
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    place = ROOT / "build/benchmarks/soak_on_policy.json"
    parser.add_argument("--write", type=destination, default=place, metavar="FILE")
    args = parser.parse_args()
    short = soak(args.minutes, args.seed, args.write, command_of("python -m benchmarks.soak.on_policy"))
    print("\n".join(["falls short:", *short]) if short else "every bar holds")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
