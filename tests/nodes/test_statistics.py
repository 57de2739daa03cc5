"""Running statistics of a table's observations: what they hold, and the same after a resume, on any workers."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint, load_table

TURN = 16 * 4
SMALL = {
    "env": "Pendulum-v1",
    "algo": "sac",
    "num_envs": 4,
    "num_steps": 16,
    "mini_batch_size": 16,
    "updates_per_step": 0.125,
    "min_rows": 96,
    "capacity": 10_000,
    "hidden_sizes": (8, 8),
    "eval_episodes": 1,
    "normalize_obs": True,
}


def train(log_dir: Path, turns: int, **settings: Any) -> Result:
    values = {**SMALL, "runtime": "inline", "log_dir": str(log_dir), "timesteps": turns * TURN, **settings}
    return penstock.train(values, quiet=True)


def fingerprint(result: Result) -> dict[str, str]:
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    arrays["taken"] = arrays["taken"].max()
    return {k: hashlib.sha256(v.tobytes()).hexdigest() for k, v in arrays.items() if k != "elapsed_s"}


@pytest.mark.parametrize("backend", ["fused", "eager"])
def test_statistics_are_those_of_every_row_and_survive_a_resume_and_more_workers(tmp_path, backend: str) -> None:
    whole = train(tmp_path / "whole", 9, num_workers=1, backend=backend)
    path = find_checkpoint(whole.run_folder)
    arrays, table = load_checkpoint(path).arrays, load_table(path)
    assert table is not None
    assert int(arrays["obs_count"]) == int(arrays["steps"]) == 9 * TURN
    # Row T of a slot is row 0 of the next one.
    rows = table["obs"][:9, :-1].reshape(-1, 3).astype(np.float64)
    np.testing.assert_allclose(arrays["obs_mean"], rows.mean(0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(arrays["obs_var"], rows.var(0), rtol=1e-9)
    first = train(tmp_path / "parts", 4, num_workers=2, backend=backend)
    second = penstock.resume(first.run_folder, timesteps=9 * TURN, quiet=True)
    assert fingerprint(second) == fingerprint(whole)


def test_the_policy_of_such_a_run_acts_by_its_statistics(tmp_path) -> None:
    result = train(tmp_path, 5)
    policy = penstock.load_policy(result.run_folder)
    arrays = load_checkpoint(find_checkpoint(result.run_folder)).arrays
    obs = np.array([0.5, -0.5, 2.0], np.float32)
    layers, x = [], np.clip((obs - arrays["obs_mean"]) / np.sqrt(arrays["obs_var"] + 1e-8), -10.0, 10.0)
    flat, at = arrays["actor"].astype(np.float64), 0
    for inputs, outputs in ((3, 8), (8, 8), (8, 2)):
        layers.append(
            (flat[at : at + inputs * outputs].reshape(inputs, outputs), flat[at + inputs * outputs :][:outputs])
        )
        at += (inputs + 1) * outputs
    for number, (weight, bias) in enumerate(layers):
        x = x @ weight + bias if number == 2 else np.maximum(x @ weight + bias, 0.0)
    assert policy(obs) == pytest.approx([2.0 * np.tanh(x[0])], rel=1e-5)


def test_learners_that_step_together_see_the_same_statistics(tmp_path) -> None:
    alone = train(tmp_path / "alone", 5)
    both = train(tmp_path / "both", 5, learners=2, runtime="local")
    one, two = (load_checkpoint(find_checkpoint(run.run_folder)).arrays for run in (alone, both))
    np.testing.assert_allclose(one["obs_mean"][:2], two["obs_mean"][:2], atol=0.05)
    assert int(two["obs_count"]) == 5 * TURN
    assert np.isfinite(two["critic"]).all()
