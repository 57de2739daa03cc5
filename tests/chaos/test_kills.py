"""Processes of real runs are killed at random moments. In lock step the result does not change."""

import json
import random
import time
from pathlib import Path

import psutil
import pytest

import penstock
from penstock.run import Result
from tests.children import killing, of_group
from tests.fingerprints import fingerprint

pytestmark = pytest.mark.usefixtures("shared_templates")

SETTINGS = {"num_steps": 64, "epochs": 3, "mini_batch_size": 64, "num_envs": 4, "num_workers": 2, "eval_episodes": 2}
BATCH = 64 * 4
UPDATES = 120


def find(group: str, limit_s: float = 60.0) -> psutil.Process | None:
    """The process of a placement group of the run that this process has launched."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if (process := of_group(group)) is not None:
            return process
        time.sleep(0.01)
    return None


def train(log_dir: Path, updates: int, **settings: object) -> Result:
    return penstock.train({**SETTINGS, "log_dir": str(log_dir), "timesteps": updates * BATCH, **settings}, quiet=True)


def lines(result: Result) -> list[dict]:
    return [json.loads(line) for line in (result.run_folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, str]:
    return fingerprint(train(tmp_path_factory.mktemp("whole"), UPDATES, env="Pendulum-v1", save_interval=10))


@pytest.mark.nightly  # Five seconds and more for each order of kills. Shorter: ``test_exact_kills.py``, one by one.
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_in_lock_step_no_kill_changes_the_answer(tmp_path, undisturbed, seed: int) -> None:
    draw = random.Random(seed)
    groups = ["env.0", "learner", "env.1", "monitor", "learner", "env.0"]
    draw.shuffle(groups)
    with killing(groups, tmp_path) as killed:
        result = train(tmp_path, UPDATES, env="Pendulum-v1", save_interval=10)
    assert len(killed) >= 3
    assert result.not_restored == 0
    assert fingerprint(result) == undisturbed
    told = [line for line in lines(result) if "note" in line]
    assert {"env.0", "env.1", "learner"} & {line["note"].split()[0] for line in told}
    assert all("was ended by SIGKILL" in line["note"] for line in told)
