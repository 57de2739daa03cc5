"""Learners of a stream whose parameters one node owns, or that step a shared vector: equal to one, counted, killed."""

import json
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.cli import main
from penstock.config.sources import shown
from penstock.errors import ConfigError, NodeError
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from tests.children import killing
from tests.end_to_end.small_run import LANES, SMALL, TURN

pytestmark = pytest.mark.usefixtures("shared_templates")

LAG = 10
SERVED = {
    **SMALL,
    "num_workers": 2,
    "mini_batch_size": 24,
    "epochs": 2,
    "learners": 2,
    "exchange": "parameter_server",
}
ROLLOUT = TURN // 2
BATCH_STEPS = 2 * 2
"""Gradient steps of a learner's batch: two epochs of 48 rows in minibatches of 24."""


def train(log_dir: Path, updates: int, **settings: object) -> Result:
    whole = {**SERVED, "log_dir": str(log_dir), "timesteps": updates * ROLLOUT, **settings}
    return penstock.train(whole, quiet=True)


def arrays(result: Result) -> dict[str, np.ndarray]:
    return load_checkpoint(find_checkpoint(result.run_folder)).arrays


def lines(result: Result) -> list[dict[str, float]]:
    return [json.loads(line) for line in (result.run_folder / "metrics.jsonl").read_text().splitlines()]


