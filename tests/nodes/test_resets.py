"""Networks that begin anew while the table stays: when, with which values, and the same after a resume."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.nodes.learner.resets import Resets
from penstock.planning import plan
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from penstock.topologies import off_policy
from tests.planned import prepared

TURN = 16 * 4
# From 96 rows on a turn has 8 gradient steps. So the ninth turn ends with step 60, which is a reset.
SMALL = {
    "env": "Pendulum-v1",
    "algo": "sac",
    "num_envs": 4,
    "num_steps": 16,
    "mini_batch_size": 16,
    "updates_per_step": 0.125,
    "min_rows": 96,
    "hidden_sizes": (8, 8),
    "eval_episodes": 1,
    "reset_every": 20,
}


def resets(**settings: Any) -> Resets:
    found = plan(prepared(**{**SMALL, **settings}), Path("run"), quiet=True)
    steps = off_policy.build(found).node("learner").settings.steps
    return Resets(steps.initial, steps.updater)


def test_resets_are_counted_in_gradient_steps_of_the_run() -> None:
    found = resets()
    assert [step for step in range(61) if found.due(step)] == [20, 40, 60]
    # No call goes on beyond the next reset.
    assert [found.until(step, 70) for step in (0, 19, 20, 33, 60, 65)] == [20, 1, 20, 7, 10, 5]
    never = resets(reset_every=0)
    assert not any(never.due(step) for step in range(100))
    assert never.until(3, 1000) == 997


def test_each_reset_has_networks_of_its_own_and_the_same_each_time() -> None:
    found = resets()
    one, again, two = found.state(20), resets().state(20), found.state(40)
    assert {"actor", "critic", "target.critic", "log_alpha", "adam_m.actor", "adam_step.critic"} <= set(one)
    # What the run counts goes on.
    assert not {"gradient_steps", "progress"} & set(one)
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert not np.array_equal(one["actor"], two["actor"])
    assert np.array_equal(one["critic"], one["target.critic"])
    assert not any(one[name].any() for name in one if name.startswith("adam"))


def train(log_dir: Path, turns: int, **settings: Any) -> Result:
    values = {**SMALL, "runtime": "inline", "log_dir": str(log_dir), "timesteps": turns * TURN, **settings}
    return penstock.train(values, quiet=True)


def fingerprint(result: Result) -> dict[str, str]:
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    arrays["taken"] = arrays["taken"].max()
    return {k: hashlib.sha256(v.tobytes()).hexdigest() for k, v in arrays.items() if k != "elapsed_s"}


@pytest.mark.parametrize(
    "settings",
    [
        {"backend": "fused"},
        {"backend": "eager", "critic_dropout": 0.1, "critic_layer_norm": True, "policy_delay": 3},
    ],
    ids=lambda settings: settings["backend"],
)
def test_a_resume_at_a_reset_and_more_workers_change_nothing(tmp_path, settings: dict[str, Any]) -> None:
    whole = train(tmp_path / "whole", 12, num_workers=1, **settings)
    arrays = load_checkpoint(find_checkpoint(whole.run_folder)).arrays
    assert int(arrays["gradient_steps"]) == 84
    assert int(arrays["adam_step.critic"]) == 4
    first = train(tmp_path / "parts", 9, num_workers=2, **settings)
    assert int(load_checkpoint(find_checkpoint(first.run_folder)).arrays["gradient_steps"]) == 60
    second = penstock.resume(first.run_folder, timesteps=12 * TURN, quiet=True)
    assert fingerprint(second) == fingerprint(whole)


def test_learners_that_step_together_begin_anew_together(tmp_path) -> None:
    alone = train(tmp_path / "alone", 5, backend="fused")
    both = train(tmp_path / "both", 5, backend="fused", learners=2, runtime="local")
    counts = [load_checkpoint(find_checkpoint(run.run_folder)).arrays["adam_step.critic"] for run in (alone, both)]
    # 28 steps, of which 8 are behind the reset.
    assert list(map(int, counts)) == [8, 8]
