"""Encoded gradients by hand: eight bits, the largest few, and the error that is given back."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from penstock.errors import ConfigError
from penstock.gradient_exchange.all_reduce import AllReduce
from penstock.gradient_exchange.feedback import ErrorFeedback
from penstock.gradient_exchange.int8 import Int8
from penstock.gradient_exchange.top_k import TopK
from penstock.memory.rounds import Rounds
from penstock.registry import compression_of
from penstock.types import ArraySpec


def vector(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def there_and_back(compression, values: np.ndarray) -> np.ndarray:
    sent = np.zeros(compression.nbytes(len(values)), np.uint8)
    compression.encode(values, sent)
    found = np.full_like(values, np.nan)
    compression.decode(sent, found)
    return found


def test_eight_bits_have_256_levels_and_255_steps() -> None:
    # From -1 to 254 in steps of 1: each whole number is a level, 0.4 is nearest to 0 and 0.6 to 1.
    values = vector(-1.0, 254.0, 0.0, 0.4, 0.6, 100.0)
    assert there_and_back(Int8(), values).tolist() == [-1.0, 254.0, 0.0, 0.0, 1.0, 100.0]
    assert Int8().nbytes(6) == 6 + 8


def test_eight_bits_err_by_half_a_step_at_most() -> None:
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    step = (values.max() - values.min()) / 255
    assert np.abs(there_and_back(Int8(), values) - values).max() <= 0.501 * step


@pytest.mark.parametrize("value", [0.0, 3.5, -2e-30])
def test_eight_bits_keep_equal_numbers(value: float) -> None:
    assert there_and_back(Int8(), vector(value, value, value)).tolist() == vector(value, value, value).tolist()


def test_the_largest_numbers_are_kept_and_the_others_are_0() -> None:
    # Half of five numbers, rounded up, are three.
    assert there_and_back(TopK(0.5), vector(1.0, -5.0, 0.5, 3.0, -2.0)).tolist() == [0.0, -5.0, 0.0, 3.0, -2.0]
    assert TopK(0.5).nbytes(5) == 3 * 8
    assert TopK(0.01).nbytes(5) == 8
    assert there_and_back(TopK(1.0), vector(1.0, 2.0)).tolist() == [1.0, 2.0]


def test_what_is_lost_is_sent_later() -> None:
    """Top one of two numbers: 3 is sent first; 2, left over twice, is 4 in the second step and goes before 3."""
    feedback = ErrorFeedback(TopK(0.5))
    found = {"actor": np.zeros(2, np.float32)}
    sent = []
    for _ in range(3):
        feedback.decode(feedback.encode("step", {"actor": vector(3.0, 2.0)}, 1.0), found)
        sent.append(found["actor"].tolist())
    assert sent == [[3.0, 0.0], [0.0, 4.0], [6.0, 0.0]]
    # Another phase has an error of its own.
    feedback.decode(feedback.encode("other", {"actor": vector(1.0, 0.5)}, 1.0), found)
    assert found["actor"].tolist() == [1.0, 0.0]


def test_what_counts_nothing_uses_up_no_error_and_leaves_none() -> None:
    """A learner without a row in a minibatch computes a gradient of padding, and whoever gets it multiplies it by 0."""
    feedback = ErrorFeedback(TopK(0.5))
    found = {"actor": np.zeros(2, np.float32)}
    feedback.encode("step", {"actor": vector(3.0, 2.0)}, 8.0)
    feedback.decode(feedback.encode("step", {"actor": vector(-90.0, 80.0)}, 0.0), found)
    assert found["actor"].tolist() == [0.0, 0.0]
    feedback.decode(feedback.encode("step", {"actor": vector(3.0, 2.0)}, 8.0), found)
    assert found["actor"].tolist() == [0.0, 4.0]


def test_with_feedback_nothing_is_lost_for_good() -> None:
    generator = np.random.default_rng(1)
    for compression in (TopK(0.1), Int8()):
        feedback, whole, sent = ErrorFeedback(compression), np.zeros(50), np.zeros(50)
        found = {"actor": np.zeros(50, np.float32)}
        for _ in range(400):
            gradient = generator.normal(0.1, 1.0, 50).astype(np.float32)
            feedback.decode(feedback.encode("step", {"actor": gradient}, 1.0), found)
            whole += gradient
            sent += found["actor"]
        assert np.abs(whole - sent).max() < 20.0
        assert np.abs(whole).max() > 40.0


def test_all_learners_get_the_same_bits_and_the_weighted_mean_of_what_was_sent(segment) -> None:
    specs = (ArraySpec("actor", (64,), "float32"),)
    shared = segment(Rounds.required(2, specs))
    gradients = [vector(8.0, 1.0, 0.0, 0.0), vector(0.0, 1.0, 0.0, 4.0)]

    def learner(number: int) -> tuple[list[float], int]:
        team = AllReduce(
            Rounds(shared.bytes, 2, specs, number),
            me=number,
            alive=lambda: False,
            compressed=ErrorFeedback(TopK(0.25)),
        )
        team.join({"actor": np.zeros(64, np.float32)})
        found = team("step", {"actor": gradients[number]}, (3.0, 1.0)[number])["actor"].tolist()
        assert team.mean({"value": vector(float(number))}, (3.0, 1.0)[number])["value"].tolist() == [0.25]
        return found, team.sent()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(learner, range(2))
    # 3/4 of 8 at place 0, 1/4 of 4 at place 3; one pair of 8 bytes each.
    assert first == second == ([6.0, 0.0, 0.0, 1.0], 8)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("topk:0", "above 0"),
        ("topk:2", r"up to 0\.5"),
        ("topk:", r"takes a share, as topk:0\.05, not nothing$"),
        ("topk:1e", r"--compress topk:1e: topk takes a share, as topk:0\.05, not 1e$"),
        ("int8:3", "no argument"),
    ],
)
def test_a_compression_that_cannot_be_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        compression_of(text)
    assert compression_of("none") is None
