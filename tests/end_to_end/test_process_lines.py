"""What the processes of a run log stands in the log of the run, and on the console as before."""

import logging
import re
import warnings
from pathlib import Path

import penstock
from tests.environments import ClockEnv


class HotEnv(ClockEnv):
    """Warns of each step and reset in words that never change."""

    def reset(self, *, seed=None, options=None):
        logging.getLogger("plant").error("no sensor")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        logging.warning("too hot")
        warnings.warn("too old", stacklevel=1)
        return super().step(action)


def test_warnings_of_environments_stand_in_the_log_with_their_count_and_on_the_console(tmp_path: Path, capfd) -> None:
    settings = {
        "env": f"{__name__}:HotEnv",
        "num_steps": 20,
        "num_envs": 4,
        "num_workers": 2,
        "epochs": 1,
        "mini_batch_size": 40,
        "timesteps": 160,
        "eval_episodes": 2,
        "log_dir": str(tmp_path),
    }
    result = penstock.train(settings, quiet=True)
    assert capfd.readouterr().err.count("too hot\n") >= 160
    lines = [line.split(" ", 1)[1] for line in (result.run_folder / "run.log").read_text().splitlines()]
    hot = [line for line in lines if ": too hot" in line]
    assert hot[0] in {"WARNING env.0: too hot", "WARNING env.1: too hot"}
    counted = r"WARNING env\.[01]: too hot \((\d+) times (?:so far|in all), in 2 processes\)"
    counts = [int(found[1]) for line in hot if (found := re.fullmatch(counted, line))]
    assert counts[-1] >= 160, "every step of both processes"
    played = re.match(r"WARNING player\.[01]: too hot \((\d+) times in all", hot[-1])
    assert played is not None
    assert int(played[1]) >= 40, "every step of both episodes of the evaluation"
    # For the first, the 10th and the 100th time, and at the end: in training and in the final evaluation.
    assert len(hot) <= 2 * 4
    assert any(re.match(r"ERROR env\.[01]: plant: no sensor", line) for line in lines)
    assert any(re.match(r"WARNING env\.[01]: test_process_lines\.py:\d+: UserWarning: too old", line) for line in lines)
