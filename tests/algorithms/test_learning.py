"""Every on-policy algorithm learns tasks of one step whose optimum is known, in seconds."""

import numpy as np
import pytest
import torch

from penstock.algorithms.a2c import fused as a2c_fused
from penstock.algorithms.a2c import learn as a2c_learn
from penstock.algorithms.a2c import spec as a2c_spec
from penstock.algorithms.ppo import fused as ppo_fused
from penstock.algorithms.ppo import learn as ppo_learn
from penstock.algorithms.ppo import spec as ppo_spec
from tests.algorithms.loop import Identity, Switch, Target, train

PPO = {"num_steps": 32, "mini_batch_size": 64, "epochs": 8, "lr": 3e-3, "hidden_sizes": (32,)}
A2C = {"num_steps": 8, "mini_batch_size": 64, "lr": 3e-3, "hidden_sizes": (32,)}
WITHOUT_TORCH = [pytest.param("torch", marks=pytest.mark.nightly), "fused"]
"""For tests that take seven seconds with torch. Shorter: they learn by the native update, and an identity by both."""


@pytest.fixture(params=["torch", "fused"])
def ppo(request):
    fused = ppo_fused if request.param == "fused" else None

    def run(task, updates, **changes):
        torch.set_num_threads(1)
        return train(task, ppo_spec, ppo_learn, ppo_spec.PPOConfig(**(PPO | changes)), updates, fused=fused)

    return run


@pytest.fixture(params=["torch", "fused"])
def a2c(request):
    fused = a2c_fused if request.param == "fused" else None

    def run(task, updates, **changes):
        torch.set_num_threads(1)
        return train(task, a2c_spec, a2c_learn, a2c_spec.A2CConfig(**(A2C | changes)), updates, fused=fused)

    return run


def test_ppo_learns_an_identity(ppo):
    rewards, _ = ppo(Identity(), 12, entropy_coef=0.0)
    assert rewards[0] < 0.5
    assert rewards[-1] > 0.95


@pytest.mark.parametrize("ppo", WITHOUT_TORCH, indirect=True)
def test_ppo_learns_a_target(ppo):
    # The best return, without spread, is 0. A policy that ignores its observation gets at most -2/3.
    rewards, metrics = ppo(Target(), 40, entropy_coef=0.0, lr_schedule="linear", log_std_init=-1.0)
    assert rewards[-1] > -0.1
    assert 0.0 <= metrics["approx_kl"] < 0.1
    assert metrics["lr"] == pytest.approx(3e-3 / 40)


@pytest.mark.parametrize("flag", ["normalize_obs", "normalize_value"])
@pytest.mark.parametrize("ppo", WITHOUT_TORCH, indirect=True)
def test_ppo_learns_a_dict_with_running_statistics(ppo, flag):
    rewards, _ = ppo(Switch(), 30, entropy_coef=0.0, log_std_init=-1.0, **{flag: True})
    assert np.mean(rewards[-3:]) > -0.12


def test_a2c_learns_an_identity(a2c):
    rewards, _ = a2c(Identity(), 250, entropy_coef=0.0)
    assert np.mean(rewards[-10:]) > 0.95


@pytest.mark.parametrize("a2c", WITHOUT_TORCH, indirect=True)
def test_a2c_learns_a_target(a2c):
    rewards, _ = a2c(Target(), 400, entropy_coef=0.0, log_std_init=-1.0)
    assert np.mean(rewards[-10:]) > -0.2
