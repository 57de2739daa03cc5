"""Every algorithm that learns from a table learns tasks whose optimum is known, in seconds."""

import numpy as np
import pytest
import torch

from penstock.algorithm_lookup import find_algorithm
from penstock.registry import load
from penstock.types import Discrete, Spaces
from tests.algorithms.loop import Target
from tests.algorithms.replay_loop import Loop

LANES = 8
STATES = 5


class OneStep:
    """A task of `tests.algorithms.loop` as a source: every step is an episode."""

    def __init__(self, task):
        self.spaces, self._task = task.spaces, task
        self._generator = np.random.default_rng(0)
        self._obs = task.observe(self._generator, LANES)
        self.rewards = []

    def observe(self):
        return self._obs

    def step(self, action):
        reward = self._task.reward(self._obs, action)
        self.rewards.append(float(reward.mean()))
        before, self._obs = self._obs, self._task.observe(self._generator, LANES)
        ended = np.ones(LANES, bool)
        return before, reward, ended, ended


class Corridor:
    """States 0 to 4; action 1 goes right, 0 left; reaching 4 gives 1 and ends the episode."""

    spaces = Spaces((("obs", Discrete(STATES)),), Discrete(2))

    def __init__(self):
        self._generator = np.random.default_rng(0)
        self._at = self._generator.integers(0, STATES - 1, LANES)

    def observe(self):
        return {"obs": self._at.copy()}

    def step(self, action):
        after = np.clip(self._at + np.where(action == 1, 1, -1), 0, STATES - 1)
        ended = after == STATES - 1
        self._at = np.where(ended, self._generator.integers(0, STATES - 1, LANES), after)
        return {"obs": after}, ended.astype(np.float32), ended, ended


def loop_of(name, source, **settings):
    torch.set_num_threads(1)
    entry = find_algorithm(name)
    config = entry.config(**settings)
    spec, algorithm = load(entry.spec)(source.spaces, config), load(entry.learn)(source.spaces, config)
    return Loop(source, spec, algorithm, load(entry.initial)(source.spaces, config, 0), LANES)


CONTINUOUS = {
    "hidden_sizes": (32,),
    "mini_batch_size": 64,
    "min_rows": 64,
    "updates_per_step": 0.25,
    "lr": 3e-3,
    "critic_lr": 3e-3,
    "tau": 0.05,
}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        # Six seconds each. Shorter: TD3 learns it, and each algorithm's equations are tested beside this module.
        pytest.param("sac", {"temperature_lr": 1e-2}, marks=pytest.mark.nightly),
        pytest.param("sac", {"critics": 1, "temperature": 0.01}, marks=pytest.mark.nightly),
        pytest.param("dsac", {"temperature_lr": 1e-2}, marks=pytest.mark.nightly),
        pytest.param("dsact", {"temperature_lr": 1e-2}, marks=pytest.mark.nightly),
        ("td3", {}),
        pytest.param("ddpg", {}, marks=pytest.mark.nightly),
    ],
)
def test_it_hits_the_target_that_it_is_shown(name, settings):
    source = OneStep(Target())
    loop = loop_of(name, source, **CONTINUOUS | settings)
    loop.train(LANES * 250, 2)
    obs = source.observe()
    rewards = []
    for _ in range(20):
        obs = source.observe()
        action = loop.act(obs, np.zeros(LANES, np.float32))
        rewards.append(float(source.step(action)[1].mean()))
    # The best return is 0. A policy that ignores its observation gets at most -2/3.
    assert np.mean(rewards) > -0.05


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        # Ten seconds each. Shorter: the one with four settings, and ``test_dqn.py`` and ``test_apex.py`` by hand.
        pytest.param("dqn", {"n_step": 1}, marks=pytest.mark.nightly),
        ("dqn", {"double": False, "dueling": True, "n_step": 3, "prioritised": True}),
        pytest.param("dqn", {"atoms": 21, "value_min": 0.0, "value_max": 1.0, "n_step": 2}, marks=pytest.mark.nightly),
        pytest.param("apex", {}, marks=pytest.mark.nightly),
    ],
)
def test_it_learns_the_values_of_a_corridor(name, settings):
    common = {
        "hidden_sizes": (32,),
        "mini_batch_size": 64,
        "min_rows": 64,
        "lr": 3e-3,
        "gamma": 0.5,
        "target_every": 20,
    }
    loop = loop_of(name, Corridor(), **common | {"updates_per_step": 0.5} | settings)
    loop.train(LANES * 250, 2)
    published = {part.name: loop.state[part.name] for part in loop.spec.published()}
    inputs = {"obs": torch.arange(STATES - 1), "noise": torch.ones(STATES - 1, 2), "explore": torch.zeros(STATES - 1)}
    outputs = loop.algorithm.act(published, inputs)
    assert outputs["action"].tolist() == [1, 1, 1, 1]
    # Three steps after the next one to the end, two, one, none.
    assert outputs["q"][:, 1].tolist() == pytest.approx([0.125, 0.25, 0.5, 1.0], abs=0.06)
    # A step left costs two steps right. With n_step above 1, targets also contain the cost of exploring steps.
    if loop.spec.table.n_step == 1:
        assert outputs["q"][1:, 0].tolist() == pytest.approx([0.0625, 0.125, 0.25], abs=0.06)
