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


class Addressed(Rounds):
    """Rounds that note to whom a member sends how many bytes."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.noted: list[tuple[list[int], int]] = []

    def send(self, arrays, weight, to=None) -> None:
        if to is not None:
            self.noted.append((list(to), sum(values.nbytes for values in arrays)))
        super().send(arrays, weight, to)


def test_four_learners_come_nearer_to_each_other_with_each_round(segment) -> None:
    """The states are 0, 1, 2, 3, and each mean is that of a learner and its two neighbours.

    Round 1: (3 + 0 + 1) / 3 = 4/3, (0 + 1 + 2) / 3 = 1, (1 + 2 + 3) / 3 = 2, (2 + 3 + 0) / 3 = 5/3.
    Round 2: (5/3 + 4/3 + 1) / 3 = 12/9, (4/3 + 1 + 2) / 3 = 13/9, (1 + 2 + 5/3) / 3 = 14/9, and 15/9.
    Round 3: (15 + 12 + 13) / 27, (12 + 13 + 14) / 27, (13 + 14 + 15) / 27, (14 + 15 + 12) / 27.
    The mean of all stays 3/2, and the largest difference falls from 3 to 1, 1/3 and 1/9.
    """
    rounds = [[4 / 3, 1, 2, 5 / 3], [12 / 9, 13 / 9, 14 / 9, 15 / 9], [40 / 27, 39 / 27, 42 / 27, 41 / 27]]
    shared = segment(Rounds.required(4, STATE))

    def learner(me: int) -> tuple[list[list[float]], list[int], list[tuple[list[int], int]]]:
        held, end = Held(me), Addressed(shared.bytes, 4, STATE, me)
        team = Gossip(end, me=me, alive=lambda: False)
        team.enter(held.state())
        states, sent = [], []
        for _ in rounds:
            team.settle(held)
            states.append(held.values["actor"].tolist())
            sent.append(team.sent())
        return states, sent, end.noted

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(learner, range(4)))
    near = [[0, 1, 3], [0, 1, 2], [1, 2, 3], [0, 2, 3]]
    for me, (states, sent, noted) in enumerate(found):
        expected = [[of_all[me], 10 * of_all[me]] for of_all in rounds]
        np.testing.assert_allclose(states, expected, rtol=1e-6)
        # Two numbers of four bytes, to the two neighbours; the whole number of the state goes to nobody.
        assert sent == [8] * 3
        assert noted == [(near[me], 8)] * 3


def test_a_ring_of_one_or_two_counts_nobody_twice() -> None:
    assert neighbours([0], 0) == [0]
    assert neighbours([0, 2], 1) == [0, 2]
    assert neighbours([0, 1, 2, 5], 3) == [0, 2, 5]
