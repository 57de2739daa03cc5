"""Observations and rewards that cannot be learned from: the error names them, and earlier learning is kept."""

import re

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import penstock
from penstock.cli import main
from penstock.errors import BadDataError, ConfigError, NodeError
from penstock.metrics.jsonl import read_reports
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint
from penstock.seeding import final_seed, validation_seed
from tests.environments import ClockVectorEnv, CorridorEnv, TargetEnv

SMALL = {"num_steps": 16, "epochs": 1, "mini_batch_size": 32, "num_envs": 4, "num_workers": 2, "eval_episodes": 2}


class LateEnv(TargetEnv):
    """Well-behaved for its first 95 steps; then ``harm`` changes what a step gives."""

    total = 0

    def step(self, action):
        self.total += 1
        values = super().step(action)
        return self.harm(*values) if self.total == 95 else values


class LateNan(LateEnv):
    def harm(self, obs, *rest):
        return (np.full(1, np.nan, np.float32), *rest)


class LateReward(LateEnv):
    def harm(self, obs, reward, *rest):
        return (obs, float("inf"), *rest)


class LateShape(LateEnv):
    def harm(self, obs, *rest):
        return (np.zeros(2, np.float32), *rest)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        # Rows count from 0 and row t + 1 is what step t led to: step 94 is the 95th.
        (LateNan, r"env\.[01]: obs of lane \d of .*LateNan is nan at step 95 of the lane"),
        (LateReward, r"env\.[01]: reward of lane \d of .*LateReward is inf at step 94 of the lane"),
        (LateShape, r"env\.[01]: at step 94 of the lane .*: obs of lane \d of .*LateShape has shape \(2,\)"),
    ],
)
def test_bad_data_names_node_environment_field_and_step(tmp_path, env, says):
    settings = {**SMALL, "env": env, "runtime": "inline", "timesteps": 16 * 4 * 20, "log_dir": str(tmp_path)}
    with pytest.raises(BadDataError, match=says):
        penstock.train(settings, quiet=True)


