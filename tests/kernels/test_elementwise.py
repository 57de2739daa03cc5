"""Error bounds of the kernels' own elementwise functions, at every level that this processor runs."""

import math

import numpy as np
import pytest

from penstock.kernels import _native
from penstock.kernels.level import instruction_set, levels

SMALL = np.ldexp(np.linspace(1.0, 2.0, 500), -np.arange(0, 100)[:, None]).ravel()


def applied(name, x, level):
    values = np.array(x, np.float32)
    _native.elementwise(name, values, level)
    return values


def erf(x):
    return np.vectorize(math.erf)(x)


# Name, float64 reference, range, relative bound, absolute bound (0: relative alone, down to tiny arguments).
CASES = [
    ("exp", np.exp, 87.0, 2.5e-7, 0.0),
    ("tanh", np.tanh, 20.0, 4.5e-7, 0.0),
    ("relu", lambda x: np.maximum(x, 0.0), 1e6, 0.0, 0.0),
    ("elu", lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))), 50.0, 2.5e-7, 1.5e-7),
    ("sigmoid", lambda x: 1.0 / (1.0 + np.exp(-x)), 50.0, 2.5e-7, 2.5e-7),
    ("silu", lambda x: x / (1.0 + np.exp(-x)), 50.0, 5e-7, 1e-6),
    ("gelu", lambda x: 0.5 * x * (1.0 + erf(x / math.sqrt(2.0))), 50.0, 5e-7, 1e-6),
]


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize(("name", "reference", "limit", "relative", "absolute"), CASES)
def test_error_bounds(name, reference, limit, relative, absolute, level):
    x = np.concatenate([np.linspace(-limit, limit, 400_001), SMALL, -SMALL]).astype(np.float32)
    expected = reference(x.astype(np.float64))
    error = np.abs(applied(name, x, level).astype(np.float64) - expected)
    worst = np.argmax(error - relative * np.abs(expected) - absolute)
    assert error[worst] <= relative * abs(expected[worst]) + absolute, f"at {x[worst]}"


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", [case[0] for case in CASES])
def test_odd_lengths_and_positions_do_not_matter(name, level):
    x = np.linspace(-3.0, 3.0, 71).astype(np.float32)
    whole = applied(name, x, level)
    for first in range(5):
        for count in range(1, 40):
            np.testing.assert_array_equal(applied(name, x[first : first + count], level), whole[first : first + count])


@pytest.mark.parametrize("level", levels())
def test_extremes_saturate_and_nan_comes_through(level):
    x = [-np.inf, -1e30, 1e30, np.inf, np.nan]
    assert np.isnan(applied("tanh", x, level)[4])
    for name, low in (("tanh", -1.0), ("sigmoid", 0.0)):
        saturated = applied(name, x, level)[:4]
        np.testing.assert_allclose(saturated, [low, low, 1.0, 1.0], rtol=1.3e-7, atol=1e-37)
        assert (np.abs(saturated) <= 1.0).all()
    np.testing.assert_array_equal(applied("relu", x, level)[:4], np.array([0.0, 0.0, 1e30, np.inf], np.float32))
    exp = applied("exp", x, level)
    assert (exp[:2] < 2e-38).all()
    assert np.isfinite(exp[:4]).all()
    for name in ("exp", "relu", "elu", "silu", "gelu", "sigmoid"):
        assert np.isnan(applied(name, x, level)[4]), name


def test_levels_are_named_and_the_last_is_chosen():
    assert levels()[0] == "baseline"
    assert instruction_set() == levels()[-1]
    with pytest.raises(ValueError, match="does not run level"):
        _native.elementwise("tanh", np.zeros(1, np.float32), "imaginary")


def test_denormals_survive_loading_the_module():
    # A shared object linked with -ffast-math would set flush-to-zero for the whole process.
    denormal = np.array([1e-40], np.float32)
    assert (denormal * np.float32(0.5))[0] > 0.0
    assert float(np.float64(5e-324)) * 1.0 > 0.0
