"""Running moments against arithmetic by hand, and the independence of their bits from the split into slots."""

import dataclasses

import numpy as np
import pytest

from penstock.ops.statistics import Moments, merge, merge_lanes, obs_statistics, same_values, value_statistics
from penstock.policies import Categorical, Deterministic, Encoding, Linear, Network, OwnModule, PolicyGraph


def moments(mean, variance, count):
    return Moments(np.asarray(mean, np.float64), np.asarray(variance, np.float64), np.asarray(count, np.int64))


EMPTY = moments(0.0, 1.0, 0)


def test_merge_by_hand():
    # {1, 3}: mean 2, variance 1. {8}: mean 8, variance 0. Together mean 4, variance (9 + 1 + 16) / 3.
    both = merge(moments(2.0, 1.0, 2), moments(8.0, 0.0, 1))
    assert both.mean == pytest.approx(4.0)
    assert both.variance == pytest.approx(26 / 3)
    assert both.count == 3


def test_merging_into_nothing_gives_the_sample():
    both = merge(EMPTY, moments(2.0, 5.0, 4))
    assert (both.mean, both.variance, both.count) == (2.0, 5.0, 4)
    assert merge(EMPTY, EMPTY) is EMPTY


def test_lanes_by_hand_leave_invalid_rows_out():
    # Lane 0 holds 1 and 3 (its 100 is not valid), lane 1 holds 8.
    values = np.array([[1.0, 8.0], [100.0, 100.0], [3.0, 100.0]])
    valid = np.array([[True, True], [False, False], [True, False]])
    both = merge_lanes(EMPTY, values, valid)
    assert both.mean == pytest.approx(4.0)
    assert both.variance == pytest.approx(26 / 3)


def test_many_merges_agree_with_one_pass():
    generator = np.random.default_rng(0)
    values = generator.normal(1e4, 0.1, (5, 64, 8, 3))
    running = moments(np.zeros(3), np.ones(3), 0)
    for part in values:
        running = merge_lanes(running, part, np.ones((64, 8), bool))
    flat = values.reshape(-1, 3)
    np.testing.assert_allclose(running.mean, flat.mean(0), rtol=1e-14)
    np.testing.assert_allclose(running.variance, flat.var(0), rtol=1e-7)


@pytest.mark.parametrize("split", [[8], [4, 4], [2, 2, 2, 2], [1] * 8])
def test_bits_do_not_depend_on_how_lanes_are_split(split):
    generator = np.random.default_rng(1)
    values = generator.normal(size=(100, 8, 1)).astype(np.float32)
    valid = generator.random((100, 8)) < 0.9
    whole = merge_lanes(moments(np.zeros(1), np.ones(1), 0), values, valid)
    running, first = moments(np.zeros(1), np.ones(1), 0), 0
    for lanes in split:
        part = slice(first, first + lanes)
        running = merge_lanes(running, np.ascontiguousarray(values[:, part]), np.ascontiguousarray(valid[:, part]))
        first += lanes
    assert running.mean.tobytes() == whole.mean.tobytes()
    assert running.variance.tobytes() == whole.variance.tobytes()


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="do not agree"):
        merge_lanes(EMPTY, np.zeros((3, 2)), np.ones((2, 2), bool))


def test_statistics_of_observations_are_those_of_the_rows_that_are_valid():
    encoding = (Encoding("obs.at", "one_hot", 2), Encoding("obs.of", "flat", 1))
    actor = Network("actor", (Linear(3, 2, 1.0),))
    graph = PolicyGraph(encoding, actor, None, Deterministic(2), normalize_obs=True, gives_value=False)
    state = {"obs_mean": np.zeros(3), "obs_var": np.ones(3), "obs_count": np.array(0)}
    # Two rows of one lane, a row that is not valid, and the first row of the next rollout.
    rollout = {
        "obs.at": np.array([[0], [1], [1], [1]]),
        "obs.of": np.array([[2.0], [6.0], [99.0], [99.0]], np.float32)[..., None],
        "valid": np.array([[True], [True], [False], [True]]),
    }
    found = obs_statistics(graph, state, rollout)
    assert found["obs_mean"].tolist() == [0.5, 0.5, 4.0]
    assert found["obs_var"].tolist() == [0.25, 0.25, 4.0]
    assert found["obs_count"] == 2
    assert obs_statistics(dataclasses.replace(graph, normalize_obs=False), {}, rollout) == {}


def critic_graph(last):
    """A policy with a critic whose value is the last output of its last layer."""
    encoding = (Encoding("obs", "flat", 2),)
    return PolicyGraph(encoding, Network("actor", (last,)), None, Categorical(1), normalize_value=True)


def value_state(**changed):
    return {"value_mean": np.array(0.0), "value_var": np.array(1.0), "value_count": np.array(0), **changed}


def test_statistics_of_values_are_those_of_the_rows_that_are_valid():
    rollout = {"target": np.array([[4.0], [16.0], [99.0]]), "valid": np.array([[True], [True], [False], [True]])}
    found = value_statistics(critic_graph(Linear(2, 2, 1.0)), value_state(), rollout)
    assert found == {"value_mean": pytest.approx(10.0), "value_var": pytest.approx(36.0), "value_count": 2}
    plain = dataclasses.replace(critic_graph(Linear(2, 2, 1.0)), normalize_value=False)
    assert value_statistics(plain, {}, {}) == {}


def test_values_stay_as_they_are_when_their_statistics_change():
    # From mean 0 and deviation 1 to 10 and 6. An output of 0 meant 0 before and is to mean 0: (0 - 10) / 6.
    # Column 0 is the head's output. It stays.
    graph = critic_graph(Linear(2, 2, 1.0))
    actor = np.array([7.0, 3.0, 7.0, 12.0, 7.0, 0.0], np.float32)
    after = value_state(actor=actor, value_mean=np.array(10.0), value_var=np.array(36.0))
    found = same_values(graph, value_state(), after)
    np.testing.assert_allclose(found["actor"], [7.0, 0.5, 7.0, 2.0, 7.0, -10 / 6], rtol=1e-6)
    assert found["actor"].dtype == np.float32
    assert actor[1] == 3.0


def test_the_first_returns_do_not_make_values_run_away():
    """A critic learns nothing here, and each batch's targets are mostly its values. So its value may not change.

    With new statistics alone, a value of 1 and returns around -100 would end far outside of all returns.
    """
    graph = critic_graph(Linear(2, 2, 1.0))
    state = value_state(actor=np.array([0, 0, 0, 0, 0, 1.0], np.float32))

    def value():
        return state["actor"][-1] * np.sqrt(state["value_var"] + 1e-8) + state["value_mean"]

    for _ in range(20):
        target = 0.2 * np.array([[-200.0], [0.0]]) + 0.8 * value()
        before = dict(state)
        state |= value_statistics(graph, state, {"target": target, "valid": np.ones((3, 1), bool)})
        state |= same_values(graph, before, state)
        assert value() == pytest.approx(1.0, abs=1e-3)


def test_a_module_of_ones_own_keeps_its_layers():
    module = OwnModule("a:b", 1, True, ("obs",), (("w", (2,)),), (), None, "")
    after = value_state(actor=np.ones(2), value_mean=np.array(10.0))
    assert same_values(critic_graph(module), value_state(), after) == {}
    plain = dataclasses.replace(critic_graph(Linear(2, 2, 1.0)), normalize_value=False)
    assert same_values(plain, {}, {}) == {}
