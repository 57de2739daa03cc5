"""R2D2 keeps every promise that other algorithms keep, and learns what only a memory can."""

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.metrics.jsonl import read_reports
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint, load_table
from tests.chaos.oracle import balanced
from tests.children import killing
from tests.end_to_end.test_replay import fingerprint
from tests.planned import prepared

pytestmark = pytest.mark.usefixtures("shared_templates")

BLINK = "tests.environments:BlinkEnv"
CUT = "tests.environments:BlinkForeverEnv"
SMALL = {
    "algo": "r2d2",
    "env": BLINK,
    "model": "gru",
    "memory_size": 8,
    "hidden_sizes": (8,),
    "num_envs": 4,
    "num_steps": 6,  # no multiple of an episode's length, so that sequences begin in the middle of episodes
    "burn_in": 3,
    "learned_steps": 7,
    "mini_batch_size": 28,
    "min_rows": 48,
    "capacity": 480,
    "updates_per_step": 0.1,
    "lr_schedule": "constant",
    "priority_beta": 1.0,
    "eval_episodes": 4,
    "backend": "eager",
    "sync_mode": "blocking",
}
TURN = 4 * 6
LAG = 8


def train(log_dir: Path, turns: int = 20, **settings: object) -> Result:
    values = {**SMALL, "log_dir": str(log_dir), "timesteps": turns * TURN, **settings}
    return penstock.train(values, quiet=True)


@pytest.fixture(scope="module", params=[("lstm", BLINK), ("gru", CUT)], ids=["lstm", "gru, truncated"])
def task(request: pytest.FixtureRequest) -> dict[str, str]:
    return dict(zip(("model", "env"), request.param, strict=True))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, task: dict[str, str]) -> dict[str, str]:
    done = train(tmp_path_factory.mktemp("reference"), **task, runtime="inline", num_workers=2)
    return fingerprint(done)


@pytest.mark.parametrize(("runtime", "placement"), [("local", "env"), ("inline", "node"), ("local", "node")])
def test_runtime_and_placement_do_not_change_a_bit(tmp_path, reference, task, runtime: str, placement: str) -> None:
    result = train(tmp_path, **task, runtime=runtime, num_workers=2, policy_placement=placement)
    assert fingerprint(result) == reference


@pytest.mark.nightly  # Three seconds each. Shorter: two workers do not change a bit above.
def test_workers_do_not_change_a_bit_without_priorities(tmp_path, task) -> None:
    found = [
        fingerprint(train(tmp_path / str(n), **task, runtime="inline", num_workers=n, prioritised=False))
        for n in (1, 2, 4)
    ]
    assert found[0] == found[1] == found[2]


# Ten seconds with processes.
@pytest.mark.parametrize("runtime", ["inline", pytest.param("local", marks=pytest.mark.nightly)])
def test_resumed_equals_uninterrupted(tmp_path, reference, task, runtime: str) -> None:
    first = train(tmp_path, 10, **task, runtime=runtime, num_workers=2)
    held = load_table(find_checkpoint(first.run_folder))
    assert held is not None
    assert any(name.startswith("carry.actor") and values.any() for name, values in held.items())
    second = penstock.resume(first.run_folder, timesteps=20 * TURN, quiet=True)
    assert second.not_restored == 0
    assert fingerprint(second) == reference


@pytest.mark.parametrize(
    ("groups", "prioritised"),
    # Shorter: an environment node dies in the other one as well.
    [pytest.param(["env.0", "env.1"], True, marks=pytest.mark.nightly), (["learner", "env.1", "learner"], False)],
)
def test_no_kill_changes_the_answer(tmp_path, groups: list[str], prioritised: bool) -> None:
    """A learner that dies leaves priorities of a turn that it did not commit, so its rows are sampled evenly here."""
    settings = {"num_workers": 2, "save_interval": 5, "prioritised": prioritised}
    undisturbed = train(tmp_path / "whole", 60, **settings, runtime="inline")
    with killing(groups, tmp_path / "killed") as killed:
        result = train(tmp_path / "killed", 60, **settings)
    assert len(killed) >= 2
    assert result.not_restored == 0
    assert fingerprint(result) == fingerprint(undisturbed)


