"""Several learners of one table: the counts of gradients and rows are right after any kill."""

import json
from pathlib import Path

import pytest

import penstock
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from tests.children import killing

pytestmark = pytest.mark.usefixtures("shared_templates")

LAG = 5
SMALL = {
    "env": "Pendulum-v1",
    "algo": "sac",
    "sync_mode": "non_blocking",
    "num_envs": 4,
    "num_steps": 8,
    "num_workers": 1,
    "mini_batch_size": 16,
    "updates_per_step": 0.25,
    "min_rows": 200,
    "hidden_sizes": (8, 8),
    "eval_episodes": 1,
    "backend": "eager",
    "learners": 2,
    "max_policy_lag": LAG,
}


def train(log_dir: Path, timesteps: int, **settings: object) -> Result:
    return penstock.train({**SMALL, "log_dir": str(log_dir), "timesteps": timesteps, **settings}, quiet=True)


@pytest.mark.nightly  # Ten seconds. Shorter: with a death, below.
def test_each_gradient_that_is_due_is_applied_once(tmp_path) -> None:
    result = train(tmp_path, 800)
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    assert result.steps == int(arrays["steps"]) >= 800
    assert int(arrays["owed"]) == 0
    assert int(arrays["applied"]) == int(arrays["gradient_steps"]) == (result.steps - 200) // 4
    assert int(arrays["settled"].sum()) == int(arrays["applied"] + arrays["too_old"])
    assert (arrays["settled"] > 0).all()
    lines = [json.loads(line) for line in (result.run_folder / "metrics.jsonl").read_text().splitlines()]
    found = [line for line in lines if "gradients/lag" in line]
    assert {"loss/value", "loss/entropy", "replay/ratio"} <= set(found[-1])
    assert all(0 <= line["gradients/lag_max"] <= LAG for line in found)
    # The last line is that of the last gradient step, although some steps come after the last rollout.
    updates = [line for line in lines if "gradients/applied" in line]
    assert updates[-1]["gradients/applied"] == int(arrays["applied"])
    assert updates[-1]["gradients/owed"] == 0
    assert len({line["update"] for line in updates}) == len(updates)


def test_a_resumed_run_goes_on_with_what_was_collected_and_settled(tmp_path) -> None:
    first = train(tmp_path, 400)
    second = penstock.resume(first.run_folder, timesteps=600, quiet=True)
    arrays = load_checkpoint(find_checkpoint(second.run_folder)).arrays
    assert second.steps >= 600
    assert int(arrays["owed"]) == 0
    assert int(arrays["applied"]) == int(arrays["gradient_steps"]) == (second.steps - 200) // 4


# Eight seconds each. Shorter: the one that owns the parameters.
@pytest.mark.parametrize("group", ["learner", pytest.param("learner.1", marks=pytest.mark.nightly)])
def test_a_death_loses_no_gradient_and_doubles_none(tmp_path, group: str) -> None:
    with killing([group] * 3, tmp_path):
        result = train(tmp_path, 2_000, save_interval=3)
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    assert int(arrays["owed"]) == 0
    assert int(arrays["applied"]) == int(arrays["gradient_steps"]) == (result.steps - 200) // 4
    assert int(arrays["settled"].sum()) == int(arrays["applied"] + arrays["too_old"])


@pytest.mark.parametrize(
    ("learners", "reuse"),
    [
        # Four seconds of waiting for rows each, and more. Shorter: below, each gradient that is due is applied once.
        pytest.param(1, 3.0, marks=pytest.mark.nightly),
        pytest.param(2, 1.0, marks=pytest.mark.nightly),
        pytest.param(1, 1.0, marks=pytest.mark.nightly),
        pytest.param(2, 3.0, marks=pytest.mark.nightly),
    ],
)
def test_learners_go_on_with_what_they_have_up_to_the_bound_while_rows_are_slow(
    tmp_path, learners: int, reuse: float
) -> None:
    slow = {"env": "tests.environments:SlowPendulum", "num_envs": 2, "num_steps": 32}
    result = train(tmp_path, 600, **slow, learners=learners, reuse=reuse)
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    due = (result.steps - 200) // 4
    assert due <= int(arrays["gradient_steps"]) <= reuse * due
    if reuse > 1.0:
        # A rollout takes 320 ms, the 16 steps that it makes due a tenth of that.
        assert int(arrays["gradient_steps"]) > due
    lines = [json.loads(line) for line in (result.run_folder / "metrics.jsonl").read_text().splitlines()]
    ratios = [line["replay/ratio"] for line in lines if "replay/ratio" in line]
    assert ratios[-1] == pytest.approx(int(arrays["gradient_steps"]) * 16 / result.steps, rel=0.2)


def test_learners_that_pull_late_stay_within_the_bound(tmp_path) -> None:
    """Two learners have two slots each. So parameters are pulled once they are 20 - 4 steps behind."""
    result = train(tmp_path, 800, pace="lag", max_policy_lag=20)
    lines = [json.loads(line) for line in (result.run_folder / "metrics.jsonl").read_text().splitlines()]
    lags = [line["gradients/lag_max"] for line in lines if "gradients/lag_max" in line]
    # Those that pull at once are at most as many steps behind as there are slots.
    assert 4 < max(lags) <= 20
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    assert int(arrays["applied"]) == (result.steps - 200) // 4


# Four seconds each. Shorter: ``tests/gradient_exchange/test_compression.py`` has both.
@pytest.mark.parametrize("compress", ["int8", pytest.param("topk:0.1", marks=pytest.mark.nightly)])
def test_gradients_that_are_compressed_are_applied_once_too(tmp_path, compress: str) -> None:
    """Fewer than half the bytes of gradients that are sent as they are."""
    result = train(tmp_path, 800, compress=compress)
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    assert int(arrays["owed"]) == 0
    assert int(arrays["applied"]) == int(arrays["gradient_steps"]) == (result.steps - 200) // 4
    lines = [json.loads(line) for line in (result.run_folder / "metrics.jsonl").read_text().splitlines()]
    sent = sum(line.get("exchange/bytes", 0.0) for line in lines)
    learned = sum(values.nbytes for name, values in arrays.items() if name.startswith("adam_m."))
    assert 0 < sent <= 0.5 * learned * int(arrays["settled"].sum())


def test_learners_that_step_together_may_collect_meanwhile(tmp_path) -> None:
    result = train(tmp_path, 800, exchange="allreduce", num_workers=2, mini_batch_size=16)
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    assert int(arrays["gradient_steps"]) >= (result.steps - 200) // 4
