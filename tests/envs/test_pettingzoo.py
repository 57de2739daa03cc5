"""Environments of PettingZoo: each agent is a lane, and what happens while it is dead counts for nothing."""

import importlib.util

import gymnasium
import numpy as np
import pytest

import penstock
from penstock.envs.pettingzoo import _check_whole_numbers, agents_of
from penstock.envs.rewards import RewardedSource, find_reward
from penstock.envs.sources import open_source, probe
from penstock.errors import BadDataError, ConfigError, EnvError, SpaceError
from penstock.kernels.rollout import rollout_writer
from penstock.nodes.evaluation.episodes import Episode, _Playing
from penstock.ops.returns import advantages
from penstock.program.rollout import rollout_specs
from penstock.seeding import episode_seed
from penstock.types import EnvRecipe
from tests.team_environments import Lives, Signals

TEAM = "pettingzoo:tests.team_environments"


def lives(**arguments):
    source = open_source(EnvRecipe(f"{TEAM}:Lives", arguments, ()), False, 3)
    return source, source.reset([5, 6, 7])


def rows(steps):
    """Of some steps of ``Lives``: observation, reward, terminated, truncated, reset."""
    source, _ = lives()
    for _ in range(steps):
        result = source.step(np.zeros(3, np.int64), lambda lane: 0)
        yield result.obs["obs"][:, 0].tolist(), *(part.tolist() for part in result[1:5])


def test_a_lane_without_an_agent_waits_for_the_next_episode():
    none = [False] * 3
    # The lanes are short, long, late. ``late`` has not come yet, and is shown what another agent sees.
    assert list(rows(7)) == [
        ([1, 1, 0], [1, 1, 0], none, none, [False, False, True]),
        ([2, 2, 0], [1, 1, 0], [True, False, False], none, [False, False, True]),
        ([2, 3, 3], [0, 1, 0], none, none, [True, False, True]),
        ([2, 4, 4], [0, 1, 1], none, none, [True, False, False]),
        ([2, 5, 5], [0, 1, 1], [False, False, True], [False, True, False], [True, False, False]),
        # The next episode begins in a step of its own.
        ([0, 0, 5], [0, 0, 0], none, none, [True, True, True]),
        ([1, 1, 5], [1, 1, 0], none, none, [False, False, True]),
    ]


def test_nothing_is_learned_from_a_lane_without_an_agent():
    source, first = lives()
    specs = rollout_specs(source.spaces, (), 6, 3, same_step=False)
    slot = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}
    slot["obs"][0] = first["obs"]
    writer = rollout_writer(
        slot, ("obs",), same_step=False, running_return=np.zeros(3), running_length=np.zeros(3, np.int64)
    )
    for t in range(6):
        writer.store(t, source.step(np.zeros(3, np.int64), lambda lane: 0))
    yes, no = True, False
    expected = [[yes, yes, no], [yes, yes, no], [no, yes, no], [no, yes, yes], [no, yes, yes], [no, no, no]]
    assert slot["valid"][:6].tolist() == expected
    count = int(slot["episode_count"])
    assert slot["episode_return"][:count].tolist() == [2.0, 5.0, 2.0]
    assert slot["episode_length"][:count].tolist() == [2, 5, 2]
    slot["value"] = np.full((7, 3), 100.0, np.float32)
    slot["value"][5, 1] = 7.0  # of the last observation of ``long``, which is truncated
    advantage, target = advantages(slot, gamma=1.0, gae_lambda=1.0)
    # Terminated: 1 + 1, and nothing behind it. Truncated: five rewards and 7.
    assert target[0].tolist() == [2.0, 12.0, 100.0]
    # Rows without an agent get no advantage, and ``late`` learns from its own two steps.
    assert advantage[:, 0].tolist() == [-98.0, -99.0, 0.0, 0.0, 0.0, 0.0]
    assert target[3:5, 2].tolist() == [2.0, 1.0]


def test_an_evaluation_counts_episodes_of_agents():
    source, _ = lives()
    numbers = iter(range(5))
    metrics = source.follow(("clock",))
    playing = _Playing(
        source, "test", lambda number: 0, lambda lane: next(numbers, None), None, metrics=metrics, skips=False
    )
    ended = []
    while playing.busy():
        ended += list(playing.stepped(source.step(np.zeros(3, np.int64), playing.next_seed)))
    # ``short`` dies by step 2, the others by step 5.
    assert [(one.number, one.episode_return, one.metrics) for one in ended if isinstance(one, Episode)] == [
        (0, 2.0, (2.0,)),
        (1, 5.0, (5.0,)),
        (2, 2.0, (5.0,)),
        (3, 2.0, (2.0,)),
        (4, 5.0, (5.0,)),
    ]