# Five seconds. Shorter: the one that does not wait.
@pytest.mark.parametrize("mode", ["auto", pytest.param("blocking", marks=pytest.mark.nightly)])
def test_two_learners(tmp_path, mode: str) -> None:
    """From the 48th row on, ten rows make one gradient step due. All of these are taken, and none twice."""
    settings = {"learners": 2, "num_workers": 2, "max_policy_lag": LAG, "log_interval": 1}
    done = train(tmp_path, 40, **settings, sync_mode=mode)
    found = load_checkpoint(find_checkpoint(done.run_folder)).arrays
    assert done.steps == int(found["steps"]) >= 40 * TURN
    assert int(found["gradient_steps"]) == (done.steps - 48) // 10
    assert balanced(done)["rows/learned"] == done.steps
    if mode == "auto":
        # Neither waits for the other: one node applies the gradients that both hand on.
        settled = found["settled"].tolist()
        assert len(settled) == 2
        assert min(settled) > 0
        assert sum(settled) == int(found["applied"] + found["too_old"])
        assert int(found["applied"]) == int(found["gradient_steps"])
        lags = [report.values.get("gradients/lag_max", 0.0) for report in read_reports(done.run_folder)]
        assert 0 < max(lags) <= LAG


def test_collecting_goes_on_while_it_learns_unless_told_otherwise() -> None:
    settings = {name: value for name, value in SMALL.items() if name != "sync_mode"}
    assert prepared(**settings, timesteps=TURN).config.run.sync_mode == "non_blocking"


def test_learning_begins_once_every_lane_has_a_sequence() -> None:
    """A sequence of 10 rows takes two rollouts of 6 steps: 2 * 6 * 4 lanes."""
    found = prepared(**{**SMALL, "min_rows": 1}, timesteps=TURN)
    assert found.spec.schedule.min_rows == 48
    assert (found.spec.unit, found.spec.schedule.mini_batch_size) == ("lane", 4)


def test_a_table_that_holds_no_sequence_is_refused() -> None:
    with pytest.raises(penstock.ConfigError, match="--capacity 50 keeps too few rows: 12 steps of 4 lanes"):
        prepared(**{**SMALL, "capacity": 50, "min_rows": 1}, timesteps=TURN)


def test_sequences_that_cannot_be_split_are_named_as_sequences(tmp_path) -> None:
    with pytest.raises(penstock.ConfigError, match="a minibatch of 4 sequences cannot be split evenly over 3 parts"):
        train(tmp_path, accumulate=3)


@pytest.mark.parametrize(
    "env", ["benchmarks.learning.tasks:RecalledRanksEnv", "tests.environments:EyeEnv", "tests.environments:make_film"]
)
def test_masks_and_images(tmp_path, env: str) -> None:
    done = train(tmp_path, 6, env=env, runtime="inline", num_workers=1)
    assert done.steps == 6 * TURN


@pytest.mark.nightly  # Half a minute of compiling. Shorter: ``tests/torch_networks/test_recurrent.py``.
def test_compiled_learning_follows_eager_learning(tmp_path) -> None:
    kept = []
    for backend in ("eager", "compiled"):
        done = train(tmp_path / backend, 6, backend=backend, runtime="inline", num_workers=1)
        kept.append(load_checkpoint(find_checkpoint(done.run_folder)).arrays)
    assert kept[0]["gradient_steps"] > 4
    np.testing.assert_allclose(kept[0]["actor"], kept[1]["actor"], atol=2e-5)


ALONE = {"runtime": "inline", "sync_mode": "blocking"}


