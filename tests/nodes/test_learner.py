"""LearnerNode and an update that breaks the parameters."""

import re
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.errors import BadDataError, PenstockError
from penstock.metrics.jsonl import read_reports
from penstock.metrics.report import STEPS_PER_SECOND
from penstock.nodes.learner.keeper import Keeper
from penstock.nodes.learner.losses import lag_values
from penstock.nodes.monitor import MonitorNode
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint
from penstock.updates.eager import EagerUpdater
from tests.environments import ClockEnv, TargetEnv

pytestmark = pytest.mark.usefixtures("shared_templates")

SMALL = {"num_steps": 8, "num_envs": 2, "num_workers": 1, "epochs": 1, "mini_batch_size": 4, "runtime": "inline"}


def test_parameters_that_are_no_numbers_are_never_committed(tmp_path: Path) -> None:
    wrong = {"env": "CartPole-v1", "lr": 1e38, "timesteps": 10 * 16, "save_interval": 1, "log_dir": str(tmp_path)}
    with pytest.raises(BadDataError, match=r"update \d+(: \w+ is | made the parameters of actor )(nan|inf)"):
        penstock.train({**SMALL, **wrong}, quiet=True)
    for path in list_checkpoints(next(tmp_path.iterdir())):
        arrays = load_checkpoint(path).arrays
        assert np.isfinite(arrays["actor"]).all()
        assert np.isfinite(arrays["critic"]).all()


def test_of_several_lags_the_mean_and_the_largest_are_reported() -> None:
    assert lag_values("policy", [0, 1, 5]) == {"policy/lag": 2.0, "policy/lag_max": 5.0}
    assert lag_values("policy", []) == {}


class Loud:
    """The reward of an environment's hundredth step is so large that its square is no float32."""

    total = 0

    def step(self, action):
        self.total += 1
        obs, reward, *rest = super().step(action)
        return obs, 3e38 if self.total == 100 else reward, *rest


class LoudEnv(Loud, ClockEnv):
    """Actions are numbers of choices."""


class LoudTargetEnv(Loud, TargetEnv):
    """Actions are real numbers."""


@pytest.mark.parametrize(
    ("runtime", "backend"),
    [
        ("inline", "fused"),
        ("inline", "eager"),
        # Nine seconds and more. Shorter: the two above.
        pytest.param("local", "eager", marks=pytest.mark.nightly),
        pytest.param("local", "fused", marks=pytest.mark.nightly),
    ],
)
def test_a_loss_that_is_no_number_is_named_and_what_came_before_it_is_kept(tmp_path, runtime, backend) -> None:
    settings = {**SMALL, "env": f"{__name__}:LoudEnv", "backend": backend, "timesteps": 10_000, "runtime": runtime}
    with pytest.raises(PenstockError, match=r"update 13: (value_loss|grad_norm) is (inf|nan); nothing of it was kept"):
        penstock.train({**settings, "save_interval": 1000, "log_dir": str(tmp_path)}, quiet=True)
    # Two lanes take their hundredth step in the 13th rollout of 8 steps; 12 updates came before it.
    (path,) = list_checkpoints(next(tmp_path.iterdir()))
    saved = load_checkpoint(path)
    assert saved.manifest["update"] == 12
    assert all(np.isfinite(values).all() for name, values in saved.arrays.items() if name != "best_evaluation")


@pytest.mark.parametrize("backend", ["fused", "eager"])
def test_a_loss_from_a_table_that_is_no_number_is_named_and_what_came_before_it_is_kept(tmp_path, backend) -> None:
    from_table = {"algo": "sac", "hidden_sizes": (8, 8), "min_rows": 64, "mini_batch_size": 64, "capacity": 1_000}
    settings = {"env": LoudTargetEnv, "num_envs": 2, "num_steps": 8, "runtime": "inline", "eval_episodes": 0}
    says = r"update \d+: \w+ is (inf|nan); nothing of it was kept"
    with pytest.raises(PenstockError, match=says) as refusal:
        penstock.train(
            {**settings, **from_table, "backend": backend, "timesteps": 10_000, "log_dir": str(tmp_path)}, quiet=True
        )
    # The hundredth step of both lanes is in the 13th rollout. Until then, no update may fail.
    failed = int(re.search(r"update (\d+)", str(refusal.value))[1])
    (path,) = list_checkpoints(next(tmp_path.iterdir()))
    saved = load_checkpoint(path)
    assert saved.manifest["update"] == failed - 1
    assert failed > 1
    assert all(np.isfinite(values).all() for name, values in saved.arrays.items() if name != "best_evaluation")


# Ten seconds. Shorter: every run without ``target_kl`` takes all epochs.
@pytest.mark.parametrize(
    ("divergence", "epochs"), [pytest.param(0.0, 4, marks=pytest.mark.nightly), (float("nan"), 1), (float("inf"), 1)]
)
def test_a_divergence_that_is_no_number_ends_the_epochs(tmp_path, monkeypatch, divergence, epochs) -> None:
    found = EagerUpdater.metrics
    monkeypatch.setattr(EagerUpdater, "metrics", lambda updater: found(updater) | {"approx_kl": divergence})
    settings = {**SMALL, "env": "CartPole-v1", "backend": "eager", "epochs": 4, "target_kl": 0.5, "timesteps": 3 * 16}
    result = penstock.train({**settings, "log_dir": str(tmp_path)}, quiet=True)
    (path, *_) = reversed(list_checkpoints(result.run_folder))
    # Sixteen rows in minibatches of four.
    assert load_checkpoint(path).arrays["adam_step"] == 3 * epochs * 4


def test_a_batch_without_a_row_to_learn_from_is_passed_over(tmp_path) -> None:
    """With one step in each rollout, a vector environment that resets in a step of its own fills batches with that."""
    settings = {**SMALL, "env": "CartPole-v1", "vector_env": True, "num_envs": 1, "num_steps": 1, "target_kl": 0.5}
    result = penstock.train({**settings, "timesteps": 60, "eval_episodes": 0, "log_dir": str(tmp_path)}, quiet=True)
    assert result.steps == 60


@pytest.mark.parametrize(
    "settings",
    [{}, {"algo": "dqn", "min_rows": 16, "mini_batch_size": 8, "capacity": 400}, {"algo": "a3c"}],
    ids=["stream", "table", "gradients"],
)
def test_the_last_report_waits_for_a_monitor_that_is_behind(tmp_path, monkeypatch, settings) -> None:
    ready, end, ending = MonitorNode.ready, Keeper.end, []

    def noted(keeper):
        ending.append(True)
        yield from end(keeper)

    # The monitor takes no report before the learner ends. There are 16 slots.
    monkeypatch.setattr(MonitorNode, "ready", lambda monitor: bool(ending) and ready(monitor))
    monkeypatch.setattr(Keeper, "end", noted)
    run = {"env": "CartPole-v1", "timesteps": 20 * 16, "eval_episodes": 1, "log_dir": str(tmp_path)}
    few = {name: value for name, value in SMALL.items() if name not in {"epochs", "mini_batch_size"}}
    result = penstock.train({**few, **run, **settings}, quiet=True)
    updates = [report.update for report in read_reports(result.run_folder) if STEPS_PER_SECOND in report.values]
    assert result.updates > 17
    assert updates == [*range(1, 17), result.updates]
