"""Learners that step together: equal to the bit, equal to one with all rows, and killed at any moment."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from penstock.gradient_exchange.all_reduce import AllReduce
from penstock.memory.rounds import Rounds
from penstock.updates.eager import build_replay
from tests.gradient_exchange import lockstep
from tests.updates import tracking

ROWS = 12
STATE = tracking.spec(ROWS).state
NAMES = ("actor", "critic", "target")


def never() -> bool:
    return False


def initial():
    state = {part.name: np.zeros(part.shape, part.dtype) for part in STATE}
    return state | tracking.init_state(0)


def learner(shared, count, number, steps, alive=never):
    """One of ``count`` learners: its share of each minibatch; its state after each step."""
    rows = ROWS // count
    team = AllReduce(Rounds(shared.bytes, count, STATE, number), me=number, alive=alive)
    updater = build_replay(tracking.settings(rows, learner=number), team)
    updater.load(team.join(initial()))
    found = []
    for step in range(steps):
        minibatch = tracking.minibatch(ROWS, step)
        # The one with number 0 may not have joined yet.
        while not team.begin(updater):
            time.sleep(0.001)
        updater.learn({name: values[number * rows :][:rows] for name, values in minibatch.items()}, 0.0)
        team.end()
        found.append({name: values.copy() for name, values in updater.state().items()})
    team.leave()
    return found


@pytest.mark.parametrize("count", [2, 3])
def test_learners_with_a_share_each_are_one_learner_with_all_rows(segment, count) -> None:
    steps = 6
    shared = segment(Rounds.required(count, STATE))
    with ThreadPoolExecutor(count) as pool:
        found = list(pool.map(lambda number: learner(shared, count, number, steps), range(count)))
    one = build_replay(tracking.settings(ROWS))
    one.load(initial())
    for step in range(steps):
        one.learn(tracking.minibatch(ROWS, step), 0.0)
        for others in found[1:]:
            assert all(others[step][name].tobytes() == values.tobytes() for name, values in found[0][step].items())
        for name in NAMES:
            np.testing.assert_allclose(found[0][step][name], one.state()[name], rtol=1e-5, atol=1e-6)
        assert int(found[0][step]["gradient_steps"]) == step + 1


def test_the_others_go_on_without_one_that_leaves(segment) -> None:
    shared = segment(Rounds.required(2, STATE))
    with ThreadPoolExecutor(2) as pool:
        longer = pool.submit(learner, shared, 2, 0, 8)
        shorter = pool.submit(learner, shared, 2, 1, 3)
        found = longer.result(), shorter.result()
    assert [len(states) for states in found] == [8, 3]
    assert found[0][2]["critic"].tobytes() == found[1][2]["critic"].tobytes()


def test_a_newcomer_is_not_let_in_where_the_run_is_to_end(segment) -> None:
    shared = segment(Rounds.required(2, STATE))
    with ThreadPoolExecutor(2) as pool:
        for number in range(2):
            pool.submit(learner, shared, 2, number, 1)
    team = AllReduce(Rounds(shared.bytes, 2, STATE, 1), me=1, alive=lambda: True)
    assert team.join(initial()) is None
    keeper = AllReduce(Rounds(shared.bytes, 2, STATE, 0), me=0, alive=lambda: True)
    assert keeper.join(initial()) is not None


def test_learners_killed_at_any_moment_leave_the_others_equal(segment, program) -> None:
    shared = segment(lockstep.NBYTES)
    last, noted = lockstep.notes(shared.bytes)
    last[0] = lockstep.NOTED - 1
    generator = random.Random(5)

    def start(number):
        return program(f"from tests.gradient_exchange import lockstep\nlockstep.learn(memory, {number})", shared)

    def until(condition):
        while not condition():
            time.sleep(0.001)

    learners = [start(number) for number in range(lockstep.COUNT)]
    until(lambda: noted[:, 0].min() > 0)
    for _ in range(5):
        number = generator.randrange(lockstep.COUNT)
        time.sleep(generator.random() / 20)
        learners[number].kill()
        learners[number].wait()
        Rounds(shared.bytes, lockstep.COUNT, lockstep.STATE, number).remove()
        before = noted[:, 0].max()
        learners[number] = start(number)
        until(lambda: noted[number, 0] > before)  # noqa: B023 - called at once
    last[0] = noted[:, 0].max() + 1000
    assert [one.wait(120) for one in learners] == [0] * lockstep.COUNT
    steps = noted[:, 1 : last[0] + 1]
    here = steps.max(0)
    assert (here > 0).all()
    assert ((steps == 0) | (steps == here)).all()
    assert (steps[:, -1] > 0).all()
    assert (steps == 0).any()
    assert Rounds(shared.bytes, lockstep.COUNT, lockstep.STATE, 0).members() == []
