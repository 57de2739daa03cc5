"""All historical forms of the older API, as classes of this file: no ``gym`` is installed or imported."""

import sys

import gymnasium
import numpy as np
import pytest

from penstock.envs.gymnasium import ScalarSource
from penstock.envs.older_api import OlderEnv, is_current
from penstock.envs.sources import open_source, probe
from penstock.types import Discrete as PlainDiscrete
from tests.environments import ClockEnv


class Space:
    """The base class of the older spaces."""


class Box(Space):
    def __init__(self, low, high, shape, dtype=np.float32):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.low, self.high = np.full(shape, low, dtype), np.full(shape, high, dtype)


class Discrete(Space):
    def __init__(self, n):
        self.n, self.shape, self.dtype = n, (), np.dtype(np.int64)


class Env:
    """Counts its steps; the observation is the count plus the seed."""

    observation_space = Box(-np.inf, np.inf, (1,))
    action_space = Discrete(2)
    limit, ends_at = 5, None
    base = 0

    @property
    def unwrapped(self):
        return self

    def _begin(self):
        self.count = 0
        return self._obs()

    def _obs(self):
        return np.array([self.count + self.base], np.float32)

    def _advance(self):
        self.count += 1
        terminated = self.count == self.ends_at
        return self._obs(), 1.0, terminated, self.count >= self.limit and not terminated


class Before021(Env):
    """``seed()``, ``reset()`` that returns the observation, ``step`` of four values."""

    def seed(self, seed=None):
        self.base = seed
        return [seed]

    def reset(self):
        return self._begin()

    def step(self, action):
        obs, reward, terminated, truncated = self._advance()
        info = {"TimeLimit.truncated": True} if truncated else {}
        return obs, reward, terminated or truncated, info


class Wrapper021(Env):
    """Its ``reset(**kwargs)`` passes on all arguments, although the environment inside may not take them."""

    def __init__(self, env):
        self.env = env

    @property
    def unwrapped(self):
        return self.env

    def seed(self, seed=None):
        return self.env.seed(seed)

    def reset(self, **kwargs):
        return self.env.reset(**kwargs)

    def step(self, action):
        return self.env.step(action)


class From022To025(Before021):
    """``reset(seed=, return_info=, options=)`` that returns the observation."""

    def reset(self, *, seed=None, return_info=False, options=None):
        self.base = seed
        return (self._begin(), {}) if return_info else self._begin()


class From026(Env):
    """The present API on the older package's classes."""

    def reset(self, *, seed=None, options=None):
        self.base = seed
        return self._begin(), {}

    def step(self, action):
        return *self._advance(), {}


class NoSeed(Env):
    """A user's class: ``step`` of five values, a reset without arguments."""

    def reset(self):
        return self._begin()

    def step(self, action):
        return *self._advance(), {}


class NoInfo(Before021):
    """``step`` of four values, the last one ``None``."""

    def step(self, action):
        return *super().step(action)[:3], None


def wrapped():
    return Wrapper021(Before021())


class PassesOn(gymnasium.Wrapper):
    """A wrapper as users write it: it passes on all attributes that it does not have."""

    def reset(self, **kwargs):
        return self.env.reset(**kwargs)


def test_a_wrapper_that_passes_keywords_on_is_seeded_and_restorable():
    lanes = ScalarSource("current", [PassesOn(gymnasium.make("CartPole-v1")) for _ in range(2)])
    assert lanes.restorable
    assert is_current(PassesOn(gymnasium.make("CartPole-v1")))
    # Inside it is an older one that knows no seed.
    assert not is_current(PassesOn(NoSeedCurrent()))


class OwnBase(gymnasium.Env):
    """As users write it, with a seed."""

    observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,)), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(1).astype(np.float32), {}


class Derived(OwnBase):
    def reset(self, **kwargs):
        return super().reset(**kwargs)


class AlsoPositional(Derived):
    def reset(self, *args, **kwargs):
        return super().reset(*args, **kwargs)


@pytest.mark.parametrize("make", [Derived, AlsoPositional])
def test_a_class_that_hands_keywords_on_to_its_base_is_seeded(make):
    assert is_current(make())
    assert is_current(PassesOn(make()))
    lanes = ScalarSource("derived", [make()])
    assert lanes.restorable
    assert lanes.reset([7])["obs"].tolist() == ScalarSource("base", [OwnBase()]).reset([7])["obs"].tolist()


