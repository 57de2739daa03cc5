"""Recurrent layers natively: row by row the same bits, bound or not, and a carry that is written in place."""

import numpy as np
import pytest

from penstock.kernels.level import levels
from penstock.kernels.noise import generate
from penstock.kernels.policy import PolicyKernel
from penstock.policies import (
    GRU,
    LSTM,
    Activation,
    Categorical,
    Dueling,
    Encoding,
    EpsilonGreedy,
    Linear,
    Network,
    PolicyGraph,
)
from penstock.policies.native import layout_of, supports, supports_update
from tests.inference import reference
from tests.kernels.test_policy import loaded


def acted(graph, kernel, given, carry):
    """The outputs and the next carry; ``carry`` stays as it is."""
    n = len(given["explore"])
    out = reference.outputs_for(graph, n) | {name: np.zeros_like(values) for name, values in carry.items()}
    kernel.act({**given, **carry}, out)
    return out


def given_to(graph, generator, n):
    """Observations, noise, ``explore`` and ``first`` of n lanes, two of three in the middle of an episode."""
    return {
        **reference.observations(graph, generator, n),
        "noise": reference.noise_of(graph, generator, n),
        "explore": generator.uniform(0.0, 1.0, n).astype(np.float32),
        "first": generator.random(n) < 0.3,
    }


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", reference.MEMORIES)
def test_a_row_does_not_depend_on_how_many_are_in_the_call(name, level):
    graph, generator = reference.MEMORIES[name], np.random.default_rng(5)
    kernel, _ = loaded(graph, level)
    given, carry = given_to(graph, generator, 70), reference.carry_of(graph, generator, 70)
    whole = acted(graph, kernel, given, carry)
    for n in range(1, 71):
        rows = slice((70 - n) // 2, (70 - n) // 2 + n)
        part = acted(graph, kernel, *({key: values[rows] for key, values in of.items()} for of in (given, carry)))
        for output, values in part.items():
            np.testing.assert_array_equal(values, whole[output][rows])


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", reference.MEMORIES)
def test_every_level_agrees_with_float64(name, level):
    graph, generator = reference.MEMORIES[name], np.random.default_rng(6)
    kernel, published = loaded(graph, level)
    given, carry = given_to(graph, generator, 70), reference.carry_of(graph, generator, 70)
    behind = reference.begun(carry, given["first"])
    expected = reference.act(graph, published, given, given["noise"], given["explore"], behind)
    for output, values in acted(graph, kernel, given, carry).items():
        np.testing.assert_allclose(values, {**expected, **behind}[output], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("cell", [LSTM, GRU])
@pytest.mark.parametrize("inputs", [1, 3, 16, 17])
@pytest.mark.parametrize("size", [1, 4, 7, 8, 15, 16, 33, 130])
def test_cells_of_any_size(cell, inputs, size):
    network = Network("actor", (cell(inputs, size), Linear(size, 3, 1.0)))
    graph, generator = (
        PolicyGraph((Encoding("obs", "flat", inputs),), network, None, Categorical(2)),
        np.random.default_rng(size),
    )
    kernel, published = loaded(graph)
    given, carry = given_to(graph, generator, 7), reference.carry_of(graph, generator, 7)
    behind = reference.begun(carry, given["first"])
    reference.act(graph, published, given, given["noise"], given["explore"], behind)
    out = acted(graph, kernel, given, carry)
    for key, values in behind.items():
        np.testing.assert_allclose(out[key], values, rtol=2e-5, atol=2e-5)


def steps_of_one_cell(layer, parameters, carry, steps):
    """``h`` of one lane after each step; nothing comes in."""
    graph = PolicyGraph(
        (Encoding("obs", "flat", 1),), Network("actor", (layer, Linear(1, 2, 1.0))), None, Categorical(1)
    )
    kernel = PolicyKernel(layout_of(graph))
    kernel.load({"actor": np.array([*parameters, 0.0, 0.0, 0.0, 0.0], np.float32)})
    given = {
        "obs": np.zeros((1, 1), np.float32),
        "noise": np.zeros((1, 1), np.float32),
        "explore": np.zeros(1, np.float32),
        "first": np.zeros(1, bool),
    }
    for _ in range(steps):
        kernel.act({**given, **carry}, carry)
        yield float(carry["carry.actor.0.h"][0, 0])


def test_an_lstm_by_hand():
    # All gates are sigmoid(0) = 1/2, and g = tanh(20) = 1. So c goes 0, 1/2, 3/4, 7/8, and h = tanh(c) / 2.
    carry = {"carry.actor.0.h": np.zeros((1, 1), np.float32), "carry.actor.0.c": np.zeros((1, 1), np.float32)}
    h = list(steps_of_one_cell(LSTM(1, 1), [0.0] * 8 + [0.0, 0.0, 20.0, 0.0], carry, 3))
    np.testing.assert_allclose(h, [np.tanh(c) / 2 for c in (0.5, 0.75, 0.875)], rtol=1e-6)
    np.testing.assert_allclose(carry["carry.actor.0.c"], 0.875, rtol=1e-6)


def test_a_gru_by_hand():
    # r = z = sigmoid(0) = 1/2, and n = tanh(20 + r d). With d = 0, n is 1: h goes 0, 1/2, 3/4.
    carry = {"carry.actor.0.h": np.zeros((1, 1), np.float32)}
    h = list(steps_of_one_cell(GRU(1, 1), [0.0] * 6 + [0.0, 0.0, 20.0] + [0.0] * 3, carry, 2))
    np.testing.assert_allclose(h, [0.5, 0.75], rtol=1e-6)
    # With d = -40, n is tanh(20 - 20) = 0: the reset gate halves d behind the product. So h halves.
    h = list(steps_of_one_cell(GRU(1, 1), [0.0] * 6 + [0.0, 0.0, 20.0] + [0.0, 0.0, -40.0], carry, 2))
    np.testing.assert_allclose(h, [0.375, 0.1875], rtol=1e-6)


def bound_to(graph, kernel, generator, rows=4, lanes=3, seed=7):
    """A policy bound to random rows, and its arrays."""
    obs = [reference.observations(graph, generator, lanes) for _ in range(rows)]
    given = {field: np.stack([row[field] for row in obs]) for field in obs[0]}
    given["first"] = generator.random((rows, lanes)) < 0.3
    single = reference.outputs_for(graph, lanes)
    out = {output: np.zeros((rows, *values.shape), values.dtype) for output, values in single.items()}
    carry = reference.carry_of(graph, generator, lanes)
    bound = kernel.bind(given, out, seed=seed, lanes=np.arange(lanes), carry=carry)
    return bound, given, out, carry


@pytest.mark.parametrize("name", reference.MEMORIES)
def test_a_bound_policy_does_what_act_does(name):
    graph, generator = reference.MEMORIES[name], np.random.default_rng(1)
    kernel, _ = loaded(graph)
    bound, given, out, carry = bound_to(graph, kernel, generator)
    kept = {key: values.copy() for key, values in carry.items()}
    for t in range(4):
        one = {key: values[t] for key, values in given.items()}
        one |= {"noise": generate(graph.noise, 7, np.arange(3), 100 + t), "explore": np.ones(3, np.float32)}
        expected = acted(graph, kernel, one, kept)
        if graph.gives_value:
            bound.value(t)
            np.testing.assert_array_equal(out["value"][t], expected["value"])
            for key in carry:
                np.testing.assert_array_equal(carry[key], kept[key])
        bound.act(t, 100 + t)
        for output in graph.outputs:
            np.testing.assert_array_equal(out[output][t], expected[output])
        kept = {key: expected[key] for key in kept}
        for key in carry:
            np.testing.assert_array_equal(carry[key], kept[key])


@pytest.mark.parametrize("name", reference.MEMORIES)
def test_the_carry_of_rows_in_a_larger_array(name):
    graph, generator = reference.MEMORIES[name], np.random.default_rng(2)
    kernel, _ = loaded(graph)
    given, carry = given_to(graph, generator, 4), reference.carry_of(graph, generator, 4)
    expected = acted(graph, kernel, given, carry)
    large = {key: np.full((4, 3, values.shape[1]), 5.0, np.float32) for key, values in carry.items()}
    views = {key: values[:, 1] for key, values in large.items()}
    for key, values in carry.items():
        views[key][...] = values
    kernel.act({**given, **views}, views)
    for key, values in large.items():
        np.testing.assert_array_equal(values[:, 1], expected[key])
        assert (values[:, [0, 2]] == 5.0).all()


@pytest.mark.parametrize("name", ["lstm, shared", "two kinds in actor and critic", "memory of the critic alone"])
def test_the_carry_goes_on_whatever_else_is_wanted(name):
    graph, generator = reference.MEMORIES[name], np.random.default_rng(3)
    kernel, _ = loaded(graph)
    given, carry = given_to(graph, generator, 4), reference.carry_of(graph, generator, 4)
    whole = acted(graph, kernel, given, carry)
    for wanted in ((), ("value",), ("action",)):
        out = {key: np.zeros_like(whole[key]) for key in (*carry, *wanted)}
        kernel.act({**given, **carry}, out)
        for key, values in out.items():
            np.testing.assert_array_equal(values, whole[key])


def test_a_bound_policy_sees_new_parameters():
    graph, generator = reference.MEMORIES["two kinds in actor and critic"], np.random.default_rng(4)
    kernel, published = loaded(graph)
    bound, _, out, carry = bound_to(graph, kernel, generator)
    bound.act(0, 0)
    other = reference.record(graph, np.random.default_rng(99))
    kept = {key: values.copy() for key, values in carry.items()}
    for values in (other, published, other):
        kernel.load(values)
        for key in carry:
            carry[key][...] = kept[key]
        bound.act(1, 1)
    fresh = PolicyKernel(layout_of(graph))
    fresh.load(other)
    again, _, expected, expected_carry = bound_to(graph, fresh, np.random.default_rng(4))
    for key, values in kept.items():
        expected_carry[key][...] = values
    again.act(1, 1)
    for key, values in expected.items():
        np.testing.assert_array_equal(out[key][1], values[1])
    for key, values in expected_carry.items():
        np.testing.assert_array_equal(carry[key], values)


@pytest.mark.parametrize("name", reference.MEMORIES)
def test_numbers_that_are_not_numbers_stay_in_their_lane_until_its_episode_ends(name):
    graph, generator = reference.MEMORIES[name], np.random.default_rng(0)
    kernel, _ = loaded(graph)
    given, carry = given_to(graph, generator, 5), reference.carry_of(graph, generator, 5)
    given["first"][...] = False
    clean = acted(graph, kernel, given, carry)
    bad = {key: values.copy() for key, values in carry.items()}
    for values in bad.values():
        values[2] = np.nan
    spoilt = acted(graph, kernel, given, bad)
    for key, values in spoilt.items():
        np.testing.assert_array_equal(np.delete(values, 2, 0), np.delete(clean[key], 2, 0))
    assert all(np.isnan(spoilt[key][2]).all() for key in bad)
    given["first"][2] = True
    fresh = acted(graph, kernel, given, bad)
    assert all(np.isfinite(values).all() for values in fresh.values())


REFUSED = {
    "cells of another number": lambda carry: np.zeros((3, 63), np.float32),
    "other lanes": lambda carry: np.zeros((4, 64), np.float32),
    "one dimension too many": lambda carry: np.zeros((3, 8, 8), np.float32),
    "another dtype": lambda carry: carry.astype(np.float64),
    "cells that are not contiguous": lambda carry: np.zeros((3, 128), np.float32)[:, ::2],
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_carry_that_does_not_fit_is_refused(why):
    graph, generator = reference.MEMORIES["lstm, shared"], np.random.default_rng(0)
    kernel, _ = loaded(graph)
    given, carry = given_to(graph, generator, 3), reference.carry_of(graph, generator, 3)
    rows = {key: given[key][None] for key in ("obs", "first")}
    for key in carry:
        wrong = carry | {key: REFUSED[why](carry[key])}
        with pytest.raises(ValueError, match="carry"):
            kernel.act({**given, **wrong}, {})
        with pytest.raises(ValueError, match="carry"):
            kernel.act({**given, **carry}, wrong)
        with pytest.raises(ValueError, match="carry"):
            kernel.bind(rows, {}, carry=wrong)


def test_a_carry_is_given_whole_or_not_at_all():
    graph, generator = reference.MEMORIES["lstm, shared"], np.random.default_rng(0)
    kernel, _ = loaded(graph)
    given, carry = given_to(graph, generator, 3), reference.carry_of(graph, generator, 3)
    rows = {key: given[key][None] for key in ("obs", "first")}
    h = {"carry.actor.0.h": carry["carry.actor.0.h"]}
    with pytest.raises(ValueError, match=r"carry is \['carry.actor.0.c', 'carry.actor.0.h'\]"):
        kernel.bind(rows, {}, carry=h)
    with pytest.raises(ValueError, match="carry"):
        kernel.bind(rows, {})
    with pytest.raises(ValueError, match="whole"):
        kernel.act({**given, **carry}, h)
    without, _ = loaded(reference.GRAPHS["gaussian"])
    with pytest.raises(ValueError, match="carry"):
        without.bind({"obs": given["obs"][None]}, {}, carry=h)


@pytest.mark.parametrize("first", [np.zeros((1, 4), bool), np.zeros((2, 3), bool), np.zeros((1, 3), np.uint8)])
def test_a_first_that_does_not_fit_is_refused(first):
    graph, generator = reference.MEMORIES["lstm, shared"], np.random.default_rng(0)
    kernel, _ = loaded(graph)
    obs = reference.observations(graph, generator, 3)["obs"][None]
    with pytest.raises(ValueError, match="first"):
        kernel.bind({"obs": obs, "first": first}, {}, carry=reference.carry_of(graph, generator, 3))


@pytest.mark.parametrize(
    ("layers", "runs"),
    [
        ((LSTM(3, 2),), True),
        ((GRU(3, 2), Activation("tanh")), True),
        ((GRU(3, 3), Dueling(2)), True),
        ((Activation("tanh"), GRU(3, 2)), False),
        ((GRU(3, 2), Activation("tanh"), Activation("tanh")), False),
        ((Dueling(2), GRU(3, 2)), False),
    ],
)
def test_which_layers_may_stand_around_a_recurrent_one(layers, runs):
    assert (
        supports(PolicyGraph(reference.FLAT, Network("actor", layers), None, EpsilonGreedy(2), gives_value=False))
        == runs
    )


def test_a_policy_with_memory_is_not_trained_natively():
    for graph in reference.MEMORIES.values():
        assert supports(graph)
        assert not supports_update(graph)