@pytest.mark.nightly  # Ten seconds each. Shorter: ``test_lagging.py`` learns it, and R2D2 repeats itself above.
@pytest.mark.parametrize(
    ("model", "learners"),
    [("lstm", ALONE), ("gru", ALONE), ("gru", {"learners": 2, "num_workers": 2})],
    ids=["lstm", "gru", "gru, two learners"],
)
def test_it_learns_what_only_memory_can(tmp_path, model: str, learners: dict[str, object]) -> None:
    values = {
        "algo": "r2d2",
        "env": BLINK,
        "model": model,
        "memory_size": 16,
        "hidden_sizes": (16,),
        "num_envs": 8,
        "num_steps": 8,
        "burn_in": 4,
        "learned_steps": 12,
        "mini_batch_size": 192,
        "min_rows": 512,
        "lr": 3e-3,
        "updates_per_step": 0.05,
        "timesteps": 16_000,
        "eval_episodes": 40,
        "backend": "eager",
        "log_dir": str(tmp_path),
        **learners,
    }
    result = penstock.train(values, quiet=True)
    assert result.evaluation is not None
    assert result.evaluation.mean_return == 1.0


RECALL = {
    "algo": "sac",
    "env": "tests.environments:RecallEnv",
    "model": "lstm",
    "memory_size": 16,
    "hidden_sizes": (16,),
    "num_envs": 4,
    "num_steps": 6,
    "burn_in": 3,
    "learned_steps": 7,
    "mini_batch_size": 28,
    "min_rows": 48,
    "capacity": 480,
    "updates_per_step": 0.1,
    "eval_episodes": 4,
    "backend": "eager",
}


def recall(log_dir: Path, turns: int = 20, **settings: object) -> Result:
    values = {**RECALL, "log_dir": str(log_dir), "timesteps": turns * TURN, **settings}
    return penstock.train(values, quiet=True)


@pytest.mark.nightly  # Twelve seconds. Shorter: R2D2 above, and SAC without a memory in ``test_replay.py``.
def test_sac_with_a_memory_repeats_resumes_and_survives(tmp_path) -> None:
    whole = fingerprint(recall(tmp_path / "whole", runtime="inline", num_workers=1))
    assert fingerprint(recall(tmp_path / "local", num_workers=2, policy_placement="node")) == whole
    first = recall(tmp_path / "parts", 10, num_workers=2)
    assert fingerprint(penstock.resume(first.run_folder, timesteps=20 * TURN, quiet=True)) == whole
    undisturbed = recall(tmp_path / "undisturbed", 60, runtime="inline", num_workers=2, save_interval=10)
    with killing(["learner", "env.1"], tmp_path / "killed") as killed:
        result = recall(tmp_path / "killed", 60, num_workers=2, save_interval=10)
    assert killed
    assert fingerprint(result) == fingerprint(undisturbed)


@pytest.mark.nightly  # Eight seconds. Shorter: ``test_lagging.py`` learns what only memory can.
def test_sac_learns_what_only_memory_can(tmp_path) -> None:
    sizes = {"num_steps": 8, "burn_in": 4, "learned_steps": 12, "mini_batch_size": 192, "min_rows": 512}
    rates = {"lr": 3e-3, "critic_lr": 3e-3, "tau": 0.05, "temperature": 0.001, "gamma": 0.5}
    more = {"capacity": 20_000, "num_envs": 8, "updates_per_step": 0.1, "timesteps": 12_000, "eval_episodes": 40}
    more["runtime"] = "inline"
    result = recall(tmp_path, **sizes, **rates, **more)
    assert result.evaluation is not None
    # Without memory -0.81 is the best: three steps of the variance of a number in -0.9 .. 0.9.
    assert result.evaluation.mean_return > -0.05


def test_a_setting_of_a_memory_without_one_is_refused() -> None:
    with pytest.raises(penstock.ConfigError, match="--burn_in has no effect: the policy has no memory"):
        prepared(**{**RECALL, "model": "mlp", "memory_size": 64, "learned_steps": 32}, timesteps=TURN)
