"""A3C: each environment process computes gradients of its own rollouts, and each is applied once."""

import json
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.errors import ConfigError
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from tests.children import killing

pytestmark = pytest.mark.usefixtures("shared_templates")

LANES, STEPS = 4, 8
SMALL = {
    "env": "Pendulum-v1",
    "algo": "a3c",
    "num_envs": LANES,
    "num_workers": 2,
    "num_steps": STEPS,
    "hidden_sizes": (8, 8),
    "eval_episodes": 1,
}
ROLLOUT = LANES // 2 * STEPS


def train(log_dir: Path, rollouts: int, **settings: object) -> Result:
    return penstock.train({**SMALL, "log_dir": str(log_dir), "timesteps": rollouts * ROLLOUT, **settings}, quiet=True)


def counts(result: Result) -> dict[str, int]:
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    names = ("update", "steps", "stale")
    return {name: int(arrays[name]) for name in names} | {"rollouts": int(arrays["lane_rollout"][:: LANES // 2].sum())}


def test_each_rollout_is_learned_from_once(tmp_path) -> None:
    result = train(tmp_path, 60, max_policy_lag=60)
    found = counts(result)
    assert found == {"update": 60, "steps": 60 * ROLLOUT, "stale": 0, "rollouts": 60}
    lines = [json.loads(line) for line in (result.run_folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if "rows/collected" in line:
            parts = (line[f"rows/{name}"] for name in ("learned", "in_flight", "stale", "spoilt"))
            assert line["rows/collected"] == sum(parts)


# Five seconds each.
@pytest.mark.parametrize("group", ["learner", pytest.param("env.1", marks=pytest.mark.nightly)])
def test_a_death_loses_no_rollout_and_doubles_none(tmp_path, group: str) -> None:
    with killing([group] * 2, tmp_path):
        result = train(tmp_path, 400, save_interval=40)
    found = counts(result)
    assert found["steps"] == found["update"] * ROLLOUT >= 400 * ROLLOUT
    assert found["rollouts"] * ROLLOUT == found["steps"] + found["stale"]


def test_a_resumed_run_goes_on_behind_what_was_learned(tmp_path) -> None:
    first = train(tmp_path, 30)
    second = penstock.resume(first.run_folder, timesteps=60 * ROLLOUT, quiet=True)
    assert counts(second)["steps"] == 60 * ROLLOUT


def test_gradients_that_are_too_old_are_dropped_with_their_rollouts_and_counted(tmp_path) -> None:
    result = train(tmp_path, 60, max_policy_lag=0, num_envs=8, num_workers=4)
    found = counts(result)
    assert found["steps"] == found["update"] * ROLLOUT >= 60 * ROLLOUT
    assert found["rollouts"] * ROLLOUT == found["steps"] + found["stale"]
    lines = [json.loads(line) for line in (result.run_folder / "metrics.jsonl").read_text().splitlines()]
    lags = [line["gradients/lag"] for line in lines if "gradients/lag" in line]
    assert lags
    assert set(lags) == {0.0}


def test_a_gradient_is_the_mean_of_its_parts(tmp_path) -> None:
    # One worker waits for its own gradients, so two such runs play the same rollouts.
    whole, parts = (
        train(tmp_path / str(count), 3, num_envs=2, num_workers=1, backend="eager", accumulate=count)
        for count in (1, 3)
    )
    first, second = (load_checkpoint(find_checkpoint(result.run_folder)).arrays for result in (whole, parts))
    # The sums are rounded differently: there were parts.
    assert not np.array_equal(first["actor"], second["actor"])
    np.testing.assert_allclose(second["actor"], first["actor"], atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"learners": 2}, "--algo a3c has a learner in each environment process: leave --learners out"),
        ({"accumulate": 17}, "--accumulate 17 is more than the 16 rows of a rollout, .*; give at most 16"),
        ({"accumulate": 3, "model": "lstm"}, "--accumulate 3 is more than the 2 lanes of a rollout"),
        ({"normalize_obs": True}, "--normalize_obs needs statistics of whole batches"),
        ({"backend": "compiled"}, "--backend compiled does not run --algo a3c here"),
        ({"sync_mode": "blocking"}, "blocking"),
    ],
)
def test_what_does_not_go_with_it_is_refused(tmp_path, settings, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        train(tmp_path, 1, **settings)
