"""EnvPool's own environments as a source: reset rows, seeds, names, and the error if it is not installed."""

import copy
import importlib.util
import warnings

import numpy as np
import pytest

import penstock
from penstock.envs.sources import open_source, probe
from penstock.errors import EnvError
from penstock.types import Discrete

CARTPOLE = "envpool:CartPole-v1"


def observations(seed, steps=30, num_lanes=4):
    """What each step observed, with every action 1: the pole falls after about ten steps."""
    lanes = open_source(CARTPOLE, vector=False, num_lanes=num_lanes, seed=seed)
    first = lanes.reset(range(num_lanes))["obs"].copy()
    action = np.ones(num_lanes, np.int64)
    results = [copy.deepcopy(lanes.step(action, lambda lane: 0)) for _ in range(steps)]
    lanes.close()
    return first, results


def test_what_is_known_of_a_pool():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        profile = probe(CARTPOLE)
    assert profile.name == CARTPOLE
    assert profile.kind == "vector"
    assert not profile.same_step
    assert not profile.restorable
    ((name, space),) = profile.spaces.obs
    assert (name, space.shape, space.dtype) == ("obs", (4,), "float32")
    assert profile.spaces.action == Discrete(2)


def test_an_ended_lane_is_reset_on_the_next_step():
    first, results = observations(seed=1)
    assert np.abs(first).max() <= 0.05
    for lane in range(4):
        ended = [t for t, result in enumerate(results) if result.terminated[lane]]
        begun = [t for t, result in enumerate(results) if result.reset[lane]]
        assert len(ended) >= 2
        assert begun == [t + 1 for t in ended if t + 1 < len(results)]
        for t in ended:
            assert abs(results[t].obs["obs"][lane, 2]) > 0.2, "the pole has fallen: no first observation yet"
        for t in begun:
            assert np.abs(results[t].obs["obs"][lane]).max() <= 0.05
            assert not results[t].terminated[lane]


def test_the_last_info_of_an_episode_is_read_before_its_lane_is_reset():
    lanes = open_source(CARTPOLE, vector=False, num_lanes=4, seed=1)
    metrics = lanes.follow(("elapsed_step",))
    lanes.reset(range(4))
    lengths, told = np.zeros(4, np.int64), 0
    for _ in range(30):
        result = lanes.step(np.ones(4, np.int64), lambda lane: 0)
        lengths = np.where(result.reset, 0, lengths + 1)
        assert metrics == {lane: (lengths[lane],) for lane in np.flatnonzero(result.terminated).tolist()}
        told += len(metrics)
    lanes.close()
    assert told >= 8


def test_one_seed_gives_the_same_episodes_and_every_lane_its_own():
    first, results = observations(seed=5)
    again, repeated = observations(seed=5)
    np.testing.assert_array_equal(first, again)
    for one, other in zip(results, repeated, strict=True):
        np.testing.assert_array_equal(one.obs["obs"], other.obs["obs"])
    assert len(np.unique(first[:, 0])) == 4
    neighbour, _ = observations(seed=6)
    assert not np.isin(first[:, 0], neighbour[:, 0]).any(), "the next seed shares no lane with this one"


def test_a_large_seed_is_taken():
    observations(seed=2**63 - 1, steps=1)


def test_a_task_that_is_not_there():
    with pytest.raises(EnvError, match=r"^EnvPool has no task 'CartPole-v9'; did you mean '?CartPole-v"):
        probe("envpool:CartPole-v9")


def test_where_envpool_is_not_installed(monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "envpool" else there(name, *rest)
    )
    with pytest.raises(EnvError, match=r"^environment envpool:CartPole-v1 needs EnvPool: .*'penstock\[envpool\]'$"):
        probe(CARTPOLE)


@pytest.mark.nightly  # Twelve seconds. Shorter: a lane that has ended is reset on the next step above.
def test_training_counts_no_reset_row(tmp_path):
    result = penstock.train(
        {
            "env": CARTPOLE,
            "num_envs": 8,
            "num_workers": 2,
            "num_steps": 64,
            "timesteps": 1000,
            "eval_episodes": 2,
            "log_dir": str(tmp_path),
        }
    )
    assert 1000 <= result.steps < 1000 + 8 * 64
    assert result.steps % (8 * 64), "rows on which lanes were reset are no steps"