@pytest.mark.nightly  # Eight seconds. Shorter: ``tests/chaos/test_damage.py`` does the same.
def test_a_failed_run_is_one_line_has_a_card_and_goes_on_from_its_last_commit(tmp_path, capsys, started):
    flags = [f"--{name}={value}" for name, value in SMALL.items()]
    name = f"{__name__}:LateNan"
    assert main(["train", "--env", name, "--timesteps=10000", "--log_dir", str(tmp_path), *flags]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("penstock: error: node env.")
    assert "is nan at step 95 of the lane" in first
    (folder,) = tmp_path.iterdir()
    # The bad number stands in the sixth rollout, so five were learned from.
    assert second == f"penstock: its last checkpoint, update 5, is good; to continue: penstock resume {folder}"
    card = (folder / "README.md").read_text()
    assert "failed, so not evaluated: " in card
    assert "320 of 10,000 steps, 5 updates" in card
    assert started() == []
    with pytest.raises(NodeError, match="is nan at step"):
        penstock.resume(folder, quiet=True)


class NanInEvaluation(TargetEnv):
    """Shows NaN in the episodes that are seeded as an evaluation's."""

    def reset(self, *, seed=None, options=None):
        self.judged = seed in SEEDS
        return super().reset(seed=seed, options=options)

    def step(self, action):
        values = super().step(action)
        return (np.full(1, np.nan, np.float32), *values[1:]) if self.judged and self.steps == 3 else values


SEEDS = {seed_of(0, number) for number in range(8) for seed_of in (validation_seed, final_seed)}


@pytest.mark.parametrize("during", [0, 1])
def test_an_evaluation_does_not_swallow_what_no_policy_can_see(tmp_path, during):
    settings = {**SMALL, "env": NanInEvaluation, "runtime": "inline", "timesteps": 16 * 4 * 3, "log_dir": str(tmp_path)}
    says = r"evaluation: obs of lane 0 of .*NanInEvaluation is nan at step 2 of its episode"
    with pytest.raises(BadDataError, match=says):
        penstock.train({**settings, "eval_interval": during}, quiet=True)
    (folder,) = tmp_path.iterdir()
    assert list_checkpoints(folder) or during
    if not during:
        failed, ended = (folder / "run.log").read_text().splitlines()[-2:]
        assert re.search(f"the evaluation failed: {says}", failed)
        assert ended.endswith(" ended after 192 steps, at update 3")
    with pytest.raises(BadDataError, match=says):
        penstock.evaluate(folder, episodes=2) if list_checkpoints(folder) else penstock.train(settings, quiet=True)


class SeldomNan(TargetEnv):
    """Every 87th step of a process gives a NaN, and so do all later steps of that episode.

    An episode has ten steps. The 90th would be the last one of a process with a single lane, which spoils nothing.
    """

    total = 0
    spoilt = False

    def reset(self, *, seed=None, options=None):
        self.spoilt = False
        return super().reset(seed=seed, options=options)

    def step(self, action):
        SeldomNan.total += 1
        self.spoilt |= SeldomNan.total % 87 == 0
        values = super().step(action)
        return (np.full(1, np.nan, np.float32), *values[1:]) if self.spoilt else values


@pytest.mark.parametrize("during", [0, 2])
def test_an_evaluation_leaves_spoilt_episodes_out_where_that_is_asked_for(tmp_path, during):
    settings = {**SMALL, **SKIPPING, "env": SeldomNan, "eval_episodes": 30, "eval_interval": during}
    result = penstock.train({**settings, "log_dir": str(tmp_path)}, quiet=True)
    assert result.evaluation is not None
    # An episode is 10 steps, and one step in 87 spoils one of thirty.
    assert 20 <= result.evaluation.episodes < 30
    assert np.isfinite(result.evaluation.mean_return)
    assert result.evaluation.mean_length == 10


class AlwaysNan(TargetEnv):
    def step(self, action):
        return super().step(action)[0], float("nan"), False, False, {}


SKIPPING = {"sync_mode": "non_blocking", "bad_numbers": "skip", "runtime": "inline", "timesteps": 16 * 4 * 12}


def make_seldom_nan(num_envs: int) -> SyncVectorEnv:
    return SyncVectorEnv([SeldomNan] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


@pytest.mark.parametrize("env", [SeldomNan, make_seldom_nan], ids=["one by one", "together"])
def test_spoilt_rollouts_are_dropped_and_counted_where_that_is_asked_for(tmp_path, env):
    told = {**SMALL, **SKIPPING, "env": env, "eval_episodes": 0, "log_dir": str(tmp_path)}
    result = penstock.train(told, quiet=True)
    assert result.steps == 16 * 4 * 12
    (line,) = result.notes
    count = int(line.split()[0])
    assert line.endswith("rollouts held NaN or infinity and were skipped; rows/spoilt counts their rows")
    last = [report.values for report in read_reports(result.run_folder) if "rows/spoilt" in report.values][-1]
    # A rollout is 16 steps of two lanes. Each node reports its skipped rows with the next rollout that it hands over.
    assert 0 < last["rollouts/skipped"] <= count
    assert 32 * (last["rollouts/skipped"] - 2) <= last["rows/spoilt"] <= 32 * last["rollouts/skipped"]
    assert last["rows/spoilt"] > 0
    terms = ("learned", "in_flight", "stale", "spoilt")
    assert last["rows/collected"] == sum(last[f"rows/{term}"] for term in terms)
    arrays = load_checkpoint(list_checkpoints(result.run_folder)[-1]).arrays
    assert np.isfinite(arrays["returns"]).all()


def test_an_environment_that_gives_nothing_else_ends_the_run(tmp_path):
    settings = {**SMALL, **SKIPPING, "env": AlwaysNan, "log_dir": str(tmp_path)}
    with pytest.raises(BadDataError, match=r"reward of lane [02] of .* is nan .*; 100 rollouts in a row were skipped"):
        penstock.train(settings, quiet=True)


class NanClock(ClockVectorEnv):
    def step(self, actions):
        obs, reward, *rest = super().step(actions)
        return obs, reward * np.nan, *rest


def make_nan_clocks(num_envs: int) -> NanClock:
    return NanClock(num_envs)


def test_a_source_that_resets_no_lane_alone_cannot_skip(tmp_path):
    settings = {**SMALL, **SKIPPING, "env": make_nan_clocks, "log_dir": str(tmp_path)}
    with pytest.raises(BadDataError, match="it cannot be skipped: this source cannot reset a single lane"):
        penstock.train(settings, quiet=True)


def test_lock_step_cannot_skip():
    with pytest.raises(ConfigError, match=r"--bad_numbers skip needs --sync_mode non_blocking"):
        penstock.from_mapping({"env": "X", "bad_numbers": "skip", "sync_mode": "blocking"})


class Outside(TargetEnv):
    """Most of its observations lie outside its Box."""

    def _show(self):
        return super()._show() * 100


class NoSuchCell(CorridorEnv):
    """Shows a cell that its space does not have, at the end."""

    def step(self, action):
        cell, *rest = super().step(action)
        return cell + 1 if self.steps > 20 else cell, *rest[:1], False, *rest[2:]


def test_bounds_of_observations_are_not_relied_on(tmp_path):
    settings = {**SMALL, "env": Outside, "runtime": "inline", "timesteps": 16 * 4 * 10, "log_dir": str(tmp_path)}
    result = penstock.train(settings, quiet=True)
    assert result.steps == 16 * 4 * 10
    assert all(
        np.isfinite(values).all()
        for values in load_checkpoint(list_checkpoints(result.run_folder)[-1]).arrays.values()
        if values.ndim
    )


def test_a_number_outside_a_discrete_space_is_named(tmp_path):
    settings = {**SMALL, "env": NoSuchCell, "runtime": "inline", "timesteps": 16 * 4 * 40, "log_dir": str(tmp_path)}
    with pytest.raises(BadDataError, match=r"obs of lane \d of .*NoSuchCell is 8, outside its space 0 .. 7"):
        penstock.train(settings, quiet=True)


class LateError(LateEnv):
    def harm(self, *values):
        raise ZeroDivisionError("a bug of the user")


def test_a_run_in_one_process_that_fails_by_the_users_own_error_has_a_card_too(tmp_path) -> None:
    settings = {**SMALL, "env": LateError, "runtime": "inline", "timesteps": 16 * 4 * 20, "log_dir": str(tmp_path)}
    with pytest.raises(ZeroDivisionError):
        penstock.train(settings, quiet=True)
    (card,) = tmp_path.glob("*/README.md")
    assert "ZeroDivisionError: a bug of the user" in card.read_text()
