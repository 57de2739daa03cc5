"""Actions of every kind as environments get them, from scalar and vector sources."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from penstock.envs.actions import cutter
from penstock.envs.rewards import RewardedSource, find_reward
from penstock.envs.sources import open_source
from penstock.kernels.actions import environment_array, generate_actions, to_environment

KICK = spaces.Dict({"power": spaces.Box(0.0, 5.0, (2, 1), np.float32), "foot": spaces.Discrete(2, start=3)})
SPACES = {
    "multi discrete": spaces.MultiDiscrete([3, 4], start=[1, 0]),
    "small integers": spaces.MultiDiscrete([[3], [4]], dtype=np.int8),
    "multi binary": spaces.MultiBinary([2, 2]),
    "dict": KICK,
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Box(-1.0, 1.0, (), np.float64))),
    "nested": spaces.Dict({"a": spaces.Tuple((KICK, spaces.MultiBinary(2))), "b": spaces.Discrete(2)}),
}


class KeepsEnv(gymnasium.Env):
    """Accepts actions of its space only, and keeps them. The reward is the number of kept actions."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, action_space):
        self.action_space = action_space
        self.kept = []

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if not self.action_space.contains(action):
            raise ValueError(f"{action} is not in {self.action_space}")
        self.kept.append(action)
        return np.zeros(1, np.float32), float(len(self.kept)), False, False, {}


def generated(space, lanes, step):
    """Random actions in the environment's units."""
    spec = gymnasium_free(space)
    stored = np.zeros((lanes, *spec.action_spec().shape), spec.action_spec().dtype)
    generate_actions(spec.action, 1, np.arange(lanes), step, stored)
    return to_environment(stored, spec.action, environment_array(spec.action, lanes)), spec.action


def gymnasium_free(space):
    return open_source(lambda: KeepsEnv(space), False, 1).spaces


def equal(one, other):
    """True if two actions have the same structure, types and numbers."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return one.dtype == other.dtype and np.array_equal(one, other)


@pytest.mark.parametrize("name", SPACES)
def test_each_environment_gets_an_action_of_its_space(name):
    envs = []

    def make():
        envs.append(KeepsEnv(SPACES[name]))
        return envs[-1]

    lanes = open_source(make, False, 3)
    lanes.reset([0, 1, 2])
    expected = []
    for step in range(5):
        action, space = generated(SPACES[name], 3, step)
        expected.append(list(cutter(space, 3)(action)))
        assert lanes.step(action, lambda lane: lane).reward.tolist() == [step + 1.0] * 3
    # What an environment has kept is never written again.
    for lane, env in enumerate(envs):
        assert all(equal(kept, told[lane]) for kept, told in zip(env.kept, expected, strict=True))
    assert len({str(kept) for env in envs for kept in env.kept}) > 1


def test_a_dict_has_the_numbers_of_its_leaves():
    space = gymnasium_free(SPACES["nested"]).action
    # Leaves: a.0.foot, a.0.power [2, 1], a.1 [2], b.
    (action,) = cutter(space, 1)(np.array([[4.0, 0.5, 2.5, 1.0, 0.0, 1.0]]))
    foot, power = action["a"][0]["foot"], action["a"][0]["power"]
    assert (foot, action["b"]) == (4, 1)
    assert isinstance(foot, np.int64)
    np.testing.assert_array_equal(power, np.array([[0.5], [2.5]], np.float32), strict=True)
    np.testing.assert_array_equal(action["a"][1], np.array([1, 0], np.int8), strict=True)
    assert list(action) == ["a", "b"]


@pytest.mark.parametrize("vector", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize("name", SPACES)
def test_a_vector_environment_gets_a_batch_of_its_space(name, vector):
    lanes = open_source(lambda num_envs: vector([lambda: KeepsEnv(SPACES[name])] * num_envs), False, 2)
    lanes.reset([0, 1])
    for step in range(2):
        action, _ = generated(SPACES[name], 2, step)
        assert lanes.step(action, lambda lane: lane).reward.tolist() == [step + 1.0] * 2
    lanes.close()


def test_an_own_reward_gets_the_action_as_the_environment_does():
    seen = []

    def reward(action):
        seen.append(action)
        return 0.0

    envs = []

    def make():
        envs.append(KeepsEnv(KICK))
        return envs[-1]

    lanes = RewardedSource(open_source(make, False, 1), find_reward(reward), "kick", 0)
    lanes.reset([0])
    lanes.step(generated(KICK, 1, 0)[0], lambda lane: lane)
    assert equal(seen[0], envs[-1].kept[0])