def test_a_reset_of_any_keywords_but_a_seed_is_not_restored_also_under_a_wrapper():
    """As docs/real-time.md says of hardware: nobody plays its actions again."""
    env = gymnasium.wrappers.TimeLimit(AnyKeywords(), 5)
    lanes = ScalarSource("hardware", [env])
    assert not lanes.restorable
    assert lanes.reset([7])["obs"].tolist() == [[0]]


class AnyKeywords(gymnasium.Env):
    """A Gymnasium environment that cannot be seeded, but may be wrapped."""

    observation_space = Box(0, 1, (1,))
    action_space = Discrete(2)

    def reset(self, **_):
        return np.zeros(1, np.float32), {}


class NoSeedCurrent(gymnasium.Env):
    """A Gymnasium environment with a reset that takes no arguments."""

    def reset(self):  # type: ignore[override]
        return 0, {}


SHAPES = [Before021, wrapped, From022To025, From026, NoSeed]


@pytest.mark.parametrize("make", SHAPES)
def test_every_historical_shape_steps_and_resets(make):
    assert not is_current(make())
    lanes = ScalarSource("older", [make(), make()])
    seeded = make is not NoSeed
    assert lanes.restorable == seeded
    start = 7 if seeded else 0
    assert lanes.reset([7, 7])["obs"].tolist() == [[start], [start]]
    for _ in range(4):
        result = lanes.step(np.array([0, 1]), lambda lane: 0)
        assert not (result.terminated | result.truncated).any()
    result = lanes.step(np.array([0, 1]), lambda lane: 20 + lane)
    assert result.truncated.all()
    assert not result.terminated.any()
    assert result.final_obs["obs"].tolist() == [[start + 5], [start + 5]]
    assert result.obs["obs"].tolist() == ([[20], [21]] if seeded else [[0], [0]])


@pytest.mark.parametrize("make", [Before021, From022To025, From026, NoSeed])
def test_an_end_at_the_time_limit_itself_is_a_termination(make):
    env = make()
    env.ends_at = env.limit
    lanes = ScalarSource("older", [env])
    lanes.reset([0])
    for _ in range(5):
        result = lanes.step(np.array([0]), lambda lane: 0)
    assert result.terminated[0]
    assert not result.truncated[0]


@pytest.mark.parametrize(
    ("done", "info", "terminated", "truncated"),
    [
        (False, {}, False, False),
        (False, {"TimeLimit.truncated": True}, False, False),
        (True, {}, True, False),
        (True, {"TimeLimit.truncated": False}, True, False),
        (True, {"TimeLimit.truncated": True}, False, True),
        (np.bool_(True), {"TimeLimit.truncated": np.bool_(True)}, False, True),
        (1, None, True, False),
    ],
)
def test_done_is_split_into_two_facts(done, info, terminated, truncated):
    env = Before021()
    env.step = lambda action: (0, 0.0, done, info)
    assert OlderEnv(env).step(0)[2:4] == (terminated, truncated)


def test_info_may_be_missing():
    lanes = ScalarSource("older", [NoInfo()])
    lanes.reset([0])
    for _ in range(5):
        result = lanes.step(np.array([0]), lambda lane: 0)
    assert result.terminated[0], "nothing says that it was a time limit"


def test_older_code_whose_import_alone_was_renamed():
    class Renamed(ClockEnv):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)[0]

        def step(self, action):
            obs, reward, _, truncated, _ = super().step(action)
            return obs, reward, truncated, {"TimeLimit.truncated": truncated}

    lanes = ScalarSource("renamed", [Renamed()])
    lanes.reset([0])
    for _ in range(20):
        result = lanes.step(np.array([0]), lambda lane: 0)
    assert result.truncated[0]
    assert result.final_obs["obs"][0, 0] == 1


def test_a_gymnasium_environment_whose_reset_takes_nothing():
    class TakesNothing(ClockEnv):
        def reset(self):
            return super().reset()

    lanes = ScalarSource("takes nothing", [TakesNothing()])
    assert not lanes.restorable
    lanes.reset([0])
    assert lanes.step(np.array([0]), lambda lane: 0).reward[0] == 1


def test_older_spaces_are_read_by_the_names_of_their_classes():
    profile = probe(Before021)
    assert profile.spaces.action == PlainDiscrete(2)
    assert profile.spaces.obs[0][1].shape == (1,)
    assert profile.restorable
    assert profile.same_step


def test_an_environment_without_close_can_be_closed():
    open_source(Before021, vector=False, num_lanes=2).close()


def test_no_gym_is_imported():
    assert "gym" not in sys.modules
