"""The native policy: the same bits for each row, in place, bound to slots, and safe with NaN and infinity."""

import itertools

import numpy as np
import pytest

from penstock.kernels.actions import environment_array, to_environment
from penstock.kernels.level import levels
from penstock.kernels.noise import generate
from penstock.kernels.policy import PolicyKernel
from penstock.policies import (
    Categorical,
    Encoding,
    EpsilonGreedy,
    Gaussian,
)
from penstock.policies.native import layout_of
from penstock.types import Box, Discrete
from tests.inference import reference
from tests.inference.reference import acted


def loaded(graph, level=None, seed=0):
    kernel = PolicyKernel(layout_of(graph), level)
    published = reference.record(graph, np.random.default_rng(seed))
    kernel.load(published)
    return kernel, published


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", reference.GRAPHS)
def test_a_row_does_not_depend_on_how_many_are_in_the_call(name, level):
    graph, generator = reference.GRAPHS[name], np.random.default_rng(5)
    kernel, _ = loaded(graph, level)
    obs, noise = reference.observations(graph, generator, 70), reference.noise_of(graph, generator, 70)
    explore = np.ones(70, np.float32)
    whole = acted(kernel, graph, obs, noise, explore)
    for n in range(1, 71):
        first = (70 - n) // 2
        rows = slice(first, first + n)
        part = acted(kernel, graph, {field: values[rows] for field, values in obs.items()}, noise[rows], explore[rows])
        for output, values in part.items():
            np.testing.assert_array_equal(values, whole[output][rows])


def judged(kernel, obs, action):
    log_prob, value = np.empty(len(action), np.float32), np.empty(len(action), np.float32)
    kernel.judge({**obs, "action": action}, log_prob, value)
    return {"log_prob": log_prob, "value": value}


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize(
    "name", [name for name, graph in reference.GRAPHS.items() if graph.gives_value and not graph.mask]
)
def test_given_actions_are_judged_as_in_float64_whatever_their_number(name, level):
    graph, generator = reference.GRAPHS[name], np.random.default_rng(6)
    kernel, published = loaded(graph, level)
    obs, noise = reference.observations(graph, generator, 70), reference.noise_of(graph, generator, 70)
    expected = reference.act(graph, published, obs, noise, np.ones(70))
    action = expected["action"].astype(np.float32) if isinstance(graph.head, Gaussian) else expected["action"]
    whole = judged(kernel, obs, action)
    for output, values in whole.items():
        np.testing.assert_allclose(values, expected[output], rtol=1e-5, atol=1e-5)
    for rows in (slice(0, 1), slice(3, 68)):
        for output, values in judged(kernel, {k: v[rows] for k, v in obs.items()}, action[rows]).items():
            np.testing.assert_array_equal(values, whole[output][rows])


def test_an_action_that_there_is_not_harms_no_other():
    graph, generator = reference.GRAPHS["categorical"], np.random.default_rng(6)
    kernel, _ = loaded(graph)
    obs, action = reference.observations(graph, generator, 5), np.array([0, 1, -(2**40), 2**40, 1])
    alone = judged(kernel, {k: v[[0, 1, 4]] for k, v in obs.items()}, action[[0, 1, 4]])
    np.testing.assert_array_equal(judged(kernel, obs, action)["log_prob"][[0, 1, 4]], alone["log_prob"])


