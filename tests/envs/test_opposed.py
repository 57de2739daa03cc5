"""Opposed: one agent learns, opponents play the others. Who sees what, when the episode ends, and how it is scored."""

import numpy as np
import pytest

from penstock.envs.opponents import Candidate, Pool, PoolSettings
from penstock.envs.opposed import LEARNER, Opposed
from penstock.envs.sources import open_source, probe
from penstock.errors import BadDataError, EnvError
from penstock.types import Box, Discrete, EnvRecipe, Spaces
from tests.team_environments import Duel, Lives, MaskedPair

SPACES = Spaces((("obs", Box((2,), "float32", (0.0,), (9.0,))),), Discrete(2))
CLOCK = Spaces((("obs", Box((1,), "float32", (0.0,), (10.0,))),), Discrete(2))


class Scripted:
    """Acts by a list, and remembers what it saw: the observation and ``first``."""

    def __init__(self, actions):
        self.actions = actions
        self.seen = []
        self.seeds = []

    def begin(self, lane, seed):
        self.seeds.append((lane.number.tolist(), seed))

        def act(step):
            self.seen.append((lane.rows["obs"][0, 0].tolist(), bool(lane.rows["first"][0, 0])))
            return np.array([self.actions[step]])

        return act


class ScriptedPool(Pool):
    """Has one opponent."""

    def __init__(self, opponent, spaces=SPACES):
        super().__init__("test", PoolSettings("uniform", spaces))
        self.opponent = opponent
        self.scores = []

    def choose(self, random, scores):
        self.scores.append(dict(scores))
        return Candidate("other"), self.opponent


def played(env, actions, seed=0):
    """The steps of an episode: observation, reward, terminated and info of the learner."""
    obs, _ = env.reset(seed=seed)
    found = [obs[LEARNER].tolist()]
    for action in actions:
        obs, reward, terminated, _, info = env.step({LEARNER: action})
        found.append((obs[LEARNER].tolist(), reward[LEARNER], terminated[LEARNER], info[LEARNER]))
    return found


def side_of(env, seed):
    """The agent that learns in the episode of this seed."""
    env.reset(seed=seed)
    return env._learner


def seed_of(env, side):
    """A seed whose episode is learned by this agent."""
    return next(seed for seed in range(100) if side_of(env, seed) == side)


def test_the_learner_is_one_agent_and_the_opponent_the_other():
    opponent = Scripted([1, 0])
    duel = Duel()
    env = Opposed("test", ScriptedPool(opponent), duel)
    assert env.possible_agents == [LEARNER]
    seed = seed_of(env, "two")
    first, *rest = played(env, [1, 1], seed)
    # An observation is the step and the place of the agent. The reward: the own action minus the other's.
    assert first == [0, 1]
    assert [(obs, reward, over) for obs, reward, over, _ in rest] == [([1, 1], 0.0, False), ([2, 1], 1.0, True)]
    assert duel.taken == [{"one": 1, "two": 1}, {"one": 0, "two": 1}]
    # The opponent sees what agent one sees, and begins its episode once.
    assert opponent.seen == [([0, 0], True), ([1, 0], False)]
    assert opponent.seeds == [([0], opponent.seeds[0][1])]
    assert env.agents == []


def test_both_sides_are_learned_and_the_seed_says_which():
    env = Opposed("test", ScriptedPool(Scripted([0, 0])), Duel())
    sides = [side_of(env, seed) for seed in range(40)]
    assert sides == [side_of(env, seed) for seed in range(40)]
    assert 10 < sides.count("one") < 30


def test_the_score_is_1_for_a_win_a_half_for_a_draw_0_for_a_loss():
    pool = ScriptedPool(Scripted([0, 1]))
    env = Opposed("test", pool, Duel())
    ends = [played(env, actions)[-1][-1] for actions in ([1, 1], [0, 1], [0, 0], [1, 0])]
    scores = [info["score/all"] for info in ends]
    assert scores == [1.0, 0.5, 0.0, 0.5]
    assert [info["score/other"] for info in ends] == scores
    # What else the info says stays.
    assert [info["steps"] for info in ends] == [2] * 4
    env.reset(seed=0)
    # The mean begins at a half, which counts as one episode: (0.5 + 1) / 2, (0.5 + 1 + 0.5) / 3, ...
    means = [before.get(Candidate("other")) for before in pool.scores]
    assert means == [None, 0.75, pytest.approx(2.0 / 3.0), pytest.approx(0.5), pytest.approx(0.5)]


