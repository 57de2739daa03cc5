"""The weight of the penalty on the divergence: by hand, and only where a schedule asks for it."""

import numpy as np
import pytest

from penstock.algorithm import Schedule
from penstock.nodes.learner.penalty import LEAST, MOST, adapt, adapted
from penstock.types import Arrays

ASKED = Schedule(1, 1, kl_target=0.02)


class Holder:
    """In place of an updater: one array."""

    def __init__(self) -> None:
        self.arrays: Arrays = {"kl_coef": np.array(0.5, np.float32)}

    def state(self) -> Arrays:
        return self.arrays

    def load(self, state: Arrays) -> None:
        self.arrays |= state


@pytest.mark.parametrize(
    ("kl", "expected"),
    [(0.031, 1.0), (0.029, 0.5), (0.02, 0.5), (0.014, 0.5), (0.013, 0.25), (0.0, 0.25), (np.inf, 1.0), (np.nan, 0.5)],
)
def test_the_weight_doubles_above_one_and_a_half_targets_and_is_halved_below_two_thirds(kl, expected) -> None:
    assert adapted(0.5, kl, 0.02) == expected


def test_the_weight_never_becomes_0_or_infinite() -> None:
    low = high = 1.0
    for _ in range(200):
        low, high = adapted(low, 0.0, 0.02), adapted(high, 1.0, 0.02)
    assert (low, high) == (LEAST, MOST)


@pytest.mark.parametrize(
    ("schedule", "metrics", "expected"),
    [
        (ASKED, {"kl": 0.5}, 1.0),
        (ASKED, {"approx_kl": 0.5}, 0.5),
        (ASKED, {}, 0.5),
        (Schedule(1, 1), {"kl": 0.5}, 0.5),
    ],
)
def test_a_batch_changes_the_weight_only_if_the_schedule_asks_for_it(schedule, metrics, expected) -> None:
    holder = Holder()
    adapt(holder, schedule, metrics)
    assert holder.arrays["kl_coef"] == expected
    assert holder.arrays["kl_coef"].dtype == np.float32
