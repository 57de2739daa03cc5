"""Atari games by name: their preprocessing, and that an episode depends only on its seed and actions."""

import numpy as np
import pytest

from penstock.envs.atari import NOTE, make_lanes
from penstock.envs.names import find, note
from penstock.envs.sources import open_source, probe
from penstock.envs.stacks import newest_frames
from penstock.seeding import episode_seed
from penstock.types import Box, Discrete, Stack

PONG = "ALE/Pong-v5"


def short_pong(num_envs):
    """Pong of at most 300 frames."""
    return make_lanes("pong", num_envs, max_num_frames_per_episode=300)


def play(lanes, steps=90, num_lanes=2, first_lane=0, actions=6):
    """Observations, rewards and ends of episodes under fixed actions."""
    numbers = [0] * num_lanes

    def next_seed(lane):
        numbers[lane] += 1
        return episode_seed(3, first_lane + lane, numbers[lane])

    seen = [lanes.reset([episode_seed(3, first_lane + lane, 0) for lane in range(num_lanes)])["obs"].copy()]
    rewards, ends = [], []
    for t in range(steps):
        result = lanes.step(np.array([(7 * t + first_lane + lane) % actions for lane in range(num_lanes)]), next_seed)
        seen.append(result.obs["obs"].copy())
        rewards.append(result.reward.copy())
        ends.append((result.terminated.copy(), result.truncated.copy()))
        assert not result.reset.any()
    lanes.close()
    return np.array(seen), np.array(rewards), np.array(ends)


@pytest.mark.parametrize("name", [PONG, "PongNoFrameskip-v4"])
def test_a_game_by_its_id(name):
    profile = probe(name)
    assert profile.kind == "vector"
    box = Box((4, 84, 84), "uint8", (0.0,), (255.0,), Stack(4, "zero"))
    assert profile.spaces.obs == (("obs", box),)
    assert profile.spaces.newest().obs == (("obs", Box((84, 84), "uint8", (0.0,), (255.0,))),)
    assert profile.spaces.action == Discrete(6)
    assert profile.same_step
    assert profile.restorable


def test_actions_stick_where_the_id_says_so():
    assert find(PONG).keywords["repeat_action_probability"] == 0.25
    assert find("PongNoFrameskip-v4").keywords["repeat_action_probability"] == 0.0


def test_an_action_takes_four_frames_of_which_four_are_stacked():
    lanes = make_lanes("pong", 1)
    _, info = lanes.reset(seed=np.array([1]))
    begun = int(info["episode_frame_number"][0])
    assert 0 <= begun <= 31
    following = []
    for count in range(1, 6):
        obs, reward, *_, info = lanes.step(np.array([0]))
        following.append(obs.copy())
        assert reward.dtype == np.float32
        assert int(info["episode_frame_number"][0]) == begun + 4 * count
    np.testing.assert_array_equal(following[-1][:, :3], following[-2][:, 1:])
    lanes.close()


def test_an_episode_that_runs_out_of_frames_is_truncated_and_the_next_has_its_own_seed():
    seen, _, ends = play(open_source(short_pong, vector=False, num_lanes=2))
    terminated, truncated = ends[:, 0], ends[:, 1]
    assert not terminated.any()
    assert truncated.any(axis=0).all()
    again, _, _ = play(open_source(short_pong, vector=False, num_lanes=2))
    np.testing.assert_array_equal(seen, again)


@pytest.mark.nightly  # Ten seconds each. Shorter: four frames are stacked, above.
@pytest.mark.parametrize("episodic_life", [False, True])
def test_its_stacks_can_be_parted_into_frames(episodic_life: bool) -> None:
    # The source checks every observation, and refuses one that is not the declared stack.
    def breakout(num_envs):
        return make_lanes("breakout", num_envs, max_num_frames_per_episode=1000, episodic_life=episodic_life)

    whole, _, ends = play(open_source(breakout, vector=False, num_lanes=2), steps=150, actions=4)
    stacks = {"obs": np.zeros((2, 4, 84, 84), np.uint8)}
    source = newest_frames(open_source(breakout, vector=False, num_lanes=2), stacks, "breakout", 0)
    newest, _, _ = play(source, steps=150, actions=4)
    assert ends.any()
    np.testing.assert_array_equal(newest, whole[:, :, -1])
    np.testing.assert_array_equal(stacks["obs"], whole[-1])


@pytest.mark.parametrize(
    ("game", "steps", "settings"),
    [
        # An episode begins with FIRE, and ends with each life.
        ("breakout", 60, {"episodic_life": True}),
        # Twenty seconds each. Shorter: the first one.
        pytest.param("breakout", 400, {}, marks=pytest.mark.nightly),
        pytest.param("pong", 1000, {}, marks=pytest.mark.nightly),
    ],
)
def test_all_lanes_go_on_in_the_middle_of_their_episodes(game: str, steps: int, settings: dict) -> None:
    def make(num_envs):
        return make_lanes(game, num_envs, repeat_action_probability=0.25, **settings)

    lanes = 3
    numbers, actions = [0] * lanes, [[] for _ in range(lanes)]
    choices = np.random.default_rng(0).integers(0, 4, (steps + 30, lanes))

    def seeds() -> list[int]:
        return [episode_seed(3, lane, number) for lane, number in enumerate(numbers)]

    def next_seed(lane: int) -> int:
        numbers[lane] += 1
        actions[lane].clear()
        return seeds()[lane]

    first = open_source(make, vector=False, num_lanes=lanes)
    first.reset(seeds())
    for chosen in choices[:steps]:
        for lane in range(lanes):
            actions[lane].append(chosen[lane])
        stood = first.step(chosen, next_seed).obs["obs"].copy()
    assert len({len(taken) for taken in actions}) > 1, "lanes stand at different steps of their episodes"
    again = open_source(make, vector=False, num_lanes=lanes)
    again.reset(seeds())
    *_, last = again.replay({lane: np.array(taken, np.int64) for lane, taken in enumerate(actions)})
    np.testing.assert_array_equal(last.obs["obs"], stood)
    before = numbers.copy()
    expected = [copied(first.step(chosen, next_seed)) for chosen in choices[steps:]]
    numbers[:] = before
    for chosen, (obs, reward, final) in zip(choices[steps:], expected, strict=True):
        found = copied(again.step(chosen, next_seed))
        for one, other in zip(found, (obs, reward, final), strict=True):
            np.testing.assert_array_equal(one, other)
    first.close()
    again.close()


def copied(result):
    """The observations, rewards and ends of a step, copied."""
    return result.obs["obs"].copy(), result.reward.copy(), (result.terminated | result.truncated).copy()


def test_a_lane_is_the_same_beside_any_others():
    together, rewards, _ = play(open_source(short_pong, vector=False, num_lanes=2))
    alone, own, _ = play(open_source(short_pong, vector=False, num_lanes=1, first_lane=1), num_lanes=1, first_lane=1)
    np.testing.assert_array_equal(together[:, 1], alone[:, 0])
    np.testing.assert_array_equal(rewards[:, 1], own[:, 0])


def test_one_line_says_what_is_done_to_observations():
    assert note(PONG) == note("PongNoFrameskip-v4") == NOTE
    assert "\n" not in NOTE
    assert note("Pendulum-v1") == note(short_pong) == ""
