"""From the policy's units to the environment's, by hand."""

import numpy as np
import pytest

from penstock.kernels.actions import environment_array, generate_actions, to_environment
from penstock.types import Box, Composite, Discrete, MultiDiscrete, Spaces


def converted(action, space):
    action = np.asarray(action)
    return to_environment(action, space, environment_array(space, len(action)))


def test_a_bounded_box_maps_minus_one_to_low_and_one_to_high():
    space = Box((2,), "float32", (-2.0, 0.0), (2.0, 10.0))
    # (0 + 1) / 2 * 4 - 2 = 0; (0.5 + 1) / 2 * 10 = 7.5; beyond the unit box is clipped.
    action = np.array([[0.0, 0.5], [-1.0, 1.0], [-9.0, 9.0]], np.float32)
    np.testing.assert_array_equal(converted(action, space), [[0.0, 7.5], [-2.0, 10.0], [-2.0, 10.0]])


def test_no_action_leaves_the_box():
    generator = np.random.default_rng(0)
    for _ in range(200):
        low = generator.normal(size=3)
        high = low + generator.exponential(size=3)
        for dtype in ("float32", "float64"):
            space = Box((3,), dtype, tuple(low.astype(dtype).tolist()), tuple(high.astype(dtype).tolist()))
            out = converted(generator.uniform(-1.5, 1.5, (20, 3)).astype(np.float32), space)
            assert (out >= np.asarray(space.low, dtype)).all()
            assert (out <= np.asarray(space.high, dtype)).all()


def test_an_integer_box_is_rounded():
    # Low 0, high 4: 0.1 is 2.2, 0.4 is 2.8, 0 is 2.
    space = Box((1,), "int64", (0.0,), (4.0,))
    assert converted(np.array([[0.1], [0.4], [0.0]], np.float32), space).tolist() == [[2], [3], [2]]


def test_an_unbounded_box_gets_the_sample():
    space = Box((2, 1), "float64", (-np.inf,), (np.inf,))
    out = converted(np.array([[[3.5], [-20.0]]], np.float32), space)
    assert out.dtype == np.float64
    assert out.tolist() == [[[3.5], [-20.0]]]


def test_a_box_with_some_bounds_gets_the_sample_clipped_at_those():
    space = Box((3,), "float32", (0.0, -np.inf, -np.inf), (np.inf, 2.5, np.inf))
    out = converted(np.array([[-0.92, 7.0, -30.0], [30.0, -7.0, 30.0]], np.float32), space)
    assert out.tolist() == [[0.0, 2.5, -30.0], [30.0, -7.0, 30.0]]


def test_an_integer_box_with_some_bounds_is_clipped_and_a_nan_is_nearest_to_zero():
    space = Box((2,), "int64", (3.0, -np.inf), (np.inf, np.inf))
    out = converted(np.array([[1.0, 1.6], [np.nan, np.nan], [4.4, -9.0]], np.float32), space)
    assert out.tolist() == [[3, 2], [3, 0], [4, -9]]


@pytest.mark.parametrize("start", [0, 5, -2])
def test_discrete_counts_from_start(start):
    assert converted(np.array([0, 2], np.int64), Discrete(3, start)).tolist() == [start, start + 2]


CHOICES = MultiDiscrete((3, 4), (1, -2), (2, 1), "int16")


def test_a_multi_discrete_counts_each_element_from_its_start():
    found = converted(np.array([[[0], [0]], [[2], [3]]]), CHOICES)
    assert found.dtype == np.int16
    assert found.tolist() == [[[1], [-2]], [[3], [1]]]


MIXED = Composite(
    (
        (("which",), Discrete(3, 5)),
        (("how", 0), Box((2,), "float32", (-2.0, 0.0), (2.0, 10.0))),
        (("how", 1), CHOICES),
        (("free",), Box((), "float64", (-np.inf,), (np.inf,))),
    )
)


def test_each_leaf_of_a_composite_is_in_its_own_units():
    # 2 + 5; (0 + 1) / 2 * 4 - 2 and (0.5 + 1) / 2 * 10; 1 + 1 and 3 - 2; the sample itself.
    found = converted(np.array([[2.0, 0.0, 0.5, 1.0, 3.0, 9.25]], np.float32), MIXED)
    assert found.dtype == np.float64
    assert found.tolist() == [[7.0, 0.0, 7.5, 2.0, 1.0, 9.25]]


@pytest.mark.parametrize("space", [Discrete(4, 7), CHOICES, MIXED, Box((2,), "float32", (-1.0,), (1.0,))])
def test_no_actions_are_converted_to_none(space):
    assert len(converted(np.empty(0), space)) == 0


def test_random_actions_are_spread_over_every_element():
    spec = Spaces((), MIXED).action_spec()
    out = np.zeros((5000, *spec.shape), spec.dtype)
    generate_actions(MIXED, 3, np.arange(5000), 0, out)
    # The standard error of a share of 1/4 is 0.006.
    for column, choices in ((0, 3), (3, 3), (4, 4)):
        shares = np.bincount(out[:, column].astype(np.int64), minlength=choices) / 5000
        np.testing.assert_allclose(shares, 1 / choices, atol=0.03)
    for column in (1, 2, 5):
        assert -1.0 <= out[:, column].min() < -0.99
        assert 0.99 < out[:, column].max() <= 1.0