def test_seeds_depend_on_the_environment_and_its_episode():
    made = []

    def make():
        made.append(Lives())
        return made[-1]

    env = agents_of("tests.team_environments:Lives")(num_envs=3)
    env._environments[0].env = make()
    env.reset(seed=[5, 6, 7])
    for _ in range(13):
        env.step(np.zeros(3, np.int64))
    assert made[0].seeds == [episode_seed(5, 0, episode) for episode in range(3)]


def test_masks_come_from_the_info_of_each_agent():
    profile = probe(EnvRecipe(f"{TEAM}:Lives", {"masks": True}, ()), masks=True)
    assert profile.spaces.mask == "action_mask"
    assert (profile.kind, profile.agents, profile.restorable, profile.same_step) == ("vector", 3, False, False)
    source = open_source(EnvRecipe(f"{TEAM}:Lives", {"masks": True}, ()), False, 6, mask="action_mask", masks=True)
    assert source.reset(range(6))["action_mask"].tolist() == [[1, 0], [1, 0], [0, 0]] * 2
    for _ in range(3):
        result = source.step(np.zeros(6, np.int64), lambda lane: 0)
    assert result.obs["action_mask"].tolist() == [[0, 0], [1, 0], [1, 0]] * 2


def test_lanes_are_rounded_up_to_whole_environments():
    source = open_source(EnvRecipe(f"{TEAM}:Signals", {"size": 3}, ()), False, 4)
    assert source.num_lanes == 6
    assert source.reset(range(6))["obs"].shape == (6, 2)


def test_a_module_names_its_environment_as_pettingzoo_does():
    for name in (TEAM, f"{TEAM}:Signals", f"{TEAM}:in_turns"):
        profile = probe(name)
        assert (profile.name, profile.agents) == (name, 2)


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        (f"{TEAM}:Others", SpaceError, r"action_space of agent_0 is Discrete\(2\), that of agent_1 is Discrete\(3\)"),
        (f"{TEAM}:TurnsEnv", EnvError, "lets its agents act in turns"),
        (f"{TEAM}:np.zeros", EnvError, "cannot be made"),
        (f"{TEAM}:dict", EnvError, "has no dict"),
        ("pettingzoo:tests.environments:ClockEnv", EnvError, "which is no ParallelEnv and no AECEnv"),
        ("pettingzoo:tests.environments", EnvError, "has no parallel_env and no env; write pettingzoo:tests.environ"),
        ("pettingzoo:tests.no_such", EnvError, "no module named tests.no_such"),
        ("tests.team_environments:Signals", EnvError, "write pettingzoo:tests.team_environments:Signals"),
    ],
)
def test_a_mistake_is_one_line(name, kind, text):
    with pytest.raises(kind, match=text) as refused:
        probe(name)
    assert "\n" not in str(refused.value)


def test_an_environment_of_several_agents_that_is_given_as_an_object_needs_a_name():
    with pytest.raises(EnvError, match=r"^Signals returned .*: write pettingzoo:my_module:NAME, by the name of what "):
        probe(Signals)


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvError, match=r"pip install 'penstock\[pettingzoo\]'"):
        agents_of("tests.team_environments")


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ({"_seen": lambda agents: {}}, "agent short is alive, but it gets no observation"),
        ({"_seen": lambda agents: {agent: np.zeros(2) for agent in agents}}, "does not fit its space"),
        ({"DIES": {**Lives.DIES, "long": 1}, "_seen": lambda agents: {"short": [1.0]}}, "no last observation"),
        ({"_seen": dict.fromkeys}, "agent short is alive, but it gets no observation"),
        ({"possible_agents": ["new"], "BORN": {"new": 1}, "DIES": {**Lives.DIES, "new": 9}}, "has the agent new"),
    ],
    ids=["no observation", "another shape", "no last observation", "None", "unknown agent"],
)
def test_an_environment_that_breaks_the_contract_is_named(broken, text):
    env = agents_of("tests.team_environments:Lives")(num_envs=3)
    env.reset()
    for name, value in broken.items():
        setattr(env._environments[0].env, name, value)
    with pytest.raises((BadDataError, EnvError), match=text):
        env.step(np.zeros(3, np.int64))


@pytest.mark.parametrize("given", [np.array([300, 2], np.uint16), np.array([2**33, 1]), np.array([0.5, 0.0])])
def test_numbers_that_the_dtype_does_not_hold_are_refused(given):
    space = gymnasium.spaces.Dict({"a": gymnasium.spaces.Box(0, 255, (2,), np.uint8)})
    with pytest.raises(ValueError, match="does not fit uint8"):
        _check_whole_numbers(space, {"a": given})
    _check_whole_numbers(space, {"a": np.array([255, 0])})


@pytest.mark.parametrize("flag", ["False", [False], float("nan")])
def test_an_end_that_is_no_truth_value_is_named(flag):
    env = agents_of("tests.team_environments:Lives")(num_envs=3)
    env.reset()
    own = env._environments[0].env
    step = own.step
    own.step = lambda actions: (*step(actions)[:2], {"short": flag}, *step(actions)[3:])
    with pytest.raises(BadDataError, match=r"terminated of agent short of .*, neither true nor false"):
        env.step(np.zeros(3, np.int64))


