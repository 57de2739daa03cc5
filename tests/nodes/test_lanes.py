"""Lanes are brought back to where they were: those that cannot be begin anew, and the others do not notice."""

from dataclasses import replace

import numpy as np
import pytest

from penstock.envs.sources import open_source
from penstock.memory.action_log import ActionLog
from penstock.memory.segment import Segment
from penstock.nodes.contract import LaneStart
from penstock.nodes.env import EnvSettings
from penstock.nodes.env.lanes import Lanes
from penstock.seeding import episode_seed
from tests.environments import make_carts

LANES = 4
BEGINS = (LaneStart(),) * LANES


class Played:
    """Lanes of CartPole with a log of their own.

    Args:
        env: one environment for each lane, or one for all.
        starts: where they begin.
    """

    def __init__(self, env, starts=BEGINS) -> None:
        self.source = open_source(env, vector=False, num_lanes=LANES)
        spaces = self.source.spaces
        memory = Segment.create(ActionLog.required(LANES, spaces.action_spec(), 100), "test").bytes
        self.log = ActionLog(memory, LANES, spaces.action_spec(), ["obs"], 100)
        settings = EnvSettings(
            env="CartPole-v1",
            vector=False,
            ignore_obs=(),
            spaces=spaces,
            worker=0,
            num_workers=1,
            first_lane=0,
            lanes=LANES,
            num_steps=8,
            renew_every=8,
            seed=3,
            starts=starts,
            bad_numbers="stop",
            work_limit_s=10.0,
        )
        self.lanes = Lanes(settings, self.source, self.log, starts)
        self.lanes.reset()

    def step(self, t: int):
        """Step all lanes, as an EnvNode does. Returns observations and rewards, copied."""
        action = np.array([(t * (lane + 1)) % 3 % 2 for lane in range(LANES)])
        result = self.source.step(action, self.lanes.next_seed)
        ended = result.terminated | result.truncated
        self.lanes.returns += result.reward
        self.lanes.lengths += 1
        for lane in range(LANES):
            self.log.append_lane(lane, action[lane], result.obs)
            if ended[lane]:
                self.lanes.begin_episode(lane, result.obs)
        return result.obs["obs"].copy(), result.reward.copy()

    def starts(self) -> list[LaneStart]:
        """Where a new life goes on."""
        found = []
        for lane in range(LANES):
            position = self.log.position(lane)
            past = self.log.past(lane, position)
            assert past is not None
            found.append(LaneStart(position.episode, position=position, actions=past.actions, base=past.base))
        return found


@pytest.mark.parametrize("env", ["CartPole-v1", make_carts], ids=["one by one", "together"])
def test_lanes_go_on_in_the_middle_of_their_episodes(env) -> None:
    first = Played(env)
    for t in range(75):
        first.step(t)
    again = Played(env, tuple(first.starts()))
    list(again.lanes.restore(again_starts := first.starts()))
    assert again.lanes.continues.all()
    assert len(set(again.lanes.lengths.tolist())) > 2, "they have taken different numbers of steps"
    np.testing.assert_array_equal(again.lanes.lengths, first.lanes.lengths)
    np.testing.assert_array_equal(again.lanes.returns, first.lanes.returns)
    for lane, start in enumerate(again_starts):
        assert again.log.position(lane)[2:] == start.position[2:]
    for t in range(75, 150):
        for one, other in zip(first.step(t), again.step(t), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("env", ["CartPole-v1", make_carts], ids=["one by one", "together"])
def test_a_lane_that_cannot_be_restored_begins_anew_beside_the_others(env) -> None:
    first = Played(env)
    for t in range(75):
        first.step(t)
    obs, _ = first.step(75)
    starts = first.starts()
    longest = max(range(LANES), key=lambda lane: starts[lane].position.steps)
    shortest = min(range(LANES), key=lambda lane: starts[lane].position.steps)
    assert starts[shortest].position.steps >= 1
    # One has observed something else. One was longer than its log: it begins its next episode.
    there = starts[shortest].position
    starts[shortest] = replace(starts[shortest], position=there._replace(hash=there.hash + 1))
    starts[longest] = LaneStart(episode=starts[longest].position.episode + 1)
    again = Played(env, tuple(starts))
    list(again.lanes.restore(starts))
    others = [lane for lane in range(LANES) if lane not in (shortest, longest)]
    assert np.flatnonzero(again.lanes.continues).tolist() == others
    np.testing.assert_array_equal(again.lanes.obs["obs"][others], obs[others])
    for lane in (shortest, longest):
        assert again.lanes.lengths[lane] == again.lanes.returns[lane] == 0
        alone = open_source("CartPole-v1", vector=False, num_lanes=1)
        begun = alone.reset([episode_seed(3, lane, starts[lane].episode)])["obs"][0]
        np.testing.assert_array_equal(again.lanes.obs["obs"][lane], begun)


def test_lanes_of_an_environment_that_resets_itself_stay_at_their_reset() -> None:
    first = Played("CartPole-v1")
    for t in range(10):
        first.step(t)
    again = Played("tests.environments:make_clocks", tuple(first.starts()))
    before = again.lanes.obs["obs"].copy()
    assert list(again.lanes.restore(first.starts())) == []
    assert not again.lanes.continues.any()
    np.testing.assert_array_equal(again.lanes.obs["obs"], before)
