"""Sequences at every instruction-set level. The mathematics is tested in ``tests/torch_networks/test_recurrent.py``."""

import numpy as np
import pytest

from penstock.kernels import recurrent
from penstock.kernels.level import levels

STEPS, LANES, SIZE = 6, 5, 17


def arrays():
    generator = np.random.default_rng(0)

    def numbers(*shape):
        return generator.standard_normal(shape).astype(np.float32)

    def zeros(*shape):
        return np.zeros(shape, np.float32)

    state, over_time = (LANES, SIZE), (STEPS, LANES, SIZE)
    return {
        "x": numbers(STEPS, LANES, 3 * SIZE),
        "recurrent": numbers(SIZE, 3 * SIZE),
        "bias": numbers(3 * SIZE),
        "first": generator.random((STEPS, LANES)) < 0.3,
        "h": numbers(*state),
        "output": zeros(*over_time),
        "last_h": zeros(*state),
        "gates": zeros(STEPS, LANES, 4 * SIZE),
    }


@pytest.mark.parametrize("level", levels())
def test_every_level_gives_the_same_numbers_and_each_its_own_bits_again(level):
    first, again, fastest = arrays(), arrays(), arrays()
    recurrent.gru(**first, level=level)
    recurrent.gru(**again, level=level)
    recurrent.gru(**fastest)
    for name in ("output", "last_h", "gates"):
        np.testing.assert_array_equal(first[name], again[name])
        np.testing.assert_allclose(first[name], fastest[name], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(first["last_h"], first["output"][-1])


def test_memory_may_hold_lanes_before_time():
    given, turned = arrays(), arrays()
    for name in ("x", "output"):
        turned[name] = np.ascontiguousarray(turned[name].swapaxes(0, 1)).swapaxes(0, 1)
    turned["first"] = np.asfortranarray(turned["first"])
    recurrent.gru(**given)
    recurrent.gru(**turned)
    np.testing.assert_array_equal(turned["output"], given["output"])


@pytest.mark.parametrize("name", ["x", "bias", "h", "output", "last_h", "gates"])
def test_a_wrong_shape_is_told_with_the_arrays_name(name):
    given = arrays()
    given[name] = np.zeros([extent + 1 for extent in given[name].shape], np.float32)
    with pytest.raises(ValueError, match=name):
        recurrent.gru(**given)


def test_rows_must_be_contiguous():
    given = arrays()
    given["x"] = np.repeat(given["x"], 2, axis=2)[:, :, ::2]
    with pytest.raises(ValueError, match="contiguous"):
        recurrent.gru(**given)


def test_nothing_is_written_into_a_copy():
    given = arrays()
    given["output"] = given["output"].astype(np.float64)
    with pytest.raises(TypeError):
        recurrent.gru(**given)
