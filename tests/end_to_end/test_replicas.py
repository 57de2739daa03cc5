"""Learners that step together, in real runs: each has the state of the others after every step, and it is one's."""

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from penstock.types import Arrays
from tests.children import killing
from tests.end_to_end import step_log
from tests.end_to_end.small_run import SMALL, TURN

pytestmark = pytest.mark.usefixtures("shared_templates")

TABLE = {"algo": "sac", "updates_per_step": 0.125, "min_rows": 100, "timesteps": 6 * TURN}
TABLE_STEPS = (6 * TURN - 100) // 8
STREAM = {"algo": "ppo", "epochs": 4, "timesteps": 3 * TURN, "normalize_obs": True, "normalize_value": True}
STREAM_STEPS = 3 * 4
BACKENDS = pytest.mark.parametrize("backend", ["fused", "eager"])
LEARNERS = pytest.mark.parametrize("learners", [2, 3])


def train(folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: object) -> tuple[Arrays, Path]:
    """The arrays at the end of a run, and the log of all gradient steps."""
    folder.mkdir(exist_ok=True)
    log = folder / "steps"
    monkeypatch.setattr("penstock.planning.plans.UPDATES", step_log.UPDATES)
    monkeypatch.setenv(step_log.LOG, str(log))
    result = penstock.train({**SMALL, **settings, "log_dir": str(folder)}, quiet=True)
    return load_checkpoint(find_checkpoint(result.run_folder)).arrays, log


def check(one: Arrays, several: Arrays, log: Path, learners: int, steps: int) -> None:
    """Check that all learners had one state after each step, and ended where one learner did."""
    logged = step_log.states(log)
    assert len(step_log.steps(log)) == learners * steps
    assert sorted(logged) == list(range(learners))
    assert sorted(logged[0]) == list(range(1, steps + 1))
    assert all(logged[learner] == logged[0] for learner in range(learners))
    moved = [name for name, values in one.items() if name.startswith(("actor", "critic", "target.", "log_alpha"))]
    assert {"actor", "critic"} <= set(moved)
    for name in moved:
        np.testing.assert_allclose(several[name], one[name], rtol=2e-4, atol=2e-5, err_msg=name)
    # The learners did take part: sums of parts have other bits.
    assert not np.array_equal(one["actor"], several["actor"])


@BACKENDS
@LEARNERS
def test_learners_of_a_table_are_one_learner_with_all_rows_after_every_step(
    tmp_path, monkeypatch, backend: str, learners: int
) -> None:
    settings = {**TABLE, "backend": backend, "num_workers": learners}
    one, _ = train(tmp_path / "one", monkeypatch, **settings, runtime="inline")
    several, log = train(tmp_path / "several", monkeypatch, **settings, learners=learners)
    assert one["gradient_steps"] == several["gradient_steps"] == TABLE_STEPS
    check(one, several, log, learners, TABLE_STEPS)


@BACKENDS
@LEARNERS
def test_learners_of_a_stream_are_one_learner_with_all_rows_after_every_step(
    tmp_path, monkeypatch, backend: str, learners: int
) -> None:
    settings = {**STREAM, "backend": backend, "num_workers": learners, "sync_mode": "blocking"}
    one, _ = train(tmp_path / "one", monkeypatch, **settings, runtime="inline")
    several, log = train(tmp_path / "several", monkeypatch, **settings, learners=learners)
    assert one["adam_step"] == several["adam_step"] == STREAM_STEPS
    check(one, several, log, learners, STREAM_STEPS)


@pytest.mark.parametrize("settings", [STREAM, TABLE], ids=["stream", "table"])
@pytest.mark.parametrize("dead", [0, 1])
def test_a_learner_that_died_comes_back_with_the_state_of_the_others(
    tmp_path, monkeypatch, settings: dict[str, object], dead: int
) -> None:
    """How long the others stand still meanwhile is measured by ``python -m benchmarks.leaving``."""
    settings = {**settings, "timesteps": 40 * TURN, "sync_mode": "blocking", "backend": "fused"}
    with killing([f"learner.{dead}" if dead else "learner"] * 2, tmp_path) as killed:
        _, log = train(tmp_path, monkeypatch, **settings, learners=3, num_workers=3, save_interval=1)
    assert len(killed) == 2
    states = step_log.states(log)
    last = {learner: max(of_learner.items()) for learner, of_learner in states.items()}
    assert last[0] == last[1] == last[2]
