"""Statistics of values change before a batch is learned from, all others after it."""

import numpy as np
import pytest

from penstock.ops.statistics import value_statistics
from penstock.policies import Categorical, Encoding, Linear, Network, PolicyGraph
from penstock.updates.running import RunningStatistics

GRAPH = PolicyGraph(
    (Encoding("obs", "flat", 1),),
    Network("actor", (Linear(1, 2, 1.0),)),
    Network("critic", (Linear(1, 1, 1.0),)),
    Categorical(2),
    normalize_obs=True,
    normalize_value=True,
)
ROLLOUT = {"target": np.array([[4.0], [16.0]]), "valid": np.ones((3, 1), bool)}
"""Their mean is 10, their deviation 6."""


def merge(graph, state, rollout):
    return {**value_statistics(graph, state, rollout), "obs_mean": state["obs_mean"] + 1.0}


def state(count: int):
    """A critic that gives 3 for an observation of 0, in units of mean 0 and deviation 1."""
    return {
        "critic": np.array([1.0, 3.0], np.float32),
        "value_mean": np.array(0.0),
        "value_var": np.array(1.0),
        "value_count": np.array(count),
        "obs_mean": np.array(5.0),
    }


def running() -> RunningStatistics:
    return RunningStatistics(GRAPH, lambda before, rollout: merge(GRAPH, before, rollout))


def test_other_statistics_are_held_back_and_given_once():
    merged = running()
    before = merged.merged(state(0), [ROLLOUT, ROLLOUT])
    assert (before["value_mean"], before["value_count"]) == (pytest.approx(10.0), 4)
    assert "obs_mean" not in before
    # Two rollouts, each counted by one.
    assert merged.held_back() == {"obs_mean": 7.0}
    assert merged.held_back() == {}


def test_a_layer_that_no_training_has_made_stays_and_any_other_keeps_its_values():
    assert "critic" not in running().merged(state(0), [ROLLOUT])
    trained = running().merged(state(0), [ROLLOUT], learned=True)
    # 3 meant 3, and is to mean it: (3 - 10) / 6.
    np.testing.assert_allclose(trained["critic"], [1 / 6, -7 / 6], rtol=1e-5)
    assert "critic" in running().merged(state(2), [ROLLOUT])