def test_a_win_by_little_of_large_returns_is_a_win():
    env = Opposed("test", ScriptedPool(Scripted([0])), Duel())
    env.reset(seed=0)
    env._returns = {"one": 2_000_001.0, "two": 2_000_000.0}
    assert env._scored()["score/all"] == float(env._learner == "one")


def test_an_opponent_that_comes_again_begins_an_episode_of_its_own():
    class Returning(Duel):
        """Agent two is away at the second step."""

        def _seen(self):
            return {agent: row for agent, row in super()._seen().items() if agent in self.agents}

        def step(self, actions):
            found = super().step({"one": 0, "two": 0, **actions})
            self.agents = ["one"] if self.steps == 1 else ["one", "two"]
            seen = self._seen()
            return seen, *({agent: part[agent] for agent in seen} for part in found[1:])

    opponent = Scripted([0, 0, 0])
    opposed = Opposed("test", ScriptedPool(opponent), Returning(length=9))
    opposed.reset(seed=seed_of(opposed, "one"))
    opponent.seen.clear()
    for _ in range(4):
        opposed.step({LEARNER: 0})
    assert [first for _, first in opponent.seen] == [True, True, False]


def test_a_mean_forgets_scores_of_long_ago():
    pool = ScriptedPool(Scripted([0, 0]))
    env = Opposed("test", pool, Duel())
    for _ in range(200):
        played(env, [0, 1])
    assert pool.scores[-1][Candidate("other")] > 0.99
    pool.opponent.actions = [1, 1]
    played(env, [0, 0])
    before = pool.scores[-1][Candidate("other")]
    env.reset(seed=0)
    # A share of 0.05, not of 1 / 202.
    assert pool.scores[-1][Candidate("other")] == pytest.approx(0.95 * before, abs=1e-3)


def test_the_episode_ends_with_the_agent_that_learns():
    env = Opposed("test", ScriptedPool(Scripted([0] * 9), CLOCK), Lives())
    short, long = seed_of(env, "short"), seed_of(env, "long")
    env.reset(seed=short)
    ends = [env.step({LEARNER: 0})[2:4] for _ in range(2)]
    assert ends == [({LEARNER: False}, {}), ({LEARNER: True}, {})]
    env.reset(seed=long)
    *_, (_, truncated, info) = [env.step({LEARNER: 0})[2:] for _ in range(5)]
    assert truncated == {LEARNER: True}
    # It has 5, ``short`` had 2, and ``late``, which came later, 2.
    assert info[LEARNER] == {"clock": 5, "score/all": 1.0, "score/other": 1.0}
    # ``late`` is not there at the reset, so it never learns.
    assert {side_of(env, seed) for seed in range(60)} == {"short", "long"}


def test_a_source_has_one_lane_for_each_environment():
    recipe = EnvRecipe("pettingzoo:tests.team_environments:Duel", {}, (), PoolSettings("uniform", SPACES, random=True))
    profile = probe(recipe)
    assert (profile.agents, profile.spaces) == (1, SPACES)
    source = open_source(recipe, False, 3)
    follows = source.follow(("score/all", "score/random"))
    source.take_version(4)
    obs = source.reset([5, 6, 7])["obs"]
    assert obs[:, 0].tolist() == [0, 0, 0]
    resets = [source.step(np.ones(3, np.int64), lambda lane: 0).reset.tolist() for _ in range(3)]
    # It resets in a step of its own.
    assert resets == [[False] * 3, [False] * 3, [True] * 3]
    assert follows == {}
    for _ in range(2):
        source.step(np.ones(3, np.int64), lambda lane: 0)
    # Nobody wins against one who always shows 1.
    assert {lane: numbers[0] for lane, numbers in follows.items()}.keys() == {0, 1, 2}
    assert {score for numbers in follows.values() for score in numbers} <= {0.5, 1.0}


