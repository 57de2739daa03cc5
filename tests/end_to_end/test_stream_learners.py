"""Several learners of one stream: equal to one learner, equal to each other, resumed, and killed."""

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
from tests.end_to_end import step_log
from tests.end_to_end.small_run import SMALL, TURN

pytestmark = pytest.mark.usefixtures("shared_templates")


def train(log_dir: Path, updates: int, **settings: object) -> Result:
    whole = {**SMALL, "log_dir": str(log_dir), "timesteps": updates * TURN, **settings}
    return penstock.train(whole, quiet=True)


def arrays(result: Result) -> dict[str, np.ndarray]:
    return load_checkpoint(find_checkpoint(result.run_folder)).arrays


def parameters(result: Result) -> dict[str, bytes]:
    return {name: values.tobytes() for name, values in arrays(result).items() if name in {"actor", "critic"}}


@pytest.mark.parametrize(
    ("algo", "backend", "learners"),
    [("ppo", "eager", 2), ("ppo", "fused", 3), ("impala", "fused", 2), ("appo", "fused", 3)],
)
def test_learners_with_a_share_each_are_one_learner_with_all_rows(tmp_path, algo, backend, learners: int) -> None:
    settings = {"algo": algo, "num_workers": learners, "normalize_value": True, "sync_mode": "blocking"}
    settings |= {"backend": backend, "normalize_obs": True}
    epochs = 1
    if algo != "impala":
        settings["epochs"] = epochs = 4
    one = arrays(train(tmp_path, 3, **settings, runtime="inline"))
    several = arrays(train(tmp_path, 3, **settings, learners=learners))
    assert one["adam_step"] == several["adam_step"] == 3 * epochs
    for name in ("actor", "critic", "obs_mean", "obs_var", "value_mean"):
        np.testing.assert_allclose(several[name], one[name], rtol=2e-4, atol=2e-5, err_msg=name)
    # Advantages that each learner normalised by its own mean and deviation would give another step.
    assert not np.array_equal(one["actor"], several["actor"])


@pytest.mark.parametrize(
    ("algo", "backend"),
    [
        pytest.param("ppo", "compiled", marks=pytest.mark.nightly),
        ("a2c", "fused"),
        ("impala", "eager"),
        pytest.param("appo", "eager", marks=pytest.mark.nightly),
    ],
)
def test_every_algorithm_of_a_stream_takes_several_learners(tmp_path, algo: str, backend: str) -> None:
    settings = {"algo": algo, "num_workers": 2, "learners": 2, "sync_mode": "blocking", "backend": backend}
    result = train(tmp_path, 3, **settings)
    assert result.steps == 3 * TURN


def test_learners_that_step_together_are_resumed_together(tmp_path) -> None:
    several = {"num_workers": 2, "learners": 2, "mini_batch_size": 32}
    uninterrupted = parameters(train(tmp_path / "whole", 6, **several))
    first = train(tmp_path / "parts", 3, **several)
    assert parameters(penstock.resume(first.run_folder, timesteps=6 * TURN, quiet=True)) == uninterrupted


@pytest.mark.parametrize("group", ["learner", "learner.1"])
def test_one_of_two_learners_dies_and_training_goes_on(tmp_path, group: str) -> None:
    with killing([group] * 2, tmp_path):
        result = train(tmp_path, 30, num_workers=2, learners=2, save_interval=1, mini_batch_size=32)
    found = arrays(result)
    assert found["update"] == 30
    assert found["steps"] == 30 * TURN
    assert found["adam_step"] == 30 * 10 * 3


