"""Runs in float16 from a table: resumed, and with several learners.

A GPU is what float16 is for, so a plan refuses it elsewhere. Torch computes in it on the CPU as well. So these runs
leave the refusal out. The rewards of Pendulum-v1 are large enough that gradients overflow at the first scale.
"""

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from penstock.types import Arrays
from tests.fingerprints import fingerprint

pytestmark = pytest.mark.usefixtures("shared_templates")

TURN = 16 * 4
SMALL = {
    "env": "Pendulum-v1",
    "algo": "sac",
    "num_envs": 4,
    "num_steps": 16,
    "num_workers": 2,
    "mini_batch_size": 16,
    "updates_per_step": 0.125,
    "min_rows": 100,
    "hidden_sizes": (8, 8),
    "eval_episodes": 1,
    "seed": 5,
    "backend": "eager",
    "runtime": "inline",
}


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.planning.plans._check_precision", lambda config: None)


def train(log_dir: Path, turns: int, **settings: object) -> Result:
    values = {**SMALL, "precision": "float16", "log_dir": str(log_dir), "timesteps": turns * TURN, **settings}
    return penstock.train(values, quiet=True)


def learned(result: Result) -> Arrays:
    return load_checkpoint(find_checkpoint(result.run_folder)).arrays


def halvings(arrays: Arrays, loss: str) -> int:
    """How often the scale of a loss was halved. No run here takes enough steps to double one."""
    return 16 - int(np.log2(arrays[f"loss_scale.{loss}"]))


def test_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    """The scale at which no gradient overflows is found in the first half. A new one would be found in the second."""
    whole = train(tmp_path / "whole", 8)
    half = train(tmp_path / "half", 4)
    assert halvings(learned(half), "critic") > 0
    resumed = penstock.resume(half.run_folder, timesteps=8 * TURN, quiet=True)
    assert fingerprint(resumed) == fingerprint(whole)
    arrays = learned(resumed)
    # A step that was left out counts as a gradient step, but Adam has not taken it.
    for loss in ("critic", "actor"):
        left_out = int(arrays["gradient_steps"]) - int(arrays[f"adam_step.{loss}"])
        assert left_out == halvings(arrays, loss)


@pytest.mark.parametrize(
    "settings",
    [{"exchange": "allreduce"}, {"exchange": "parameter_server", "sync_mode": "non_blocking"}],
    ids=lambda settings: str(settings["exchange"]),
)
def test_learners_leave_out_the_steps_that_overflow_and_share_the_scales(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    arrays = learned(train(tmp_path, 6, runtime="local", learners=2, **settings))
    assert np.isfinite(arrays["actor"]).all()
    assert halvings(arrays, "critic") > 0
    for loss in ("critic", "actor"):
        taken, left = int(arrays[f"adam_step.{loss}"]), int(arrays["gradient_steps"]) - halvings(arrays, loss)
        # Gradients that are on the way may overflow by a scale that is halved already. They halve it no further.
        assert 0 < taken <= left
        assert taken == left or "sync_mode" in settings
