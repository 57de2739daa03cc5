"""Resumed equals uninterrupted, bit for bit, in lock step, where episodes can be restored; else the run says so."""

import signal
import time
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from tests.environments import TargetEnv
from tests.fingerprints import fingerprint

pytestmark = pytest.mark.usefixtures("shared_templates")

SMALL = {"num_steps": 24, "epochs": 2, "mini_batch_size": 32, "num_envs": 4, "num_workers": 2, "eval_episodes": 2}
BATCH = 24 * 4


def train(log_dir: Path, updates: int, **settings: object) -> Result:
    values = {**SMALL, "runtime": "inline", "log_dir": str(log_dir), "timesteps": updates * BATCH, **settings}
    return penstock.train(values, quiet=True)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "tests.environments:DictEnv"])
@pytest.mark.parametrize("runtime", ["inline", "local"])
def test_resumed_equals_uninterrupted(tmp_path, env: str, runtime: str) -> None:
    whole = train(tmp_path / "whole", 8, env=env)
    first = train(tmp_path / "parts", 3, env=env, runtime=runtime)
    second = penstock.resume(first.run_folder, timesteps=8 * BATCH, quiet=True)
    assert second.not_restored == 0
    assert fingerprint(second) == fingerprint(whole)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 4)])
def test_a_resume_with_another_number_of_workers_gives_the_same(tmp_path, before: int, after: int) -> None:
    whole = train(tmp_path / "whole", 6, env="CartPole-v1")
    first = train(tmp_path / "parts", 3, env="CartPole-v1", num_workers=before)
    config = first.run_folder / "config.toml"
    text = config.read_text()
    assert f"num_workers = {before}\n" in text
    config.write_text(text.replace(f"num_workers = {before}\n", f"num_workers = {after}\n"))
    second = penstock.resume(first.run_folder, timesteps=6 * BATCH, quiet=True)
    assert second.not_restored == 0
    assert fingerprint(second) == fingerprint(whole)


def test_the_return_of_an_episode_that_spans_the_cut_is_the_same_to_the_bit(tmp_path) -> None:
    # An episode of Pendulum is 200 steps. The run is cut at 3 * 96 = 288 steps, in the middle of the second episode,
    # and ends at 5 * 96 = 480. So each of four lanes ends two episodes. One of them has rewards from before and after
    # the cut.
    settings = {"env": "Pendulum-v1", "num_steps": 96, "epochs": 1}
    whole = train(tmp_path / "whole", 5 * 4, **settings)
    first = train(tmp_path / "parts", 3 * 4, **settings)
    assert load_checkpoint(find_checkpoint(first.run_folder)).arrays["episodes"] == 4
    second = penstock.resume(first.run_folder, timesteps=5 * 4 * BATCH, quiet=True)
    arrays = load_checkpoint(find_checkpoint(second.run_folder)).arrays
    assert arrays["episodes"] == 8
    assert arrays["returns"][-8:].all()
    assert fingerprint(second)["returns"] == fingerprint(whole)["returns"]


class ForgetfulEnv(TargetEnv):
    """Its observations depend on something that no seed restores."""

    shared = np.random.default_rng(0)

    def _show(self):
        self.target = self.shared.uniform(-1, 1, 1).astype(np.float32)
        return self.target


def test_an_episode_that_cannot_be_restored_begins_anew_and_is_counted(tmp_path) -> None:
    first = train(tmp_path, 3, env=f"{__name__}:ForgetfulEnv")
    second = penstock.resume(first.run_folder, timesteps=5 * BATCH, quiet=True)
    assert second.not_restored == 4
    assert second.steps == 5 * BATCH


class InterruptedEnv(TargetEnv):
    """Its first step interrupts the run, and is so long that no rollout is full before the run ends."""

    interrupts = True

    def step(self, action):
        if type(self).interrupts:
            signal.raise_signal(signal.SIGINT)
            type(self).interrupts = False
            time.sleep(0.2)
        return super().step(action)


@pytest.mark.usefixtures("interruptible")
def test_a_run_that_has_learned_nothing_begins_as_if_it_was_never_stopped(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(InterruptedEnv, "interrupts", False)
    env = f"{__name__}:InterruptedEnv"
    whole = train(tmp_path / "whole", 2, env=env)
    monkeypatch.setattr(InterruptedEnv, "interrupts", True)
    first = train(tmp_path / "parts", 2, env=env)
    assert (first.interrupted, first.steps) == (True, 0)
    second = penstock.resume(first.run_folder, quiet=True)
    # No episode was there that could be restored.
    assert second.not_restored == 0
    assert fingerprint(second) == fingerprint(whole)


def test_sources_that_reset_themselves_are_not_restored(tmp_path) -> None:
    first = train(tmp_path, 2, env="tests.environments:make_clocks")
    second = penstock.resume(first.run_folder, timesteps=4 * BATCH, quiet=True)
    assert second.not_restored == 4
    assert second.steps >= 4 * BATCH
