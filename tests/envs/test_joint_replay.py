"""All lanes of a vector environment are restored together: each begins so late that all arrive with the last step."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from penstock.envs.joint_replay import JointReplay
from penstock.envs.rewards import RewardedSource, find_reward
from penstock.envs.sources import open_source
from penstock.envs.stacks import newest_frames
from penstock.envs.vector import VectorSource
from penstock.errors import SnapshotError
from penstock.types import Discrete as DiscreteSpace
from penstock.types import Replayed, Spaces
from tests.environments import ClockVectorEnv, make_film


class Diary(gymnasium.Env):
    """Writes down its resets and actions. Observes the seed and the sum of all actions. Ends after so many steps."""

    observation_space = Box(0.0, 1e6, (2,), np.float32)
    action_space = Discrete(1000, start=100)

    def __init__(self, limit: int = 1000) -> None:
        self.limit, self.diary = limit, []

    def reset(self, *, seed=None, options=None):
        self.diary.append(f"reset {seed}")
        self.seed, self.sum, self.steps = seed, 0, 0
        return self.seen(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.diary.append(int(action))
        self.sum += int(action)
        self.steps += 1
        return self.seen(), float(action), self.steps == self.limit, False, {}

    def seen(self):
        return np.array([self.seed, self.sum], np.float32)


def disabled(*envs) -> VectorSource:
    """A source of these environments, whose diaries begin with its first reset."""
    made = SyncVectorEnv([lambda env=env: env for env in envs], autoreset_mode=AutoresetMode.DISABLED)
    source = VectorSource("test", made, len(envs))
    for env in envs:
        getattr(env, "diary", []).clear()
    return source


def lanes_of(steps) -> list[list[int]]:
    return [list(step.lanes) for step in steps]


def test_each_lane_begins_so_late_that_all_arrive_together() -> None:
    envs = [Diary(), Diary(), Diary()]
    source = disabled(*envs)
    source.reset([1, 2, 3])
    steps = []
    for step in source.replay({0: np.array([200, 201, 202]), 1: np.array([300])}):
        steps.append(list(step.lanes))
        last = step.obs["obs"].tolist()
        if step.lanes:
            paid = step.reward[list(step.lanes)].tolist()
    # Three steps; then lane 2, which has no action, begins its episode again.
    assert steps == [[0], [0], [0, 1], []]
    assert paid == [202.0, 300.0]
    assert envs[0].diary == ["reset 1", 200, 201, 202]
    _, *waited = envs[1].diary
    assert all(isinstance(action, int) for action in waited[:2])
    assert waited[2:] == ["reset 2", 300]
    assert envs[2].diary[-1] == "reset 3"
    assert last == [[1, 200 + 201 + 202], [2, 300], [3, 0]]
    # From here on all lanes go on as if nothing had been restored.
    result = source.step(np.array([400, 401, 402]), lambda lane: 9)
    assert result.obs["obs"].tolist() == [[1, 1003], [2, 701], [3, 402]]


def test_a_lane_that_ends_while_it_waits_is_reset_before_it_is_stepped() -> None:
    # Gymnasium's vector environment asserts that no ended lane is stepped.
    envs = [Diary(), Diary(limit=2)]
    source = disabled(*envs)
    source.reset([1, 2])
    steps = list(source.replay({0: np.arange(100, 105), 1: np.array([300])}))
    assert lanes_of(steps) == [[0]] * 4 + [[0, 1]]
    kinds = ["reset" if isinstance(one, str) else "step" for one in envs[1].diary]
    assert kinds == ["reset", "step", "step", "reset", "step", "step", "reset", "step"]
    assert envs[1].diary[-2:] == ["reset 2", 300]


def test_a_lane_whose_episode_ends_too_early_takes_no_more_actions_and_the_others_arrive() -> None:
    envs = [Diary(), Diary(limit=1)]
    source = disabled(*envs)
    source.reset([1, 2])
    steps = []
    for step in source.replay({0: np.array([200, 201, 202]), 1: np.array([300, 301, 302])}):
        steps.append(list(step.lanes))
        last = step.obs["obs"].tolist()
    assert steps == [[0, 1], [0], [0], []]
    assert last[0] == [1, 603]
    assert 301 not in envs[1].diary
    begun = source.begin(1, 77)
    assert begun is not None
    assert begun["obs"].tolist() == [[1, 603], [77, 0]]
    assert source.step(np.array([400, 401]), lambda lane: 9).obs["obs"][0].tolist() == [1, 1003]


def test_nothing_is_stepped_where_all_lanes_stand_at_their_reset() -> None:
    envs = [Diary(), Diary()]
    source = disabled(*envs)
    source.reset([1, 2])
    assert list(source.replay({0: np.empty(0, np.int64), 1: np.empty(0, np.int64)})) == []
    assert list(source.replay({})) == []
    assert [env.diary for env in envs] == [["reset 1"], ["reset 2"]]


def test_which_lanes_play_and_which_are_reset() -> None:
    spaces = Spaces((), DiscreteSpace(4))
    joint = JointReplay(spaces, 3, {0: np.array([3]), 2: np.array([1, 2])})
    assert joint.steps == 2
    assert [list(joint.playing(t)) for t in range(2)] == [[2], [0, 2]]
    # Before the first step all have been reset.
    assert [joint.resets(t).tolist() for t in range(3)] == [
        [False, False, False],
        [True, False, False],
        [False, True, False],
    ]
    assert joint.action(0, None)[2] == 1
    assert joint.action(1, None)[[0, 2]].tolist() == [3, 2]
    joint.note_ends(0, np.array([False, True, True]))
    assert list(joint.playing(1)) == [0]
    assert joint.resets(1).tolist() == [True, True, True]


class Strict(gymnasium.Env):
    """Refuses what its mask forbids, or what is outside its space."""

    observation_space = Box(0.0, 100.0, (1,), np.float32)

    def __init__(self, action_space) -> None:
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.observed()

    def step(self, action):
        _, info = self.observed()
        assert self.action_space.contains(action)
        if info:
            assert np.split(info["action_mask"], 2)[0][action[0]]
            assert np.split(info["action_mask"], 2)[1][action[1]]
        self.t += 1
        obs, info = self.observed()
        return obs, 0.0, False, self.t == 7, info

    def observed(self):
        mask = np.arange(6) % 3 == self.t % 3
        info = {"action_mask": mask.astype(np.int8)} if isinstance(self.action_space, MultiDiscrete) else {}
        return np.array([self.t], np.float32), info


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (MultiDiscrete([3, 3]), np.arange(6)[:, None].repeat(2, axis=1) % 3),
        (Box(np.float32(2.0), np.float32(3.0), (2,)), np.full((6, 2), 2.5, np.float32)),
    ],
    ids=["masked", "bounded"],
)
def test_a_lane_that_waits_does_what_is_possible(space, actions) -> None:
    def make(num_envs):
        return SyncVectorEnv([lambda: Strict(space)] * num_envs, autoreset_mode=AutoresetMode.DISABLED)

    mask = "action_mask" if isinstance(space, MultiDiscrete) else None
    source = open_source(make, False, 3, mask=mask)
    source.reset([1, 2, 3])
    *_, last = source.replay({0: actions, 1: actions[:2]})
    assert last.obs["obs"][:, 0].tolist() == [6, 2, 0]
    if mask is not None:
        assert last.obs[mask].tolist() == [[1, 0, 0, 1, 0, 0], [0, 0, 1, 0, 0, 1], [1, 0, 0, 1, 0, 0]]


class Total:
    """A reward with a state of its own."""

    def __init__(self) -> None:
        self.total = 0.0

    def step(self, obs, action, next_obs):
        self.total += float(next_obs[1] - obs[1])
        return self.total + float(action) / 1000


def test_the_users_own_reward_is_restored_in_each_lane() -> None:
    envs = [Diary(), Diary()]
    source = RewardedSource(disabled(*envs), find_reward(Total), "test", 0)
    source.reset([1, 2])
    list(source.replay({0: np.array([200, 300, 400]), 1: np.array([500])}))
    assert [source.own_return(lane) for lane in range(2)] == pytest.approx([200.2 + 500.3 + 900.4, 500.5])
    source.step(np.array([100, 100]), lambda lane: 9)
    assert source.shaped.tolist() == pytest.approx([1000.1, 600.1])


def test_stacks_of_frames_are_restored_in_each_lane() -> None:
    def make(num_envs):
        films = SyncVectorEnv([make_film] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
        films.metadata = {**films.metadata, "frame_stack": {"frames": 4, "padding": "first"}}
        return films

    stacks = {"obs": np.zeros((3, 4, 6), np.uint8)}
    source = newest_frames(open_source(make, vector=False, num_lanes=3), stacks, "film", 0)
    first = source.reset([1, 2, 3])["obs"].copy()
    *_, last = source.replay({0: np.array([1, 0]), 2: np.array([1])})
    assert last.obs["obs"][:, 4:].tolist() == [[2, 0], [0, 0], [1, 1]]
    np.testing.assert_array_equal(last.obs["obs"], stacks["obs"][:, -1])
    np.testing.assert_array_equal(stacks["obs"][1], [first[1]] * 4)
    # Each observation is checked against the stack before it.
    source.step(np.array([0, 0, 0]), lambda lane: 9)
    assert stacks["obs"][0, :, 4].tolist() == [0, 1, 2, 3]


def test_processes_of_gymnasium_are_restored_as_one_process_is() -> None:
    make = [lambda: gymnasium.make("CartPole-v1")] * 3
    actions = {0: np.array([1, 0, 0, 1, 1]), 1: np.array([0, 1])}

    def restored(vector) -> Replayed:
        source = VectorSource("test", vector, 3)
        source.reset([5, 6, 7])
        *_, last = source.replay(actions)
        found = {name: values.copy() for name, values in last.obs.items()}
        source.close()
        return last._replace(obs=found)

    expected = []
    for lane, seed in enumerate([5, 6, 7]):
        alone = open_source("CartPole-v1", vector=False, num_lanes=1)
        obs = alone.reset([seed])
        for action in actions.get(lane, ()):
            obs = alone.step(np.array([action]), lambda _: 0).obs
        expected.append(obs["obs"][0].copy())
    np.testing.assert_array_equal(restored(AsyncVectorEnv(make, autoreset_mode="Disabled")).obs["obs"], expected)
    np.testing.assert_array_equal(restored(SyncVectorEnv(make, autoreset_mode="Disabled")).obs["obs"], expected)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_an_environment_that_resets_itself_begins_no_episode_in_one_lane(mode) -> None:
    source = VectorSource("test", ClockVectorEnv(2, mode), 2)
    source.reset([0, 0])
    assert source.begin(1, 5) is None
    assert not source.restorable


def test_a_vector_environment_has_no_snapshots() -> None:
    source = VectorSource("test", ClockVectorEnv(2, "Disabled"), 2)
    assert source.snapshot(0) is None
    with pytest.raises(SnapshotError, match="has no snapshots"):
        source.apply_snapshot(0, b"")
