"""The user's own reward: its arguments, its life of one episode, its reward at an end, and errors."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode

from penstock.envs.gymnasium import ScalarSource
from penstock.envs.rewards import RewardedSource, find_reward
from penstock.envs.vector import VectorSource
from penstock.errors import BadDataError, EnvError
from tests.environments import ClockVectorEnv, DictEnv


class Counter(gymnasium.Env):
    """Observation and reward are the number of steps. Ends after ``limit`` steps. Reuses its array on purpose."""

    observation_space = Box(0.0, 100.0, (1,), np.float32)
    action_space = Discrete(3)

    def __init__(self, limit: int, *, cut: bool = False) -> None:
        self.limit, self.cut, self.shown = limit, cut, np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        self.shown[0] = 0
        return self.shown, {}

    def step(self, action):
        self.shown += 1
        count = int(self.shown[0])
        over = count == self.limit
        return self.shown, float(count), over and not self.cut, over and self.cut, {"double": 2 * count}


class Path:
    """Remembers the observations of one episode. The reward at its end is their sum."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.path = []

    def step(self, obs, next_obs, action):
        self.path.append((float(obs[0]), float(next_obs[0])))
        return 0.5 * action

    def end(self, truncated, reward):
        return sum(after for _, after in self.path) + (1000.0 if truncated else 0.0) + reward


def lanes(reward, *envs) -> RewardedSource:
    return RewardedSource(ScalarSource("test", envs, 10), find_reward(reward), "test", 10)


def steps(source: RewardedSource, count: int, action: int = 1) -> list[list[float]]:
    found = []
    for _ in range(count):
        source.step(np.full(source.num_lanes, action), lambda _: 0)
        found.append(source.shaped.tolist())
    return found


def test_a_function_is_given_what_it_names_and_the_environments_own_rewards_stay():
    seen = []

    def shaped(next_obs, obs, info, reward, *, action, terminated, truncated, scale=2.0):
        seen.append((obs.tolist(), next_obs.tolist(), info, reward, int(action), terminated, truncated))
        return scale * reward

    source = lanes(shaped, Counter(2))
    source.reset([0])
    assert source.step(np.array([1]), lambda _: 0).reward.tolist() == [1.0]
    assert source.shaped.tolist() == [2.0]
    assert source.ended == []
    # The observation that ended the episode is what the step led to, not the next episode's first one.
    assert source.step(np.array([2]), lambda _: 0).reward.tolist() == [2.0]
    assert source.ended == [6.0]
    source.step(np.array([0]), lambda _: 0)
    assert seen == [
        ([0.0], [1.0], {"double": 2}, 1.0, 1, False, False),
        ([1.0], [2.0], {"double": 4}, 2.0, 2, True, False),
        ([0.0], [1.0], {"double": 2}, 1.0, 0, False, False),
    ]


def test_what_a_class_gives_at_the_end_is_added_to_the_episodes_last_row():
    source = lanes(Path, Counter(2), Counter(3, cut=True))
    source.reset([0, 0])
    # Ends: 1 + 2 and the last reward 2; 1 + 2 + 3, the last reward 3, and 1000 for being cut.
    assert steps(source, 4) == [[0.5, 0.5], [5.5, 0.5], [0.5, 1009.5], [5.5, 0.5]]
    assert source.ended == [6.0]


def test_each_episode_has_an_object_of_its_own():
    source = lanes(Path, Counter(2))
    source.reset([0])
    Path.made = 0
    assert steps(source, 6) == [[0.5], [5.5]] * 3
    assert Path.made == 3


def test_an_episode_that_is_restored_restores_its_reward():
    source = lanes(Path, Counter(4), Counter(4))
    source.reset([0, 0])
    list(source.replay({1: np.array([2, 2, 2])}))
    # Three steps of action 2 are behind lane 1; the fourth ends with 1 + 2 + 3 + 4 and the last reward 4.
    assert steps(source, 1) == [[0.5, 14.5]]
    assert source.ended == [3 * 1.0 + 14.5]


def test_dict_observations_are_dicts():
    source = lanes(lambda obs, next_obs: next_obs["which"] + 10.0 * float(obs["dials"]["a"][0]), DictEnv())
    first = source.reset([3])
    expected = 10.0 * float(first["obs.dials.a"][0, 0])
    result = source.step(np.array([0]), lambda _: 0)
    assert source.shaped.tolist() == [np.float32(expected + int(result.obs["obs.which"][0]))]


def test_a_key_with_a_dot_stays_one_key():
    class Dotted(Counter):
        observation_space = Dict({"pos.x": Counter.observation_space, "0": Counter.observation_space})

        def reset(self, *, seed=None, options=None):
            obs, info = super().reset()
            return {"pos.x": obs, "0": -obs}, info

        def step(self, action):
            obs, *rest = super().step(action)
            return {"pos.x": obs, "0": obs}, *rest

    source = lanes(lambda next_obs: float(next_obs["pos.x"][0] + 10 * next_obs["0"][0]), Dotted(9))
    source.reset([0])
    assert steps(source, 2) == [[11.0], [22.0]]


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_lanes_that_are_stepped_by_one_call_have_rewards_of_their_own(mode):
    env = ClockVectorEnv(2, mode, limit=2)
    source = RewardedSource(VectorSource("test", env, 2), find_reward(Path), "test", 0)
    source.reset([0, 0])
    found = steps(source, 3)
    # The clock shows steps / 20. Lane 0 is cut after 2 steps, lane 1 after 3; the environment pays 1 a step.
    assert found[1][0] == pytest.approx(0.5 + 0.05 + 0.10 + 1000 + 1)
    assert found[2] == pytest.approx([0.0 if mode is AutoresetMode.NEXT_STEP else 0.5, 0.5 + 0.3 + 1000 + 1])
    assert source.ended == pytest.approx([1.5 + 0.3 + 1001])