def test_a_random_opponent_keeps_to_the_mask():
    """The environment fails if an action is masked."""
    mask = "obs.action_mask"
    recipe = EnvRecipe("pettingzoo:tests.team_environments:MaskedPair", {}, ())
    spaces = probe(recipe, masks=True).spaces
    pool = PoolSettings("uniform", spaces, random=True)
    source = open_source(EnvRecipe(recipe.env, {}, (), pool), False, 4, mask=mask, masks=True)
    obs = source.reset(range(4))
    for _ in range(30):
        allowed = obs[mask].argmax(axis=1)
        obs = source.step(allowed, lambda lane: 0).obs


def test_an_opponent_is_as_random_as_its_episode():
    def actions(seed):
        env = Opposed("test", Pool("test", PoolSettings("uniform", SPACES, random=True)), Duel(length=20))
        played(env, [1] * 20, seed)
        return [given["one" if env._learner == "two" else "two"] for given in env._env.taken]

    assert actions(3) == actions(3)
    assert actions(3) != actions(4)
    assert set(actions(3)) == {0, 1}


def test_an_agent_without_an_observation_is_named():
    class Blind(Duel):
        def _seen(self):
            return {agent: row for agent, row in super()._seen().items() if agent == self.sees}

    env = Blind()
    opposed = Opposed("test", ScriptedPool(Scripted([0])), env)
    env.sees = "one"
    opposed.reset(seed=next(seed for seed in range(100) if side_of(opposed, seed) == "one"))
    with pytest.raises(BadDataError, match="agent two is alive, but it gets no observation"):
        opposed.step({LEARNER: 0})


def test_an_agent_never_acts_on_an_old_observation():
    """Agent two sees the first state, and is shown nothing after it although it is alive."""

    class Blinded(Duel):
        def _seen(self):
            return {agent: row for agent, row in super()._seen().items() if agent == "one" or self.steps == 0}

    opposed = Opposed("test", ScriptedPool(Scripted([0, 0, 0])), Blinded(length=3))
    opposed.reset(seed=seed_of(opposed, "one"))
    opposed.step({LEARNER: 0})
    with pytest.raises(BadDataError, match="agent two is alive, but it gets no observation"):
        opposed.step({LEARNER: 0})


def test_an_environment_without_others_is_refused():
    with pytest.raises(EnvError, match="has one agent only: leave out --opponents"):
        probe(EnvRecipe("pettingzoo:tests.team_environments:Signals", {"size": 1}, (), PoolSettings("uniform")))
    with pytest.raises(EnvError, match=r"--opponents play agents of environments of PettingZoo .*CartPole-v1 is none"):
        probe(EnvRecipe("CartPole-v1", {}, (), PoolSettings("uniform")))


def test_an_environment_that_is_refused_is_closed(monkeypatch):
    closed = []

    def close(env):
        closed.append(env)

    monkeypatch.setattr("tests.team_environments.Signals.close", close, raising=False)
    recipe = EnvRecipe("pettingzoo:tests.team_environments:Signals", {"size": 1}, (), PoolSettings("uniform"))
    with pytest.raises(EnvError, match="has one agent only"):
        open_source(recipe, False, 1)
    assert len(closed) == 1


def test_nobody_steps_it_before_the_run_is_planned():
    source = open_source(EnvRecipe("pettingzoo:tests.team_environments:Duel", {}, (), PoolSettings("hard")), False, 1)
    source.reset([0])
    with pytest.raises(EnvError, match="its opponents are known to a run only"):
        source.step(np.zeros(1, np.int64), lambda lane: 0)


def test_masks_of_an_ended_agent_may_be_missing():
    """An environment may keep an ended agent in its list, and ask for its action."""

    class Kept(MaskedPair):
        def step(self, actions):
            self.agents = list(self.possible_agents)
            obs, rewards, _, truncations, infos = super().step(dict.fromkeys(self.agents, 3))
            self.agents = list(self.possible_agents)
            for agent in obs:
                obs[agent]["action_mask"][:] = self.steps < 1 or agent == self.ends
            return obs, rewards, {agent: agent != self.ends for agent in self.agents}, truncations, infos

    spaces = probe(EnvRecipe("pettingzoo:tests.team_environments:MaskedPair", {}, ()), masks=True).spaces
    env = Kept()
    opposed = Opposed("test", Pool("test", PoolSettings("uniform", spaces, random=True)), env)
    opposed.reset(seed=0)
    env.ends = opposed._learner
    for _ in range(3):
        opposed.step({LEARNER: 3})
    assert opposed.agents == [LEARNER]