def test_rollouts_that_come_as_they_come_are_shared_too(tmp_path) -> None:
    result = train(tmp_path, 8, num_workers=2, learners=2, mini_batch_size=32, sync_mode="non_blocking")
    assert result.steps >= 8 * TURN


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"num_workers": 1}, r"--num_workers 1 cannot be split evenly over --learners 2"),
        ({"num_envs": 5}, r"--num_envs 5 cannot be split evenly over --learners 2"),
        ({"mini_batch_size": 33}, r"--mini_batch_size 33 cannot be split evenly over 2 learners"),
    ],
)
def test_what_cannot_be_shared_is_refused(tmp_path, settings, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        train(tmp_path, 1, learners=2, **settings)


@pytest.mark.parametrize("agree", [{"exchange": "gossip"}, {"compress": "int8"}, {"compress": "topk:0.1"}])
def test_other_ways_to_agree_go_through_and_count_what_they_send(tmp_path, agree: dict[str, str]) -> None:
    result = train(tmp_path, 2, num_workers=2, learners=2, **agree)
    found = arrays(result)
    assert found["update"] == 2
    lines = [json.loads(line) for line in (result.run_folder / "metrics.jsonl").read_text().splitlines()]
    sent = [line["exchange/bytes"] for line in lines if "exchange/bytes" in line]
    sizes = {name: found[name].size for name in ("actor", "critic")}
    # Ten gradient steps an update: 4 bytes a number, or 1 and a head, or 8 for each number that is kept.
    whole = 10 * 4 * sum(sizes.values())
    encoded = {
        "int8": 10 * sum(8 + -(-size // 4) * 4 for size in sizes.values()),
        "topk:0.1": 10 * sum(8 * -(-size // 10) for size in sizes.values()),
    }
    if "compress" in agree:
        assert sent == [encoded[agree["compress"]]] * 2
        assert sent[0] < 0.4 * whole
    else:
        # After each update the parameters and both of Adam's moments, 4 bytes a number.
        assert sent == [3 * 4 * sum(sizes.values())] * 2


def test_four_learners_that_gossip_stay_near_each_other(tmp_path, monkeypatch) -> None:
    """A mean with two neighbours of four leaves a third of each difference from the mean of all four.

    The differences from the mean are d0, d1, d2 and d3, with the sum 0. Learner 0 gets (d3 + d0 + d1) / 3 = -d2 / 3.
    """
    monkeypatch.setattr("penstock.planning.plans.UPDATES", step_log.MIXING)
    monkeypatch.setenv(step_log.LOG, str(tmp_path / "mixed"))
    four = {"num_envs": 8, "num_workers": 4, "learners": 4, "exchange": "gossip", "mini_batch_size": 32}
    result = train(tmp_path / "logs", 8, **four, backend="fused", log_interval=1)
    logged = step_log.mixed(tmp_path / "mixed")
    assert sorted(logged) == [0, 1, 2, 3]
    updates = int(arrays(result)["update"])
    assert updates >= 6
    (first,) = {tuple(of_learner[0][1]) for of_learner in logged.values()}
    # Their first states apart, each was given one after each update.
    before, after = (
        np.array([[pair[which] for pair in logged[learner][1:]] for learner in range(4)]) for which in (0, 1)
    )
    assert before.shape[:2] == (4, updates)
    mean = before.mean(0)
    opposite = [2, 3, 0, 1]
    np.testing.assert_allclose(after - mean, -(before - mean)[opposite] / 3, atol=1e-6)
    # They learn from rows of their own, which drives them apart by up to s in an update. With a third of the difference
    # left after each, that never adds up to more than s (1/3 + 1/9 + ...) = s / 2.
    begun = np.concatenate([np.broadcast_to(first, (4, 1, len(first))), after[:, :-1]], axis=1)
    driven = np.linalg.norm(before - begun - (before - begun).mean(0), axis=2)
    apart = np.linalg.norm(after - mean, axis=2)
    assert driven.min() > 1e-4
    assert apart.max() <= 0.5 * driven.max()
    np.testing.assert_array_equal(arrays(result)["actor"], after[0, -1].astype(np.float32))
    lines = [json.loads(line) for line in (result.run_folder / "metrics.jsonl").read_text().splitlines()]
    whole = 3 * 4 * sum(arrays(result)[name].size for name in ("actor", "critic"))
    assert {line["exchange/bytes"] for line in lines if "exchange/bytes" in line} == {whole}
