"""Specs as plain data: no torch, one set of defaults, a state that says everything."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from penstock.algorithm_lookup import find_algorithm
from penstock.algorithms.a2c import spec as a2c_spec
from penstock.algorithms.ppo import learn as ppo_learn
from penstock.algorithms.ppo import spec as ppo_spec
from penstock.algorithms.ppo.rollouts import targets
from penstock.errors import ConfigError
from penstock.policies import Categorical
from penstock.registry import load
from penstock.types import ArraySpec, Box, Discrete, NoiseSpec, Spaces

VECTOR = Box((3,), "float32", (-1.0,), (1.0,))
PENDULUM = Spaces((("obs", VECTOR),), Box((1,), "float32", (-2.0,), (2.0,)))
CARTPOLE = Spaces((("obs", Box((4,), "float32", (-9.0,), (9.0,))),), Discrete(2))


def test_published_defaults():
    config = ppo_spec.PPOConfig()
    expected = {
        "num_steps": 2048,
        "epochs": 10,
        "mini_batch_size": 64,
        "lr": 3e-4,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "clip_param": 0.2,
        "value_coef": 0.5,
        "entropy_coef": 0.01,
        "max_grad_norm": 0.5,
        "normalize_obs": False,
        "normalize_value": False,
        "hidden_sizes": (64, 64),
    }
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.parametrize("config", [ppo_spec.PPOConfig, a2c_spec.A2CConfig])
def test_every_hyper_parameter_says_what_moves(config):
    for field in dataclasses.fields(config):
        assert len(field.metadata["help"]) > 20, field.name
        assert "\n" not in field.metadata["help"]


def test_ppo_on_pendulum():
    found = ppo_spec.spec(PENDULUM, ppo_spec.PPOConfig(target_kl=0.03))
    assert found.policy.noise == NoiseSpec("normal", (1,))
    assert found.minibatch == ("obs", "action", "log_prob", "advantage", "target")
    assert [part.name for part in found.state] == [
        "actor",
        "critic",
        "adam_m.actor",
        "adam_m.critic",
        "adam_v.actor",
        "adam_v.critic",
        "adam_step",
        "progress",
    ]
    assert (found.schedule.epochs, found.schedule.mini_batch_size, found.schedule.target_kl) == (10, 64, 0.03)
    assert ppo_spec.spec(PENDULUM, ppo_spec.PPOConfig()).schedule.target_kl is None


def test_the_state_has_the_weight_of_the_penalty_only_if_it_is_adapted():
    stays = ppo_spec.PPOConfig(kl_coef=0.4)
    assert ppo_spec.spec(PENDULUM, stays).state == ppo_spec.spec(PENDULUM, ppo_spec.PPOConfig()).state
    assert ppo_spec.spec(PENDULUM, stays).schedule.kl_target is None
    adapted = ppo_spec.PPOConfig(kl_coef=0.4, kl_target=0.02)
    found = ppo_spec.spec(PENDULUM, adapted)
    assert found.state[-1] == ArraySpec("kl_coef", (), "float32")
    assert found.schedule.kl_target == 0.02
    first = ppo_spec.init_state(PENDULUM, adapted, 0)["kl_coef"]
    assert (first.shape, first.dtype, float(first)) == ((), np.float32, pytest.approx(0.4))


def test_a_target_for_a_penalty_without_weight_is_refused():
    with pytest.raises(ConfigError, match=r"--kl_target 0\.02 doubles .* --kl_coef, which is 0; give --kl_coef 0\.2"):
        ppo_spec.spec(PENDULUM, ppo_spec.PPOConfig(kl_target=0.02))


def test_a2c_on_cartpole():
    found = a2c_spec.spec(CARTPOLE, a2c_spec.A2CConfig())
    assert found.policy.head == Categorical(2)
    assert found.policy.noise == NoiseSpec("gumbel", (2,))
    assert found.schedule.epochs == 1
    assert [part.name for part in found.state] == ["actor", "critic", "rmsprop_v.actor", "rmsprop_v.critic", "progress"]


@pytest.mark.parametrize(
    ("spec", "config"),
    [
        (ppo_spec, ppo_spec.PPOConfig(normalize_obs=True, normalize_value=True)),
        (a2c_spec, a2c_spec.A2CConfig(normalize_obs=True)),
    ],
)
def test_the_initial_state_has_the_arrays_of_the_spec(spec, config):
    state = spec.init_state(PENDULUM, config, 7)
    specs = {part.name: (part.shape, part.dtype) for part in spec.spec(PENDULUM, config).state}
    assert {name: (values.shape, str(values.dtype)) for name, values in state.items()} == specs
    again = spec.init_state(PENDULUM, config, 7)
    assert all(again[name].tobytes() == values.tobytes() for name, values in state.items())
    assert state["obs_var"].tolist() == [1.0, 1.0, 1.0]
    assert float(state["obs_count"]) == 0


def test_seeds_differ_and_networks_differ():
    config = ppo_spec.PPOConfig()
    one, two = ppo_spec.init_state(PENDULUM, config, 0), ppo_spec.init_state(PENDULUM, config, 1)
    assert not np.array_equal(one["actor"], two["actor"])
    assert not np.array_equal(one["actor"][:192], one["critic"][:192])


def test_specs_import_no_torch():
    code = "import sys, penstock.algorithms.ppo.spec, penstock.algorithms.a2c.spec; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_statistics_leave_rows_that_are_not_valid_out():
    config = ppo_spec.PPOConfig(normalize_obs=True, normalize_value=True)
    built = ppo_learn.build(PENDULUM, config)
    obs = np.array([[[1.0, 0, 0]], [[9.0, 9, 9]], [[3.0, 2, 0]], [[9.0, 9, 9]]], np.float32)
    rollout = {"obs": obs, "valid": np.array([[True], [False], [True], [False]])}
    rollout["target"] = np.array([[-1.0], [5.0], [-3.0]], np.float32)
    changed = built.statistics(ppo_spec.init_state(PENDULUM, config, 0), rollout)
    # Rows 0 and 2: means (2, 1, 0) and -2, variances (1, 1, 0) and 1. Row 3 begins the next rollout.
    assert changed["obs_mean"].tolist() == [2.0, 1.0, 0.0]
    assert changed["obs_var"].tolist() == [1.0, 1.0, 0.0]
    assert (float(changed["value_mean"]), float(changed["value_var"]), int(changed["value_count"])) == (-2.0, 1.0, 2)
    assert ppo_learn.build(PENDULUM, ppo_spec.PPOConfig()).statistics({}, rollout) == {}


def test_rewards_are_cut_only_for_the_targets():
    rollout = {
        # delta = r - v = 1 - 0.5, and at most 1 of the reward of 7 is seen.
        "reward": np.array([[7.0], [0.0]], np.float32),
        "value": np.array([[0.5], [0.0]], np.float32),
        "terminated": np.array([[True], [False]]),
        "truncated": np.zeros((2, 1), np.bool_),
        "valid": np.ones((2, 1), np.bool_),
        "final_count": np.zeros((), np.int64),
        "final_t": np.zeros(1, np.int32),
        "final_lane": np.zeros(1, np.int32),
        "final_value": np.zeros(1, np.float32),
    }
    assert targets(ppo_spec.PPOConfig(clip_reward=True), {}, rollout)["target"].tolist() == [[1.0]]
    assert targets(ppo_spec.PPOConfig(), {}, rollout)["target"].tolist() == [[7.0]]
    assert rollout["reward"][0, 0] == 7.0


@pytest.mark.parametrize("name", ["ppo", "impala", "sac", "dqn"])
def test_the_native_update_computes_in_float32_only(name):
    package = find_algorithm(name)
    spaces = PENDULUM if name == "sac" else CARTPOLE
    for precision, native in (("float32", True), ("bfloat16", False), ("float16", False)):
        config = package.config(precision=precision)
        assert load(package.supports)(load(package.spec)(spaces, config).policy, config) == native
