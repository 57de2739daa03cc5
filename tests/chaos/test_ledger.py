"""After any kill, each collected transition was learned from once, is on its way, or was dropped with a reason."""

import json
from pathlib import Path

import pytest

import penstock
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from tests.chaos import oracle
from tests.chaos.test_kills import lines, train
from tests.children import killing

pytestmark = pytest.mark.usefixtures("shared_templates")

SETTINGS = {"env": "tests.chaos.oracle:Numbered", "backend": "fused", "num_steps": 16, "epochs": 1}
SETTINGS |= {"mini_batch_size": 32, "num_envs": oracle.LANES, "num_workers": 2, "seed": oracle.SEED}
BATCH = 16 * oracle.LANES
UPDATES = {"fused": 200, "eager": 100}
"""By backend: eager takes five times as long for one."""


def killed_while(tmp_path: Path, groups: list[str], **settings: object):
    values = {**SETTINGS, "save_interval": 5, "eval_episodes": 2, **settings}
    values.setdefault("timesteps", UPDATES[str(values["backend"])] * BATCH)
    if settings.get("algo") == "impala":
        del values["epochs"]  # It has one.
    with killing(groups, tmp_path) as killed:
        result = penstock.train({**values, "log_dir": str(tmp_path)}, quiet=True)
    assert len(killed) >= 3
    return result


def check_lags(result: Result, bound: int) -> None:
    """Check that no rollout of any batch was older than its bound."""
    found = [line for line in lines(result) if "policy/lag_max" in line]
    assert len(found) > 10
    assert all(line["policy/lag"] <= line["policy/lag_max"] <= bound for line in found)


# Ten seconds with torch.
@pytest.mark.parametrize("backend", ["fused", pytest.param("eager", marks=pytest.mark.nightly)])
def test_in_lock_step_each_transition_is_learned_from_once(tmp_path, log, backend: str) -> None:
    result = killed_while(tmp_path, ["env.0", "learner", "learner", "env.1", "monitor"], backend=backend)
    last = oracle.judge(result, log)
    assert last["rows/learned"] == UPDATES[backend] * BATCH
    assert last["rows/stale"] == last["rows/spoilt"] == 0
    assert any("note" in line and "rows/collected" in line for line in lines(result))


# Six seconds each. Shorter: the strictest bound.
@pytest.mark.parametrize("lag", [0, pytest.param(4, marks=pytest.mark.nightly)])
def test_where_collection_overlaps_learning_none_is_learned_from_twice(tmp_path, log, lag: int) -> None:
    groups = ["learner", "env.0", "learner", "env.1", "learner"]
    result = killed_while(tmp_path, groups, sync_mode="non_blocking", max_policy_lag=lag, log_interval=1)
    last = oracle.judge(result, log)
    check_lags(result, lag)
    assert last["rows/stale"] > 0 or lag


@pytest.mark.nightly  # Five seconds and more. Shorter: PPO's strictest bound, above.
@pytest.mark.parametrize(("algo", "workers", "lag"), [("impala", 2, 0), ("impala", 4, 3), ("appo", 4, 1)])
def test_no_batch_is_older_than_its_bound_and_what_was_dropped_for_that_is_counted(
    tmp_path, log, algo: str, workers: int, lag: int
) -> None:
    """Both overlap collecting and learning by themselves."""
    settings = {"algo": algo, "backend": "eager", "num_workers": workers, "max_policy_lag": lag, "log_interval": 1}
    result = killed_while(tmp_path, ["learner", "env.0", "learner", "env.1"], **settings)
    last = oracle.judge(result, log)
    check_lags(result, lag)
    assert last["rows/stale"] > 0 or lag


def test_a_policy_node_that_dies_without_lock_step_loses_no_transition_and_doubles_none(tmp_path, log) -> None:
    """IMPALA as SEED has it: environment nodes hold no network, and a batch waits for its askers."""
    settings = {"algo": "impala", "policy_placement": "node", "max_batch": oracle.LANES, "max_wait": 0.002}
    groups = ["policy.0", "learner", "policy.0", "env.0", "policy.0"]
    result = killed_while(tmp_path, groups, **settings, max_policy_lag=3, log_interval=1)
    oracle.judge(result, log)
    check_lags(result, 3)
    told = [line["note"] for line in lines(result) if "note" in line]
    assert sum(note.startswith("policy.0 was ended by SIGKILL") for note in told) >= 2


class Spoilt(oracle.Numbered):
    """Episodes whose number modulo 7 is 3, without the first of them, have a reward that is NaN."""

    def reward(self, action) -> float:
        return float("nan") if self.episode % 7 == 3 and self.lane >= 0 else super().reward(action)


def test_what_was_dropped_for_bad_numbers_is_what_is_missing(tmp_path, log) -> None:
    settings = {"sync_mode": "non_blocking", "bad_numbers": "skip", "env": f"{__name__}:Spoilt", "timesteps": 10_000}
    result = killed_while(tmp_path, ["env.0", "env.1", "env.0", "learner"], **settings)
    last = oracle.judge(result, log)
    assert last["rows/spoilt"] > 0


def test_the_balance_goes_on_where_a_resume_does(tmp_path, log) -> None:
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
