"""Opponents: who may be chosen and when, how often each is, and that a version acts as its run has trained it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from penstock.algorithms.ppo.spec import PPOConfig, init_state, spec
from penstock.envs.opponent_lane import OpponentLane
from penstock.envs.opponents import KEPT_VERSIONS, Candidate, NamedOpponent, Pool, PoolSettings, Versions
from penstock.kernels.actions import environment_array, to_environment
from penstock.kernels.noise import generate
from penstock.policies.acting import PolicySettings
from penstock.policies.critic_fields import deployed
from penstock.policies.exploration import Constant, Exploration
from penstock.registry import load
from penstock.saved_runs.checkpoints import save_checkpoint
from penstock.types import BackendSpec, Box, Discrete, Spaces

SPACES = Spaces((("obs", Box((3,), "float32", (-1.0,), (1.0,))),), Discrete(3))
BACKENDS = ["penstock.inference.native:build", "penstock.inference.onnx.backend:build"]


class At:
    """In place of a generator: always the same number."""

    def __init__(self, value):
        self.value = value

    def random(self):
        return self.value


def acting(model="mlp", build=BACKENDS[0], explore=0.0, spaces=SPACES):
    """Settings of an opponent, and the first parameters of its algorithm for a seed."""
    config = PPOConfig(model=model, hidden_sizes=(8,))
    found = deployed(spec(spaces, config).policy, spaces)
    exploration = Exploration(Constant(explore), 0, 1, 1.0)
    settings = PolicySettings(BackendSpec(build, (found.graph,)), found.graph, spaces, (), 0, exploration)

    def parameters(seed):
        state = init_state(spaces, config, seed)
        return {part.name: state[part.name] for part in found.graph.published()}

    return settings, found, parameters


def versions(run: Path, updates, every=10, delay=20) -> Versions:
    """A run folder with checkpoints of these updates. The seed of the parameters is the update."""
    settings, found, parameters = acting()
    for update in updates:
        facts = {"env": "X", "spaces": "Box", "algorithm": "ppo", "steps": update, "update": update}
        save_checkpoint(run, parameters(update), facts)
    return Versions(run, every, delay, settings, found)


def chosen(pool, at, scores=None):
    return pool.choose(At(at), scores or {})[0]


def test_a_version_plays_once_it_is_on_the_disk_for_certain(tmp_path):
    pool = Pool("test", PoolSettings("uniform", SPACES, versions=versions(tmp_path, [5, 10, 20, 30, 33])))
    found = {}
    for version in (0, 30, 31, 40, 41, 51):
        pool.take_version(version)
        found[version] = [one.update for one in pool.candidates()]
    # Random moves (-1) until there is one. Update 10 plays from 10 + 20 + 1 on. 5 and 33 are no multiples of 10.
    assert found == {0: [-1], 30: [-1], 31: [10], 40: [10], 41: [10, 20], 51: [10, 20, 30]}
    assert Pool("test", PoolSettings("uniform")).candidates() == [Candidate("random")]


def test_checkpoints_are_listed_only_when_a_version_may_have_come(tmp_path, monkeypatch):
    pool = Pool("test", PoolSettings("uniform", SPACES, versions=versions(tmp_path, [10, 20, 30])))
    listed = []
    monkeypatch.setattr("penstock.envs.opponents.list_checkpoints", lambda run: listed.append(pool._version) or [])
    for version in range(60):
        pool.take_version(version)
        pool.candidates()
    # Update u plays from u + 20 + 1 on.
    assert [version for version in listed if version > 21] == [31, 41, 51]


def test_without_a_version_of_the_learner_all_play(tmp_path):
    pool = Pool("test", PoolSettings("uniform", SPACES, random=True, versions=versions(tmp_path, [10, 20])))
    assert pool.candidates() == [Candidate("random"), Candidate("self", 10), Candidate("self", 20)]


def test_uniform_gives_each_the_same_room(tmp_path):
    pool = Pool("test", PoolSettings("uniform", SPACES, random=True, versions=versions(tmp_path, [10, 20, 30])))
    pool.take_version(100)
    assert [chosen(pool, at).update for at in (0.0, 0.24, 0.26, 0.49, 0.51, 0.74, 0.76, 0.99)] == [
        -1, -1, 10, 10, 20, 20, 30, 30,
    ]  # fmt: skip


def test_latest_gives_the_newest(tmp_path):
    pool = Pool("test", PoolSettings("latest", SPACES, versions=versions(tmp_path, [10, 20, 30])))
    pool.take_version(41)
    assert [chosen(pool, at).update for at in (0.0, 0.5, 0.99)] == [20] * 3


def test_hard_gives_room_by_what_is_not_won(tmp_path):
    pool = Pool("test", PoolSettings("hard", SPACES, versions=versions(tmp_path, [10, 20, 30])))
    pool.take_version(100)
    # 10 is beaten half of the time, 20 never, 30 was not met: (1 - 0.5)^2, 1^2, (1 - 0.5)^2, of 1.5.
    scores = {Candidate("self", 10): 0.5, Candidate("self", 20): 0.0}
    borders = [0.25 / 1.5, 1.25 / 1.5]
    places = [0.0, borders[0] - 1e-6, borders[0] + 1e-6, borders[1] - 1e-6, borders[1] + 1e-6, 0.999]
    assert [chosen(pool, at, scores).update for at in places] == [10, 10, 20, 20, 30, 30]
    # If all are beaten, all play.
    beaten = {Candidate("self", update): 1.0 for update in (10, 20, 30)}
    assert [chosen(pool, at, beaten).update for at in (0.1, 0.5, 0.9)] == [10, 20, 30]


def test_a_version_that_cannot_be_read_is_left_out(tmp_path, caplog):
    pool = Pool("test", PoolSettings("latest", SPACES, versions=versions(tmp_path, [10, 20, 30])))
    pool.take_version(100)
    (tmp_path / "checkpoints" / "update-00000030" / "state.safetensors").write_bytes(b"")
    assert chosen(pool, 0.0).update == 20
    assert "test: an opponent is left out: checkpoint" in caplog.text
    # It is not tried again.
    caplog.clear()
    pool.take_version(101)
    assert chosen(pool, 0.0).update == 20
    assert not caplog.text


def test_a_process_keeps_the_versions_that_it_used_last(tmp_path):
    updates = range(10, 10 * (KEPT_VERSIONS + 3), 10)
    pool = Pool("test", PoolSettings("uniform", SPACES, versions=versions(tmp_path, updates)))
    pool.take_version(10_000)
    places = [(place + 0.5) / len(updates) for place in range(len(updates))]
    opponents = [pool.choose(At(at), {})[1] for at in places]
    assert pool.choose(At(places[-1]), {})[1] is opponents[-1]
    assert pool.choose(At(places[0]), {})[1] is not opponents[0]


def lane_for(obs, spaces=SPACES):
    lane = OpponentLane(spaces, {"obs": ()}, "agent one", 2)
    return lane, lambda: lane.move(obs, {}, goes_on=True)


@pytest.mark.parametrize("build", BACKENDS)
def test_a_version_acts_with_the_parameters_of_its_checkpoint(tmp_path, build):
    of = versions(tmp_path, [10, 20])
    settings, _, parameters = acting(build=build)
    pool = Pool("test", PoolSettings("uniform", SPACES, versions=replace(of, settings=settings)))
    obs = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
    for at, update in ((0.2, 10), (0.8, 20)):
        _, opponent = pool.choose(At(at), {})
        backend = load(build)(settings.policy)
        backend.load(parameters(update))
        wanted = np.zeros(50, np.int64)
        given = {"obs": obs, "noise": np.zeros((50, 3), np.float32), "explore": np.zeros(50, np.float32)}
        backend.act(given, {"action": wanted})
        found = []
        for row in obs:
            lane, move = lane_for(row)
            lane.take(opponent.begin(lane, 0))
            found.append(int(move()))
        assert found == wanted.tolist()


@pytest.mark.parametrize("build", BACKENDS)
def test_an_opponent_samples_by_the_noise_of_its_episode(build):
    settings, _, parameters = acting(build=build, explore=1.0)
    pool = Pool("test", PoolSettings("uniform", SPACES, named=(NamedOpponent("champion", settings, parameters(1)),)))
    candidate, opponent = pool.choose(At(0.5), {})
    assert candidate == Candidate("champion")
    obs = np.array([0.1, -0.2, 0.3], np.float32)
    lane, move = lane_for(obs)
    lane.take(opponent.begin(lane, 77))
    found = [int(move()) for _ in range(30)]
    backend = load(build)(settings.policy)
    backend.load(parameters(1))
    wanted = []
    for step in range(30):
        # The place of the agent is the lane.
        noise = generate(settings.policy.noise, 77, np.array([2]), step)
        action = np.zeros(1, np.int64)
        backend.act({"obs": obs[None], "noise": noise, "explore": np.ones(1, np.float32)}, {"action": action})
        wanted.append(int(action[0]))
    assert found == wanted
    assert len(set(found)) > 1


@pytest.mark.parametrize("build", BACKENDS)
@pytest.mark.parametrize("model", ["lstm", "gru"])
def test_an_opponent_remembers_its_own_episode(build, model):
    settings, _, parameters = acting(model, build)
    pool = Pool("test", PoolSettings("uniform", SPACES, named=(NamedOpponent("champion", settings, parameters(3)),)))
    _, opponent = pool.choose(At(0.5), {})
    backend = load(build)(settings.policy)
    backend.load(parameters(3))
    seen = np.random.default_rng(1).uniform(-1, 1, (3, 8, 3)).astype(np.float32)
    lane = OpponentLane(SPACES, {"obs": ()}, "agent one", 0)
    for episode in seen:
        lane.take(opponent.begin(lane, 0))
        carry = {part.name: np.zeros((1, *part.shape), np.float32) for part in settings.policy.carry}
        for step, obs in enumerate(episode):
            action = np.zeros(1, np.int64)
            given = {"obs": obs[None], "first": np.array([step == 0]), **carry}
            given |= {"noise": np.zeros((1, 3), np.float32), "explore": np.zeros(1, np.float32)}
            backend.act(given, {"action": action, **carry})
            assert int(lane.move(obs, {}, goes_on=True)) == int(action[0])


def test_actions_come_in_the_units_of_the_environment():
    spaces = Spaces(SPACES.obs, Box((2,), "float32", (-4.0, 0.0), (4.0, 10.0)))
    settings, _, parameters = acting(spaces=spaces)
    pool = Pool("test", PoolSettings("uniform", spaces, named=(NamedOpponent("champion", settings, parameters(5)),)))
    obs = np.array([0.1, -0.2, 0.3], np.float32)
    lane, move = lane_for(obs, spaces)
    lane.take(pool.choose(At(0.0), {})[1].begin(lane, 0))
    given = move()
    backend = load(BACKENDS[0])(settings.policy)
    backend.load(parameters(5))
    action = np.zeros((1, 2), np.float32)
    question = {"obs": obs[None], "noise": np.zeros((1, 2), np.float32), "explore": np.zeros(1, np.float32)}
    backend.act(question, {"action": action})
    wanted = to_environment(action, spaces.action, environment_array(spaces.action, 1))[0]
    np.testing.assert_array_equal(given, wanted)
