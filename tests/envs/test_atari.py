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


def test_a_lane_is_the_same_beside_any_others():
    together, rewards, _ = play(open_source(short_pong, vector=False, num_lanes=2))
    alone, own, _ = play(open_source(short_pong, vector=False, num_lanes=1, first_lane=1), num_lanes=1, first_lane=1)
    np.testing.assert_array_equal(together[:, 1], alone[:, 0])
    np.testing.assert_array_equal(rewards[:, 1], own[:, 0])


def test_one_line_says_what_is_done_to_observations():
    assert note(PONG) == note("PongNoFrameskip-v4") == NOTE
    assert "\n" not in NOTE
    assert note("Pendulum-v1") == note(short_pong) == ""
