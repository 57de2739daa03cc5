"""Every transition that was collected is learned from once, in flight, or dropped with a reason, whoever is killed."""

import json
import random
from pathlib import Path

import pytest

from penstock.experiments.best import find_checkpoint
from penstock.experiments.checkpoints import load_checkpoint
from penstock.registry import UpdateBackend
from tests.chaos import oracle
from tests.chaos.test_kills import Killer, lines, train

SETTINGS = {"env": "tests.chaos.oracle:Numbered", "backend": "eager", "num_steps": 16, "epochs": 1}
SETTINGS |= {"mini_batch_size": 32, "num_envs": oracle.LANES, "num_workers": 2, "seed": oracle.SEED}
BATCH = 16 * oracle.LANES


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the updater writes down what it learns from."""
    monkeypatch.setattr("penstock.planning.UPDATES", {"eager": UpdateBackend("tests.chaos.oracle:build")})
    path = tmp_path / "learned"
    monkeypatch.setenv(oracle.LOG, str(path))
    return path


def killed_while(tmp_path: Path, groups: list[str], seed: int, **settings: object):
    draw = random.Random(seed)
    with Killer(groups, [draw.uniform(0.3, 0.8) for _ in groups]) as killer:
        result = train(tmp_path, 0, **{**SETTINGS, "timesteps": 600 * BATCH, **settings})
    assert len(killer.killed) >= 3
    return result


@pytest.mark.parametrize("seed", [1, 2])
def test_in_lock_step_each_transition_is_learned_from_once(tmp_path, log, seed: int) -> None:
    result = killed_while(tmp_path, ["env.0", "learner", "learner", "env.1", "monitor"], seed)
    last = oracle.judge(result, log)
    assert last["rows/learned"] == 600 * BATCH
    assert last["rows/stale"] == last["rows/spoilt"] == 0
    assert any("note" in line and "rows/collected" in line for line in lines(result))


@pytest.mark.parametrize("lag", [0, 4])
def test_where_collection_overlaps_learning_none_is_learned_from_twice(tmp_path, log, lag: int) -> None:
    groups = ["learner", "env.0", "learner", "env.1", "learner"]
    result = killed_while(tmp_path, groups, lag, sync_mode="non_blocking", max_policy_lag=lag)
    last = oracle.judge(result, log)
    assert last["rows/stale"] > 0 or lag


class Spoilt(oracle.Numbered):
    """Every episode but the first whose number leaves 3 when divided by 7 has a reward that is no number."""

    def reward(self, action) -> float:
        return float("nan") if self.episode % 7 == 3 and self.lane >= 0 else super().reward(action)


def test_what_was_dropped_for_bad_numbers_is_what_is_missing(tmp_path, log) -> None:
    settings = {"sync_mode": "non_blocking", "bad_numbers": "skip", "env": f"{__name__}:Spoilt", "timesteps": 20_000}
    result = killed_while(tmp_path, ["env.0", "env.1", "env.0", "learner"], 5, **settings)
    last = oracle.judge(result, log)
    assert last["rows/spoilt"] > 0


def test_the_balance_goes_on_where_a_resume_does(tmp_path, log) -> None:
    import penstock

    first = train(tmp_path, 0, **{**SETTINGS, "timesteps": 10 * BATCH, "runtime": "inline"})
    second = penstock.resume(first.run_folder, timesteps=20 * BATCH, quiet=True)
    last = oracle.judge(second, log)
    assert last["rows/collected"] == 20 * BATCH
    assert load_checkpoint(find_checkpoint(second.run_folder)).arrays["lane_collected"].tolist() == [20 * 16] * 4


def test_the_judge_finds_a_transition_that_is_missing_and_one_that_stands_twice(tmp_path, log) -> None:
    result = train(tmp_path, 0, **{**SETTINGS, "timesteps": 4 * BATCH, "runtime": "inline"})
    oracle.judge(result, log)
    written = [json.loads(line) for line in log.read_text().splitlines() if line]
    for spoil in (lambda ids: ids[1:], lambda ids: [*ids[1:], ids[1]], lambda ids: [*ids[1:], [0, 10_000]]):
        log.write_text("\n".join(json.dumps([step, spoil(ids) if n else ids]) for n, (step, ids) in enumerate(written)))
        with pytest.raises(AssertionError):
            oracle.judge(result, log)