class WithoutLast(ClockVectorEnv):
    """Gives the last observation only of an episode that was cut off; its second lane terminates."""

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        terminated, truncated = terminated | truncated, np.zeros_like(truncated)
        return obs, reward, terminated, truncated, {}


def test_a_reward_that_reads_the_last_observation_is_given_no_other_one():
    def learned(reward):
        source = VectorSource("test", WithoutLast(2, AutoresetMode.SAME_STEP, limit=2), 2)
        rewarded = RewardedSource(source, find_reward(reward), "test", 0)
        rewarded.reset([0, 0])
        return steps(rewarded, 2)

    assert learned(lambda obs: 1.0) == [[1.0, 1.0]] * 2
    with pytest.raises(BadDataError, match="resets in the same step, but its infos hold no final_obs of that lane"):
        learned(lambda next_obs: 1.0)


def test_a_reward_that_reads_what_an_environment_never_gives_is_refused_at_once():
    env = WithoutLast(2, AutoresetMode.SAME_STEP)
    env.gives_final_obs = False
    says = "takes next_obs, but lanes 0 to 1 of test begin the next episode in the same step, and never give the last "
    for reward in (lambda next_obs: 0.0, Path):
        with pytest.raises(EnvError, match=f"{says}observation; leave next_obs out"):
            RewardedSource(VectorSource("test", env, 2), find_reward(reward), "test", 0)
    RewardedSource(VectorSource("test", env, 2), find_reward(lambda obs: 0.0), "test", 0)


def test_where_the_environment_gave_no_number_the_reward_is_not_asked():
    class Spoilt(Counter):
        def step(self, action):
            obs, _, *rest = super().step(action)
            return obs, float("nan"), *rest

    source = lanes(lambda reward: 1 / 0, Spoilt(3))
    source.reset([0])
    assert np.isnan(steps(source, 1)).all()


class NoStep:
    def end(self):
        return 0.0


class Needy:
    def __init__(self, scale):
        self.scale = scale

    def step(self):
        return self.scale


class Misnamed:
    def step(self, state):
        return 0.0


@pytest.mark.parametrize(
    ("reward", "says"),
    [
        (lambda state, reward: 0.0, "reward lambda takes state; a reward takes obs, action, reward, next_obs"),
        (lambda *args: 0.0, r"takes \*args; a reward takes"),
        (NoStep, r"reward NoStep is a class without step: give it step\(self"),
        (Needy, "reward Needy is made for each episode without arguments; give scale of its class a default"),
        (Misnamed, "step of reward Misnamed takes state"),
        ("tests.envs.test_rewards:Pathh", "has no Pathh; did you mean Path"),
        ("tests.nowhere:shaped", "^reward tests.nowhere:shaped: no module named tests.nowhere is installed or in "),
        ("shaped", "reward shaped is no name in a module: write module:name"),
        ("my.rewards.shaped", "reward my.rewards.shaped is no name in a module: write my.rewards:shaped$"),
    ],
)
def test_what_cannot_be_a_reward_is_one_line(reward, says):
    with pytest.raises(EnvError, match=says) as refusal:
        find_reward(reward)
    assert "\n" not in str(refusal.value)


class Endless:
    def step(self, reward):
        return reward

    def end(self):
        pass


@pytest.mark.parametrize(
    ("reward", "says"),
    [
        (lambda reward: None, "^reward lambda returned None for lane 10 of test; return a number$"),
        (lambda reward: "a", "^reward lambda returned 'a' for lane 10 of test; return a number$"),
        (lambda reward: [1.0, 2.0], r"^reward lambda returned \[1.0, 2.0\] for lane 10 of test; return a number$"),
        (Endless, "^end of reward Endless returned None for lane 10 of test; return a number$"),
    ],
)
def test_what_is_no_number_names_function_and_lane(reward, says):
    source = lanes(reward, Counter(1))
    source.reset([0])
    with pytest.raises(BadDataError, match=says):
        steps(source, 1)


def test_an_error_in_a_reward_says_for_which_lane():
    source = lanes(lambda reward: 1 / 0, Counter(3))
    source.reset([0])
    says = "^reward lambda failed for lane 10 of test: ZeroDivisionError: division by zero"
    with pytest.raises(BadDataError, match=rf"{says} \(.*test_rewards.py, line \d+\)$"):
        steps(source, 1)


class Unmade:
    fails = False

    def __init__(self) -> None:
        if self.fails:
            raise ValueError("no such path")

    def step(self, reward):
        return reward


def test_an_error_in_the_constructor_of_a_reward_is_one_line(monkeypatch):
    source = lanes(Unmade, Counter(1))
    source.reset([0])
    monkeypatch.setattr(Unmade, "fails", True)
    says = "^reward Unmade failed for lane 10 of test: ValueError: no such path"
    with pytest.raises(BadDataError, match=rf"{says} \(.*test_rewards.py, line \d+\)$"):
        steps(source, 1)


def test_infos_of_many_lanes_are_refused():
    source = VectorSource("clocks", ClockVectorEnv(2), 2)
    with pytest.raises(EnvError, match="takes info, but clocks steps many lanes in one call and gives no info"):
        RewardedSource(source, find_reward(lambda info: 0.0), "clocks", 0)
