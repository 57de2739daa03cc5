"""All backends remember the same: each against float64 numpy on the same recurrent graphs, over some steps."""

import itertools

import numpy as np
import pytest

from penstock.inference import native, onnx
from penstock.inference import torch as torch_backend
from tests.inference import reference

STEPS, LANES = 6, 5


BACKENDS = {
    "native": native.build,
    "onnx": onnx.build,
    "torch": lambda graph: torch_backend.build("tests.inference.reference:build_policy", graph, None),
}

WITH_VALUE = [*itertools.product((name for name, graph in reference.MEMORIES.items() if graph.gives_value), BACKENDS)]
# The torch functions of algorithms without values know no memory.
WITHOUT_VALUE = [
    *itertools.product(
        (name for name, graph in reference.MEMORIES.items() if not graph.gives_value), ("native", "onnx")
    )
]


def firsts(generator):
    """Lane 0 goes on all the time, lane 1 begins in the middle, lane 2 begins with every step; the others at random."""
    first = generator.random((STEPS, LANES)) < 0.3
    first[:, 0], first[:, 1], first[:, 2] = False, np.arange(STEPS) == STEPS // 2, True
    return first


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(("name", "backend"), [*WITH_VALUE, *WITHOUT_VALUE])
def test_memory_agrees_with_the_reference(name, backend, in_place):
    graph, generator = reference.MEMORIES[name], np.random.default_rng(8)
    published = reference.record(graph, generator)
    policy = BACKENDS[backend](graph)
    policy.load(published)
    carry = reference.carry_of(graph, generator, LANES)
    expected_carry = {name: values.astype(np.float64) for name, values in carry.items()}
    for first in firsts(generator):
        obs, noise = reference.observations(graph, generator, LANES), reference.noise_of(graph, generator, LANES)
        explore = generator.uniform(0.0, 1.0, LANES).astype(np.float32)
        expected_carry = reference.begun(expected_carry, first)
        expected = reference.act(graph, published, obs, noise, explore, expected_carry)
        out = reference.outputs_for(graph, LANES)
        behind = carry if in_place else {name: np.empty_like(values) for name, values in carry.items()}
        policy.act({**obs, **carry, "first": first, "noise": noise, "explore": explore}, {**out, **behind})
        for key, values in {**out, **behind}.items():
            wanted = {**expected, **expected_carry}[key]
            np.testing.assert_allclose(values.reshape(wanted.shape), wanted, rtol=2e-5, atol=2e-5, err_msg=key)
        carry = behind


@pytest.mark.parametrize(("name", "backend"), WITH_VALUE)
def test_values_alone_leave_the_carry_as_it_is(name, backend):
    graph, generator = reference.MEMORIES[name], np.random.default_rng(9)
    published = reference.record(graph, generator)
    policy = BACKENDS[backend](graph)
    policy.load(published)
    obs, noise = reference.observations(graph, generator, LANES), reference.noise_of(graph, generator, LANES)
    carry, first = reference.carry_of(graph, generator, LANES), np.arange(LANES) == 1
    before = {name: values.copy() for name, values in carry.items()}
    value = np.zeros(LANES, np.float32)
    policy.act(
        {**obs, **carry, "first": first, "noise": noise, "explore": np.zeros(LANES, np.float32)}, {"value": value}
    )
    _, expected = reference.head_and_value(graph, published, obs, reference.begun(before, first))
    np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-5)
    for key, values in carry.items():
        np.testing.assert_array_equal(values, before[key])
