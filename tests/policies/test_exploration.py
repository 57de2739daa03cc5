"""How much noise counts at each step, and until which step actions are generated blindly."""

import numpy as np
import pytest

from penstock.kernels.actions import generate_actions
from penstock.kernels.noise import uniform
from penstock.policies.exploration import Constant, Exploration, Falling, Ladder
from penstock.types import Box, Composite, Discrete, MultiDiscrete

LANES = np.arange(2, 5)


@pytest.mark.parametrize(
    ("explore", "step", "expected", "moves"),
    [
        (Constant(0.1), 7, [0.1, 0.1, 0.1], False),
        # From 1 to 0.05 over 10 % of 1,000 steps: at step 25 a quarter of the way.
        (Falling(1.0, 0.05, 0.1), 25, [0.7625] * 3, True),
        (Falling(1.0, 0.05, 0.1), 900, [0.05] * 3, True),
        # 0.4^(1 + 7 i / 4) for lanes 2, 3, 4 of 5.
        (Ladder(0.4, 7.0), 25, [0.4**4.5, 0.4**6.25, 0.4**8.0], False),
    ],
)
def test_explore_by_hand(explore, step, expected, moves):
    exploration = Exploration(explore, 0, 5, 1000.0)
    found = exploration.scale(LANES, step)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert exploration.moves is moves


@pytest.mark.parametrize(
    ("warmup", "lanes", "steps"), [(0, 4, 0), (1, 4, 1), (100, 4, 25), (101, 4, 26), (1000, 1, 1000)]
)
def test_as_many_steps_are_blind_as_the_rows_need(warmup, lanes, steps):
    exploration = Exploration(Constant(), warmup, lanes, 1e6)
    assert [step for step in range(2000) if exploration.blind(step)] == list(range(steps))


def test_blind_actions_are_of_seed_lane_and_step_and_not_the_policys_noise():
    space, exploration = Box((2,), "float32", (-5.0,), (5.0,)), Exploration(Constant(), 1, 4, 1.0)
    generated = np.zeros((3, 2, 2), np.float32)
    for row, (seed, step) in zip(generated, [(1, 0), (2, 0), (1, 1)], strict=True):
        exploration.generate(space, seed, np.array([0, 1]), step, row)
    assert len(np.unique(generated)) == generated.size
    again = np.zeros((1, 2), np.float32)
    exploration.generate(space, 1, np.array([1]), 0, again)
    np.testing.assert_array_equal(again, generated[0, 1:])
    own = np.zeros((2, 2), np.float32)
    generate_actions(space, 1, np.array([0, 1]), 0, own)
    assert not np.isin(own, generated).any()


def test_blind_actions_fill_a_box_from_its_numbers():
    out = np.zeros((1000, 2, 3), np.float32)
    generate_actions(Box((2, 3), "float32", (0.0,), (9.0,)), 7, np.arange(1000), 3, out)
    np.testing.assert_array_equal(out.reshape(1000, 6), 2.0 * uniform(7, np.arange(1000), 3, 6) - 1.0)
    assert -1.0 <= out.min() < -0.99
    assert 0.99 < out.max() < 1.0
    # The standard error of a mean over 6,000 numbers of deviation 1 / sqrt(3).
    assert abs(out.mean()) < 5 * 0.0075


@pytest.mark.parametrize("n", [1, 3, 18])
def test_blind_actions_are_each_as_likely(n):
    out = np.zeros(18_000, np.int64)
    generate_actions(Discrete(n, 5), 7, np.arange(18_000), 3, out)
    counts = np.bincount(out)
    assert len(counts) == n
    assert np.abs(counts - 18_000 / n).max() <= 5 * np.sqrt(18_000 / n)


def test_masked_blind_actions_are_each_possible_one_as_likely():
    out, lanes = np.zeros(18_000, np.int64), np.arange(18_000)
    mask = np.tile(np.array([0, 1, 1, 0, 1], np.uint8), (18_000, 1))
    generate_actions(Discrete(5, 3), 7, lanes, 3, out, mask=mask)
    counts = np.bincount(out, minlength=5)
    assert counts[[0, 3]].tolist() == [0, 0]
    assert np.abs(counts[[1, 2, 4]] - 6_000).max() <= 5 * np.sqrt(6_000)
    # A mask that excludes nothing changes no bit.
    plain, open_ = np.zeros(100, np.int64), np.zeros(100, np.int64)
    generate_actions(Discrete(5), 7, lanes[:100], 3, plain)
    generate_actions(Discrete(5), 7, lanes[:100], 3, open_, mask=np.ones((100, 5), np.uint8))
    np.testing.assert_array_equal(plain, open_)


def test_a_mask_of_blind_actions_covers_the_choices_of_all_leaves():
    space = Composite(
        (
            (("which",), Discrete(2)),
            (("how",), Box((2,), "float32", (-1.0,), (1.0,))),
            (("what",), MultiDiscrete((3, 2), (0, 0), (2,), "int64")),
        )
    )
    exploration, out = Exploration(Constant(), 100, 4, 1.0), np.zeros((50, 5), np.float32)
    mask = np.tile(np.array([0, 1, 1, 0, 0, 0, 1], np.uint8), (50, 1))
    exploration.generate(space, 1, np.arange(50), 0, out, mask=mask)
    assert (out[:, [0, 3, 4]] == [1.0, 0.0, 1.0]).all()
    plain = np.zeros((50, 5), np.float32)
    exploration.generate(space, 1, np.arange(50), 0, plain)
    np.testing.assert_array_equal(out[:, 1:3], plain[:, 1:3])