def test_what_is_not_judged_is_refused():
    kernel, _ = loaded(reference.GRAPHS["deterministic"])
    obs = reference.observations(reference.GRAPHS["deterministic"], np.random.default_rng(0), 3)
    with pytest.raises(ValueError, match="with a value"):
        judged(kernel, obs, np.zeros((3, 1), np.float32))
    graph = reference.GRAPHS["gaussian"]
    kernel, _ = loaded(graph)
    obs = reference.observations(graph, np.random.default_rng(0), 3)
    with pytest.raises(ValueError, match="action has the wrong dtype"):
        judged(kernel, obs, np.zeros((3, 1), np.float64))
    with pytest.raises(ValueError, match="shape"):
        judged(kernel, obs, np.zeros((3, 2), np.float32))


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", reference.GRAPHS)
def test_every_level_agrees_with_float64(name, level):
    graph, generator = reference.GRAPHS[name], np.random.default_rng(6)
    kernel, published = loaded(graph, level)
    obs, noise = reference.observations(graph, generator, 70), reference.noise_of(graph, generator, 70)
    explore = generator.uniform(0.0, 1.0, 70).astype(np.float32)
    expected = reference.act(graph, published, obs, noise, explore)
    for output, values in acted(kernel, graph, obs, noise, explore).items():
        np.testing.assert_allclose(values, expected[output], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("inputs", [1, 2, 7, 8, 9, 17, 65])
@pytest.mark.parametrize("width", [1, 2, 4, 5, 8, 15, 16, 33, 100, 130])
def test_layers_of_any_width(inputs, width):
    graph = reference.actor_critic((Encoding("obs", "flat", inputs),), Gaussian(width), (width, 3))
    kernel, published = loaded(graph)
    generator = np.random.default_rng(inputs)
    obs = {"obs": generator.normal(size=(5, inputs)).astype(np.float32)}
    noise = reference.noise_of(graph, generator, 5)
    expected = reference.act(graph, published, obs, noise, np.ones(5))
    for output, values in acted(kernel, graph, obs, noise, np.ones(5, np.float32)).items():
        np.testing.assert_allclose(values, expected[output], rtol=1e-5, atol=1e-5 * width)


@pytest.mark.parametrize("dtype", ["float64", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "bool"])
def test_observations_of_any_number_type(dtype):
    graph = reference.GRAPHS["gaussian"]
    kernel, published = loaded(graph)
    obs = {"obs": np.array([[0, 1, 1], [1, 0, 1]], dtype)}
    noise = np.zeros((2, 1), np.float32)
    expected = reference.act(graph, published, obs, noise, np.ones(2))
    np.testing.assert_allclose(
        acted(kernel, graph, obs, noise, np.ones(2, np.float32))["value"], expected["value"], rtol=1e-5
    )


def test_outputs_are_written_in_place_into_rows_of_a_larger_array():
    graph, generator = reference.GRAPHS["gaussian, six actions, normalised"], np.random.default_rng(0)
    kernel, _ = loaded(graph)
    obs, noise = reference.observations(graph, generator, 4), reference.noise_of(graph, generator, 4)
    expected = acted(kernel, graph, obs, noise, np.ones(4, np.float32))
    big = {"action": np.zeros((4, 3, 6), np.float32), "value": np.zeros((4, 5), np.float32)}
    kernel.act(
        {**obs, "noise": noise, "explore": np.ones(4, np.float32)},
        {"action": big["action"][:, 1], "value": big["value"][:, 2]},
    )
    np.testing.assert_array_equal(big["action"][:, 1], expected["action"])
    np.testing.assert_array_equal(big["value"][:, 2], expected["value"])
    assert not big["action"][:, [0, 2]].any()
    assert not big["value"][:, [0, 1, 3, 4]].any()


WANTED = [
    *itertools.product(
        ["gaussian", "categorical, shared trunk, normalised"],
        [("action",), ("log_prob",), ("value",), ("action", "value"), ()],
    ),
    *itertools.product(["squashed", "deterministic"], [("action",), ()]),
    *itertools.product(["values, dueling, atoms"], [("action",), ("q",), ("action", "q"), ()]),
]


@pytest.mark.parametrize(("name", "wanted"), WANTED)
def test_any_output_may_be_absent(name, wanted):
    graph, generator = reference.GRAPHS[name], np.random.default_rng(0)
    kernel, _ = loaded(graph)
    obs, noise = reference.observations(graph, generator, 4), reference.noise_of(graph, generator, 4)
    whole = acted(kernel, graph, obs, noise, np.ones(4, np.float32))
    out = {output: np.zeros_like(whole[output]) for output in wanted}
    kernel.act({**obs, "noise": noise, "explore": np.ones(4, np.float32)}, out)
    for output in wanted:
        np.testing.assert_array_equal(out[output], whole[output])


@pytest.mark.parametrize(
    ("name", "output"),
    [("squashed", "value"), ("deterministic", "log_prob"), ("values", "value"), ("squashed", "q"), ("gaussian", "q")],
)
def test_an_output_that_the_head_does_not_give_is_refused(name, output):
    graph = reference.GRAPHS[name]
    kernel, _ = loaded(graph)
    obs, noise = {"obs": np.zeros((1, 3), np.float32)}, reference.noise_of(graph, np.random.default_rng(0), 1)
    with pytest.raises(ValueError, match=f"this policy gives .*{output}"):
        kernel.act({**obs, "noise": noise, "explore": np.ones(1, np.float32)}, {output: np.zeros(1, np.float32)})
    with pytest.raises(ValueError, match="value"):
        kernel.bind({"obs": np.zeros((2, 1, 3), np.float32)}, {}).value(0)


SPACES = {
    "gaussian": Box((1,), "float32", (-2.0,), (2.0,)),
    "gaussian, six actions, normalised": Box((2, 3), "float64", (-1.0, 0, 0, 0, 0, 0), (1.0, 1, 2, 3, 4, 5)),
    "gaussian, shared trunk": Box((2,), "float32", (-np.inf,), (np.inf,)),
    "no hidden layer": Box((3,), "float32", (0.0, -np.inf, -np.inf), (np.inf, 0.1, np.inf)),
    "categorical": Discrete(2, 3),
    "squashed": Box((1,), "float32", (-2.0,), (2.0,)),
    "deterministic, six actions": Box((2, 3), "int32", (-9.0,), (9.0,)),
    "values, dueling": Discrete(5, -2),
    "values, dueling, atoms": Discrete(6),
    "categorical, shared trunk, normalised": Discrete(5),
}


@pytest.mark.parametrize("lanes", [1, 8, 65])
@pytest.mark.parametrize("name", SPACES)
def test_a_bound_policy_does_what_act_noise_and_to_environment_do(name, lanes):
    graph, space, generator = reference.GRAPHS[name], SPACES[name], np.random.default_rng(1)
    kernel, _ = loaded(graph)
    rows = [reference.observations(graph, generator, lanes) for _ in range(4)]
    obs = {field: np.stack([row[field] for row in rows]) for field in rows[0]}
    single = reference.outputs_for(graph, lanes)
    out = {output: np.zeros((4, *values.shape), values.dtype) for output, values in single.items()}
    environment, numbers = environment_array(space, lanes), np.arange(10, 10 + lanes)
    bound = kernel.bind(obs, out, seed=77, lanes=numbers, environment=environment, space=space)
    for t in range(3):
        bound.act(t, 100 + t)
        noise = generate(graph.head.noise, 77, numbers, 100 + t)
        expected = acted(kernel, graph, rows[t], noise, np.ones(lanes, np.float32))
        for output, values in expected.items():
            np.testing.assert_array_equal(out[output][t], values)
        np.testing.assert_array_equal(
            environment, to_environment(expected["action"], space, environment_array(space, lanes))
        )
    if graph.gives_value:
        bound.value(3)
        expected = acted(kernel, graph, rows[3], np.zeros_like(noise), np.ones(lanes, np.float32))
        np.testing.assert_array_equal(out["value"][3], expected["value"])
    assert not out["action"][3].any()


def bound_to(graph, lanes=3, rows=2, **changes):
    """A policy bound to fresh arrays, any of which ``changes`` replaces."""
    kernel, _ = loaded(graph)
    obs = {"obs": np.zeros((rows, lanes, 3), np.float32)}
    out = {"action": np.zeros((rows, lanes, 1), np.float32), "value": np.zeros((rows, lanes), np.float32)}
    arguments = {"lanes": np.arange(lanes), "given": obs, "out": out} | changes
    return kernel.bind(**arguments), out


def test_a_bound_policy_sees_new_parameters_and_its_own_explore():
    graph = reference.GRAPHS["gaussian"]
    kernel, published = loaded(graph)
    obs, out = {"obs": np.ones((1, 2, 3), np.float32)}, {"action": np.zeros((1, 2, 1), np.float32)}
    explore = np.array([0.0, 1.0], np.float32)
    bound = kernel.bind(obs, out, lanes=np.arange(2), explore=explore)
    bound.act(0, 0)
    first = out["action"].copy()
    assert first[0, 0] != first[0, 1]
    explore[1] = 0.0
    bound.act(0, 0)
    assert out["action"][0, 1] == out["action"][0, 0] == first[0, 0]
    kernel.load({name: np.zeros_like(values) for name, values in published.items()})
    bound.act(0, 0)
    assert not out["action"].any()


def test_a_bound_policy_keeps_its_arrays_alive():
    bound, out = bound_to(reference.GRAPHS["gaussian"])
    bound.act(1, 5)
    assert out["action"][1].any()


REFUSED = {
    "an observation array of the wrong size": {"obs": {"obs": np.zeros((2, 3, 4), np.float32)}},
    "rows that are not contiguous": {"obs": {"obs": np.zeros((2, 3, 6), np.float32)[:, :, ::2]}},
    "an action of the wrong dtype": {"out": {"action": np.zeros((2, 3, 1), np.float64)}},
    "values of other lanes": {"out": {"value": np.zeros((2, 4), np.float32)}},
    "values of other rows": {"out": {"value": np.zeros((3, 3), np.float32)}},
    "lanes of another length": {"lanes": np.arange(4)},
    "explore of another length": {"explore": np.zeros(2, np.float32)},
    "an environment array without a space": {"environment": np.zeros((3, 1), np.float32)},
    "an environment array of another size": {
        "environment": np.zeros((3, 2), np.float32),
        "space": SPACES["gaussian"],
    },
    "complex numbers": {"obs": {"obs": np.zeros((2, 3, 3), np.complex64)}},
}


@pytest.mark.parametrize("name", REFUSED)
def test_binding_refuses(name):
    with pytest.raises((ValueError, TypeError)):
        bound_to(reference.GRAPHS["gaussian"], **REFUSED[name])


def test_a_row_that_is_not_there_is_an_index_error():
    bound, _ = bound_to(reference.GRAPHS["gaussian"])
    for t in (-1, 2):
        with pytest.raises(IndexError):
            bound.act(t, 0)
        with pytest.raises(IndexError):
            bound.value(t)


def test_read_only_outputs_are_refused():
    value = np.zeros((2, 3), np.float32)
    value.flags.writeable = False
    with pytest.raises((ValueError, TypeError)):
        bound_to(reference.GRAPHS["gaussian"], out={"value": value})


def test_loading_checks_lengths():
    graph = reference.GRAPHS["gaussian"]
    kernel, published = loaded(graph)
    for name in published:
        with pytest.raises(ValueError, match=r"vector|statistics"):
            kernel.load(published | {name: published[name][:-2]})


@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_log_probabilities_of_extreme_logits(scale):
    graph = reference.actor_critic((Encoding("obs", "flat", 1),), Categorical(3), ())
    kernel = PolicyKernel(layout_of(graph))
    # Logits are x [1, 0, -1] + 0 with x = scale: the first (or last) action has probability one.
    actor = np.array([1.0, 0.0, -1.0, 0.0, 0.0, 0.0], np.float32)
    kernel.load({"actor": actor, "critic": np.zeros(2, np.float32)})
    out = acted(
        kernel, graph, {"obs": np.array([[scale]], np.float32)}, np.zeros((1, 3), np.float32), np.ones(1, np.float32)
    )
    assert out["action"][0] == (0 if scale > 0 else 2)
    assert out["log_prob"][0] == 0.0
    # Noise that forces the middle action: its log-probability is -10,000, not minus infinity.
    noise = np.array([[0.0, 1e6, 0.0]], np.float32)
    out = acted(kernel, graph, {"obs": np.array([[scale]], np.float32)}, noise, np.ones(1, np.float32))
    assert out["action"][0] == 1
    assert out["log_prob"][0] == -1e4


NUMBERS = [
    "gaussian",
    "categorical",
    "categorical, shared trunk, normalised",
    "squashed",
    "deterministic",
    "values, dueling, atoms",
]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_numbers_do_not_crash_and_stay_in_their_row(name, bad):
    graph, generator = reference.GRAPHS[name], np.random.default_rng(0)
    kernel, _ = loaded(graph)
    obs, noise = reference.observations(graph, generator, 5), reference.noise_of(graph, generator, 5)
    clean = acted(kernel, graph, obs, noise, np.ones(5, np.float32))
    field = next(part.field for part in graph.encoding if part.kind == "flat")
    obs[field][2] = bad
    out = acted(kernel, graph, obs, noise, np.ones(5, np.float32))
    for output, values in out.items():
        np.testing.assert_array_equal(np.delete(values, 2, 0), np.delete(clean[output], 2, 0))
    if isinstance(graph.head, Categorical | EpsilonGreedy):
        assert 0 <= out["action"][2] < graph.head.n
    elif np.isnan(bad):
        assert np.isnan(out["action"][2])
    if np.isnan(bad) and graph.gives_value:
        assert np.isnan(out["value"][2])


def test_a_discrete_observation_outside_its_space_is_all_zero():
    graph = reference.GRAPHS["categorical, discrete observation"]
    kernel, published = loaded(graph)
    obs, noise = {"obs": np.array([1, 7, -(2**62)])}, np.zeros((3, 7), np.float32)
    expected = reference.act(graph, published, obs, noise, np.ones(3))
    np.testing.assert_allclose(
        acted(kernel, graph, obs, noise, np.ones(3, np.float32))["value"], expected["value"], rtol=1e-5
    )


def test_a_nan_action_becomes_the_lower_bound_of_an_integer_box():
    space = Box((2,), "int32", (-3.0,), (4.0,))
    out = to_environment(np.array([[np.nan, 1.0]], np.float32), space, environment_array(space, 1))
    assert out.tolist() == [[-3, 4]]
