"""Native learners of a stream that step together: equal to the bit, and equal to one with all rows, on any backend."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from penstock.algorithm_lookup import find_algorithm
from penstock.gradient_exchange.all_reduce import AllReduce
from penstock.gradient_exchange.feedback import ErrorFeedback
from penstock.memory.rounds import Rounds
from penstock.registry import UPDATES, compression_of, load
from penstock.updates.settings import UpdaterSettings
from tests.algorithms.loop import Target, allocate, collect

TASK = Target()
STEPS, LANES = 10, 6


class Case:
    """One batch of an algorithm, and the units of its minibatches."""

    def __init__(self, algo: str) -> None:
        torch.set_num_threads(1)
        self.package = find_algorithm(algo)
        rows = 3 * STEPS if algo == "impala" else 12
        self.config = self.package.config(
            num_steps=STEPS, mini_batch_size=rows, lr=1e-3, normalize_obs=True, normalize_value=True
        )
        self.spec = load(self.package.spec)(TASK.spaces, self.config)
        self.arrays = allocate(TASK.spaces, self.spec, STEPS, LANES)
        algorithm = load(self.package.learn)(TASK.spaces, self.config)
        self.state = load(self.package.initial)(TASK.spaces, self.config, 0)
        collect(TASK, self.spec, algorithm, self.state, self.arrays, np.random.default_rng(0))
        # Lanes of different lengths, so that the shares of a minibatch weigh differently.
        self.arrays["valid"][0, 4:8, 0] = False
        t, lane = np.nonzero(self.arrays["valid"][0, :-1])
        units = np.arange(LANES) if self.spec.unit == "lane" else t * LANES + lane
        self.units = np.random.default_rng(1).permutation(units)
        if self.spec.unit == "row":
            # Of the last minibatch the last learner has no row.
            self.units = np.append(self.units[:54], np.full(6, -1))

    def updater(self, backend: str, exchange=None):
        """An updater that has begun the batch."""
        functions = self.package.fused if UPDATES[backend].native else self.package.learn
        settings = UpdaterSettings(functions, self.config, self.spec, TASK.spaces, "cpu", 1, seed=0)
        updater = load(UPDATES[backend].stream)(settings, self.arrays, exchange)
        updater.load(self.state)
        updater.begin([0], 0.5)
        return updater

    def minibatches(self, count: int):
        """Every minibatch, ``[1, m]``, from ``count`` equal parts of the units."""
        for indices in self.units.reshape(-1, self.spec.schedule.mini_batch_size):
            weights = (indices >= 0).astype(np.float32)
            yield from zip(*(np.split(part[None], count, axis=1) for part in (indices.clip(0), weights)), strict=True)


def learner(case: Case, rounds: Rounds, number: int, count: int, compress: str) -> list[dict[str, np.ndarray]]:
    """One of ``count`` learners: its state after each minibatch, of which it has a share."""
    compression = compression_of(compress)
    team = AllReduce(rounds, me=number, alive=lambda: False, compressed=compression and ErrorFeedback(compression))
    team.join(case.state)
    updater, found = case.updater("fused", team), []
    # Nobody steps before all are members.
    while len(rounds.members()) < count:
        team.admit(case.state)
    for indices, weights in list(case.minibatches(count))[number::count]:
        updater.minibatches(indices, weights)
        found.append({name: values.copy() for name, values in updater.state().items()})
    assert "policy_loss" in updater.metrics()
    team.leave()
    return found


def together(case: Case, segment, count: int, compress: str = "none"):
    shared = segment(Rounds.required(count, case.spec.state))
    with ThreadPoolExecutor(count) as pool:
        rounds = [Rounds(shared.bytes, count, case.spec.state, number) for number in range(count)]
        return list(pool.map(lambda number: learner(case, rounds[number], number, count, compress), range(count)))


@pytest.mark.parametrize("algo", ["ppo", "a2c", "impala", "appo"])
def test_shares_are_the_bits_of_each_other_and_the_steps_of_one_learner(segment, algo: str) -> None:
    case = Case(algo)
    found = together(case, segment, 3)
    one = {backend: case.updater(backend) for backend in ("fused", "eager")}
    for step, (indices, weights) in enumerate(case.minibatches(1)):
        for updater in one.values():
            updater.minibatches(indices, weights)
        states = [others[step] for others in found]
        for name, values in states[0].items():
            assert all(values.tobytes() == state[name].tobytes() for state in states[1:]), (name, step)
            for backend, updater in one.items():
                np.testing.assert_allclose(values, updater.state()[name], rtol=2e-4, atol=2e-6, err_msg=backend)
    assert not np.array_equal(found[0][-1]["actor"], case.state["actor"])


@pytest.mark.parametrize("compress", ["int8", "topk:0.1"])
def test_compressed_gradients_leave_the_learners_equal_to_the_bit(segment, compress: str) -> None:
    first, second = together(Case("appo"), segment, 2, compress)
    for one, other in zip(first, second, strict=True):
        assert all(one[name].tobytes() == values.tobytes() for name, values in other.items())