def test_an_environment_that_keeps_ended_agents_in_its_list_begins_anew():
    env = agents_of("tests.team_environments:Signals")(num_envs=2)
    env.reset(seed=[0, 1])
    inner, step = env._environments[0].env, env._environments[0].env.step

    def keeping(actions):
        result = step(actions)
        inner.agents = list(inner.possible_agents)
        return result

    inner.step = keeping
    ends = [env.step(np.zeros(2, np.int64))[2].tolist() for _ in range(6)]
    assert ends == [[False] * 2] * 4 + [[True] * 2, [False] * 2]
    assert inner.steps == 0


SMALL = {"num_envs": 6, "num_steps": 32, "mini_batch_size": 64, "timesteps": 192, "eval_episodes": 3}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"num_envs": 7}, "--num_envs 7 counts lanes, and .* has 3 agents, a lane each: .* such as --num_envs 9"),
        ({"num_envs": 9, "num_workers": 9}, "a multiple of 3 times --num_workers, such as --num_envs 27"),
        ({"wrap": ["tests.environments:ClockEnv"]}, "--wrap cannot wrap"),
    ],
)
def test_each_process_has_whole_environments(tmp_path, more, text):
    given = {"env": f"{TEAM}:Signals", "env_args": {"size": 3}, "log_dir": str(tmp_path), **SMALL, **more}
    with pytest.raises((ConfigError, EnvError), match=text):
        penstock.train(given, quiet=True)


def test_a_team_learns_one_policy(tmp_path, shared_templates):
    """Guessing gives 1.25 of 5."""
    settings = {**SMALL, "env": f"{TEAM}:Signals", "num_envs": 8, "timesteps": 6000, "lr": 0.01, "eval_episodes": 20}
    result = penstock.train({**settings, "num_workers": 2, "log_dir": str(tmp_path)}, quiet=True)
    assert result.evaluation.mean_return > 4.5
    assert result.evaluation.episodes == 20
    assert result.evaluation.mean_length == Signals.LENGTH


def test_only_possible_actions_are_taken(tmp_path, shared_templates):
    """The environment fails if one is not."""
    settings = {**SMALL, "env": f"{TEAM}:MaskedPair", "timesteps": 2000, "lr": 0.01, "num_workers": 1}
    result = penstock.train({**settings, "log_dir": str(tmp_path)}, quiet=True)
    assert result.evaluation.mean_return > 2.0


@pytest.mark.parametrize("model", ["mlp", "gru"])
def test_a_run_with_agents_that_die_early_goes_on_after_its_end(tmp_path, shared_templates, model):
    settings = {**SMALL, "env": f"{TEAM}:Lives", "num_workers": 2, "eval_interval": 1, "model": model}
    first = penstock.train({**settings, "log_dir": str(tmp_path)}, quiet=True)
    # Nine of 18 rows have an agent, so it takes two batches of 6 x 32 rows. Only rows with an agent count.
    assert 192 <= first.steps < 2 * 6 * 32
    assert set(first.evaluation.returns) <= {2.0, 5.0}
    more = penstock.resume(first.run_folder, timesteps=first.steps + 192, quiet=True)
    assert more.steps >= first.steps + 192


def test_a_film_shows_the_first_environment(tmp_path, shared_templates):
    settings = {**SMALL, "env": f"{TEAM}:Signals", "num_workers": 1, "eval_episodes": 0, "log_dir": str(tmp_path)}
    result = penstock.train(settings, quiet=True)
    watched = penstock.watch(result.run_folder, episodes=2)
    assert watched.lengths == (Signals.LENGTH,) * 2
    assert watched.picture.read_bytes()[:3] == b"GIF"


def test_a_replay_table_keeps_agents_that_die_early(tmp_path, shared_templates):
    settings = {"env": f"{TEAM}:Lives", "algo": "dqn", "num_envs": 3, "num_workers": 1, "timesteps": 400}
    result = penstock.train({**settings, "min_rows": 100, "eval_episodes": 3, "log_dir": str(tmp_path)}, quiet=True)
    assert result.evaluation.episodes == 3


def double(reward):
    return 2 * reward


def test_an_own_reward_is_each_agents_own():
    source, _ = lives()
    rewarded = RewardedSource(source, find_reward("tests.envs.test_pettingzoo:double"), "test", 0)
    rewarded.reset([5, 6, 7])
    found = []
    for _ in range(6):
        rewarded.step(np.zeros(3, np.int64), lambda lane: 0)
        found.append((rewarded.shaped.tolist(), list(rewarded.ended)))
    assert found == [
        ([2, 2, 0], []),
        ([2, 2, 0], [4.0]),
        ([0, 2, 0], []),
        ([0, 2, 2], []),
        ([0, 2, 2], [10.0, 4.0]),
        ([0, 0, 0], []),
    ]
