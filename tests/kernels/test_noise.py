"""Philox against its published answers; the numbers made from its words against arithmetic in plain Python."""

import math

import numpy as np
import pytest

from penstock.kernels import _native
from penstock.kernels.level import levels
from penstock.kernels.noise import generate, gumbel, normal, uniform
from penstock.types import NoiseSpec

MASK = (1 << 32) - 1


def philox(counter, key):
    """Philox4x32-10 word by word, as in Salmon et al. 2011, figure 2 and table 2."""
    x, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ k[0], b & MASK, (a >> 32) ^ x[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return x


# Known answers of Random123's philox4x32-10: counter, key, words.
ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((MASK,) * 4, (MASK,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), ANSWERS)
def test_the_reference_gives_the_known_answers(counter, key, words):
    assert tuple(philox(counter, key)) == words


def words_of(seed, lane, step, size):
    """The words that the kernel should generate: counter (block, lane, step low, step high), four for each block."""
    key = (seed & MASK, seed >> 32)
    blocks = [philox((block, lane, step & MASK, step >> 32), key) for block in range((size + 3) // 4)]
    return [word for block in blocks for word in block]


CASES = [(0, 0, 0, 1), (7, 3, 12, 4), ((0x299F31D0 << 32) | 0xA4093822, 0xFFFFFFFF, (5 << 32) | 9, 7), (1, 2, 3, 18)]


@pytest.mark.parametrize(("seed", "lane", "step", "size"), CASES)
def test_uniform_is_the_upper_24_bits_of_each_word(seed, lane, step, size):
    generated = uniform(seed, np.array([lane]), step, size)[0]
    assert generated.tolist() == [(word >> 8) / 2**24 for word in words_of(seed, lane, step, size)[:size]]


@pytest.mark.parametrize(("seed", "lane", "step", "size"), CASES)
def test_normal_is_box_and_muller_of_each_pair(seed, lane, step, size):
    words, expected = words_of(seed, lane, step, size), []
    for a, b in zip(words[::2], words[1::2], strict=True):
        radius, angle = math.sqrt(-2.0 * math.log((a + 0.5) / 2**32)), 2.0 * math.pi * b / 2**32
        expected += [radius * math.cos(angle), radius * math.sin(angle)]
    np.testing.assert_allclose(normal(seed, np.array([lane]), step, size)[0], expected[:size], rtol=2e-7, atol=1e-12)


@pytest.mark.parametrize(("seed", "lane", "step", "size"), CASES)
def test_gumbel_is_minus_log_minus_log(seed, lane, step, size):
    expected = [-math.log(-math.log((word + 0.5) / 2**32)) for word in words_of(seed, lane, step, size)[:size]]
    np.testing.assert_allclose(gumbel(seed, np.array([lane]), step, size)[0], expected, rtol=2e-7, atol=1e-7)


@pytest.mark.parametrize("distribution", ["normal", "uniform", "gumbel"])
def test_every_level_generates_the_same_bits(distribution):
    lanes, generated = np.arange(37), []
    for level in levels():
        out = np.zeros((37, 5), np.float32)
        _native.noise(distribution, 11, lanes, 3, out, level)
        generated.append(out)
    for other in generated[1:]:
        np.testing.assert_array_equal(generated[0], other)


@pytest.mark.parametrize("function", [normal, uniform, gumbel])
def test_a_lane_does_not_see_the_others(function):
    whole = function(5, np.arange(70), 9, 6)
    for first, count in ((0, 1), (3, 2), (10, 8), (33, 37)):
        np.testing.assert_array_equal(function(5, np.arange(first, first + count), 9, 6), whole[first : first + count])
    np.testing.assert_array_equal(function(5, np.arange(70)[::-1].copy(), 9, 6), whole[::-1])
    np.testing.assert_array_equal(function(5, np.arange(70), 9, 3), whole[:, :3])


def test_seed_lane_and_step_each_change_the_numbers():
    first = normal(1, np.array([0]), 0, 8)
    for other in (normal(2, np.array([0]), 0, 8), normal(1, np.array([1]), 0, 8), normal(1, np.array([0]), 1, 8)):
        assert not np.intersect1d(first, other).size


def test_moments():
    # 400,000 numbers: the standard error of a mean is 0.0016 standard deviations; the bounds are four of them or more.
    lanes = np.arange(1000)
    z, u, g = (function(3, lanes, 5, 400).astype(np.float64) for function in (normal, uniform, gumbel))
    assert abs(z.mean()) < 0.0064
    assert abs(z.var() - 1.0) < 0.01
    assert abs((z**3).mean()) < 0.03
    assert abs((z**4).mean() - 3.0) < 0.07
    assert abs(np.corrcoef(z[:, ::2].ravel(), z[:, 1::2].ravel())[0, 1]) < 0.01
    assert abs(u.mean() - 0.5) < 0.002
    assert 0.0 <= u.min() <= u.max() < 1.0
    assert abs(g.mean() - 0.5772156649) < 0.008
    assert abs(g.var() - math.pi**2 / 6.0) < 0.02


def test_generate_shapes_the_noise_input_of_act():
    spec = NoiseSpec("normal", (2, 3))
    generated = generate(spec, 4, np.arange(5), 6)
    assert generated.shape == (5, 2, 3)
    np.testing.assert_array_equal(generated.reshape(5, 6), normal(4, np.arange(5), 6, 6))


def test_no_lanes_generate_nothing():
    assert normal(0, np.zeros(0, np.int64), 0, 3).shape == (0, 3)


def test_composed_noise_has_independent_parts():
    parts = (NoiseSpec("gumbel", (3,)), NoiseSpec("normal", (2,)), NoiseSpec("gumbel", (3,)), NoiseSpec("normal", (2,)))
    lanes = np.arange(20_000)
    found = generate(NoiseSpec("composed", (10,), parts), 5, lanes, 2)
    assert found.shape == (20_000, 10)
    # The first part is what it would be alone.
    np.testing.assert_array_equal(found[:, :3], gumbel(5, lanes, 2, 3))
    # Standard error of a correlation of independent numbers: 1 / sqrt(20,000) = 0.007.
    assert np.abs(np.corrcoef(found.T) - np.eye(10)).max() < 0.035
    assert np.abs(np.corrcoef(np.abs(found).T) - np.eye(10)).max() < 0.035
    np.testing.assert_allclose(found.mean(axis=0), [0.5772] * 3 + [0.0] * 2 + [0.5772] * 3 + [0.0] * 2, atol=0.05)
    # A lane does not see the others.
    np.testing.assert_array_equal(generate(NoiseSpec("composed", (10,), parts), 5, lanes[7:9], 2), found[7:9])