def check_rows(result: Result) -> dict[str, np.ndarray]:
    """Each row that the lanes gave was learned from, is stale, or is on its way: at the end and in every line."""
    found = arrays(result)
    assert int(found["lane_rollout"][:: LANES // 2].sum()) * ROLLOUT == int(found["steps"] + found["stale"])
    for line in lines(result):
        if "rows/collected" in line:
            assert line["rows/collected"] == sum(
                line[f"rows/{name}"] for name in ("learned", "in_flight", "stale", "spoilt")
            )
    return found


def check_gradients(found: dict[str, np.ndarray]) -> None:
    """Each gradient was applied or dropped, once. Rollouts that were too old to learn from are named without one."""
    without = int(found["settled"].sum() - found["applied"] - found["too_old"])
    assert 0 <= without * ROLLOUT <= int(found["stale"])


def check_lags(result: Result, bound: int) -> list[float]:
    """Check that no gradient of any batch was older than its bound. Returns the largest age of each batch."""
    found = [line["gradients/lag_max"] for line in lines(result) if "gradients/lag_max" in line]
    assert len(found) > 10
    assert all(0 <= lag <= bound for lag in found)
    return found


@pytest.mark.parametrize(("backend", "learners"), [("eager", 2), ("fused", 3)])
def test_learners_in_step_with_a_share_each_are_one_learner_with_all_rows(tmp_path, backend: str, learners) -> None:
    """Each minibatch is the whole batch of 96 rows, so one learner and several see the same rows in it."""
    settings = {
        "num_workers": learners,
        "backend": backend,
        "epochs": 4,
        "mini_batch_size": TURN,
        "normalize_obs": True,
        "normalize_value": True,
    }
    one = arrays(train(tmp_path, 6, **settings, learners=1, exchange="auto", runtime="inline"))
    several = arrays(train(tmp_path, 6, **settings, learners=learners, pace="sync"))
    assert one["adam_step"] == several["adam_step"] == 3 * 4
    for name in ("actor", "critic", "obs_mean", "obs_var", "value_mean"):
        np.testing.assert_allclose(several[name], one[name], rtol=2e-4, atol=2e-5, err_msg=name)
    # Advantages that each learner normalised by its own mean and deviation would give another step.
    assert not np.array_equal(one["actor"], several["actor"])


def test_learners_in_step_are_resumed_exactly(tmp_path) -> None:
    def parameters(result: Result) -> dict[str, bytes]:
        return {name: values.tobytes() for name, values in arrays(result).items() if name in {"actor", "critic"}}

    uninterrupted = parameters(train(tmp_path / "whole", 12, pace="sync"))
    first = train(tmp_path / "parts", 6, pace="sync")
    assert parameters(penstock.resume(first.run_folder, timesteps=12 * ROLLOUT, quiet=True)) == uninterrupted


@pytest.mark.parametrize("group", ["learner", "learner.1"])
def test_in_step_a_death_leaves_no_rows_of_a_gradient_out(tmp_path, group: str) -> None:
    with killing([group] * 2, tmp_path):
        result = train(tmp_path, 80, pace="sync", save_interval=1)
    found = arrays(result)
    assert (int(found["update"]), int(found["steps"]), int(found["stale"])) == (40, 40 * TURN, 0)
    assert int(found["adam_step"]) == 40 * 2 * 4


@pytest.mark.parametrize(
    ("algo", "backend"),
    [
        # Half a minute of compiling. Shorter: ``tests/updates/test_replay.py``, and a run of ``tests/examples``.
        pytest.param("ppo", "compiled", marks=pytest.mark.nightly),
        ("a2c", "eager"),
        ("impala", "fused"),
        ("appo", "fused"),
    ],
)
def test_every_algorithm_of_a_stream_is_served(tmp_path, algo: str, backend: str) -> None:
    settings = {"algo": algo, "backend": backend}
    whole = {**SERVED, **settings, "log_dir": str(tmp_path), "timesteps": 12 * ROLLOUT}
    if algo in {"a2c", "impala"}:
        del whole["epochs"]
    result = penstock.train(whole, quiet=True)
    assert result.steps >= 12 * ROLLOUT
    check_rows(result)


@pytest.mark.parametrize("agree", [{}, {"pace": "lag"}, {"compress": "topk:0.01"}, {"compress": "int8"}])
def test_each_gradient_of_learners_apart_is_applied_once(tmp_path, agree: dict[str, str]) -> None:
    result = train(tmp_path, 40, max_policy_lag=LAG, **agree)
    found = check_rows(result)
    check_gradients(found)
    assert int(found["adam_step"]) == int(found["applied"])
    # Batches that are not at their end yet have some gradients that count already.
    whole = int(found["update"]) * BATCH_STEPS
    more = (2 + int(found["stale"]) // ROLLOUT) * BATCH_STEPS
    assert whole <= int(found["applied"] + found["too_old"]) < whole + more
    told = check_lags(result, LAG)
    if "compress" not in agree:
        # Learners take turns: the gradients of every batch count, whichever learner has sent them.
        each = 4 * sum(found[name].size for name in ("actor", "critic"))
        assert sum(line.get("exchange/bytes", 0.0) for line in lines(result)) >= whole * each
    if agree.get("pace") == "lag":
        # Two learners have two slots each: parameters are taken once they are more than 10 - 4 steps behind.
        assert max(told) > 4


def test_by_the_command_line_a_learner_pulls_only_when_it_is_more_than_ten_steps_behind(tmp_path) -> None:
    """Two gradients of each of two learners may wait to be applied, so the bound of 14 leaves 10 to the learner."""
    settings = {**SERVED, "pace": "lag", "max_policy_lag": 14, "timesteps": 80 * ROLLOUT, "log_dir": str(tmp_path)}
    assert main(["train", *(f"--{name}={shown(value)}" for name, value in settings.items())]) == 0
    (run,) = tmp_path.iterdir()
    metrics = penstock.read_metrics(run)
    assert 10 <= metrics.query("gradients/lag_max", "max") <= 14
    assert metrics.query("gradients/applied", "last") > 200


@pytest.mark.parametrize("compress", ["none", "topk:0.1"])
def test_bytes_are_those_that_all_learners_send(tmp_path, compress: str) -> None:
    """In step both learners send one gradient for each of the 8 steps of an update."""
    result = train(tmp_path, 4, pace="sync", compress=compress)
    sizes = [arrays(result)[name].size for name in ("actor", "critic")]
    each = 4 * sum(sizes) if compress == "none" else sum(8 * -(-size // 10) for size in sizes)
    assert [line["exchange/bytes"] for line in lines(result) if "exchange/bytes" in line] == [2 * 2 * 4 * each] * 2


@pytest.mark.parametrize(
    ("group", "exchange"),
    [
        ("learner", "parameter_server"),
        # Four seconds each. Shorter: one learner of each way.
        pytest.param("learner.1", "parameter_server", marks=pytest.mark.nightly),
        ("learner.1", "hogwild"),
        pytest.param("learner", "hogwild", marks=pytest.mark.nightly),
    ],
)
def test_a_death_apart_loses_no_rollout_and_doubles_none(tmp_path, group: str, exchange: str) -> None:
    with killing([group] * 2, tmp_path):
        result = train(tmp_path, 300, save_interval=20, exchange=exchange, max_policy_lag=LAG, log_interval=1)
    found = check_rows(result)
    if exchange == "parameter_server":  # With hogwild no age is bounded.
        check_lags(result, LAG)
    assert int(found["steps"]) == int(found["update"]) * ROLLOUT >= 300 * ROLLOUT
    check_gradients(found)


def test_a_resumed_run_goes_on_behind_what_was_learned(tmp_path) -> None:
    first = train(tmp_path, 20)
    second = penstock.resume(first.run_folder, timesteps=40 * ROLLOUT, quiet=True)
    assert int(check_rows(second)["steps"]) >= 40 * ROLLOUT
    # One learner goes on from where two were, on another backend.
    alone = {"learners": 1, "exchange": "auto", "backend": "eager"}
    third = penstock.resume(first.run_folder, timesteps=60 * ROLLOUT, settings=alone, quiet=True)
    assert third.steps >= 60 * ROLLOUT


@pytest.mark.parametrize("agree", [{"pace": "sync"}, {"pace": "async"}, {"exchange": "hogwild"}])
def test_numbers_that_are_not_finite_are_never_kept(tmp_path, agree: dict[str, str]) -> None:
    """Steps of this size soon make the losses, or the step itself, infinite. The checkpoint is from before."""
    with pytest.raises(NodeError, match=r"infinite or NaN|_loss is|grad_norm is"):
        train(tmp_path, 40, lr=1e30, **agree)
    (run,) = tmp_path.iterdir()
    found = load_checkpoint(find_checkpoint(run)).arrays
    assert all(np.isfinite(values).all() for values in found.values() if values.dtype == np.float32)


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_hogwild_learners_step_one_vector(tmp_path, algo: str) -> None:
    table = {"min_rows": 100, "updates_per_step": 0.25, "num_workers": 1, "mini_batch_size": 16}
    if algo == "sac":
        whole = {**SERVED, **table, "algo": "sac", "exchange": "hogwild", "log_dir": str(tmp_path), "timesteps": 1_000}
        del whole["epochs"]
        result = penstock.train(whole, quiet=True)
        found = arrays(result)
        assert int(found["owed"]) == 0
        assert int(found["applied"]) == int(found["gradient_steps"]) == (result.steps - 100) // 4
    else:
        result = train(tmp_path, 40, exchange="hogwild", normalize_obs=True)
        found = check_rows(result)
        check_gradients(found)
        assert found["obs_count"].sum() > 0
    assert all(np.isfinite(values).all() for values in found.values() if values.dtype == np.float32)
    assert max(line.get("exchange/bytes", 0.0) for line in lines(result)) > 0


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"exchange": "hogwild", "compress": "int8"}, "--compress int8 is for gradients that are sent, and hogwild"),
        ({"sync_mode": "blocking", "pace": "lag"}, "--pace lag .* in lock step .*; try --sync_mode non_blocking"),
        ({"num_workers": 3, "num_envs": 9}, "--num_workers 3 cannot be split evenly over --learners 2"),
        ({"num_workers": 3}, "--num_workers 3 cannot be split evenly over --learners 2"),
        ({"runtime": "inline"}, "--learners 2 needs --runtime local"),
    ],
)
def test_what_does_not_compose_is_refused(tmp_path, settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        train(tmp_path, 1, **settings)
    assert not any(tmp_path.iterdir())
