"""Learners that take the mean of their state and their neighbours', by hand."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from penstock.gradient_exchange.gossip import Gossip, neighbours
from penstock.memory.rounds import Rounds
from penstock.types import ArraySpec

STATE = (ArraySpec("actor", (2,), "float32"), ArraySpec("step", (), "int64"))


class Held:
    """An updater with a state and nothing else."""

    def __init__(self, number: int) -> None:
        self.values = {"actor": np.array([number, 10 * number], np.float32), "step": np.array(number)}

    def state(self):
        return self.values

    def load(self, state) -> None:
        self.values |= state


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (2, [0.5, 0.5]),
        (3, [1.0, 1.0, 1.0]),
        # 0, 1, 2, 3, 4 in a ring: the neighbours of 0 are 4 and 1, those of 4 are 3 and 0.
        (5, [5 / 3, 1.0, 2.0, 3.0, 7 / 3]),
    ],
)
def test_each_takes_the_mean_of_itself_and_its_neighbours(segment, count: int, expected: list[float]) -> None:
    shared = segment(Rounds.required(count, STATE))

    def learner(number: int) -> list[float]:
        held = Held(number)
        team = Gossip(Rounds(shared.bytes, count, STATE, number), me=number, alive=lambda: False)
        team.enter(held.state())
        own = {"actor": np.array([7.0, number], np.float32)}
        assert team("step", own, 1.0) is own
        # Without a row of the minibatch it is a gradient of padding.
        assert team("step", own, 0.0)["actor"].tolist() == [0.0, 0.0]
        team.settle(held)
        assert team.sent() == 8
        assert held.values["step"] == number
        return held.values["actor"].tolist()

    with ThreadPoolExecutor(count) as pool:
        found = list(pool.map(learner, range(count)))
    np.testing.assert_allclose([one[0] for one in found], expected, rtol=1e-6)
    np.testing.assert_allclose([one[1] for one in found], np.multiply(10, expected), rtol=1e-6)


def test_a_ring_of_one_or_two_counts_nobody_twice() -> None:
    assert neighbours([0], 0) == [0]
    assert neighbours([0, 2], 1) == [0, 2]
    assert neighbours([0, 1, 2, 5], 3) == [0, 2, 5]
