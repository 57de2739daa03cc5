"""Gradients that are handed on one step at a time, and applied by the node that owns the parameters."""

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.gradient_exchange.feedback import ErrorFeedback
from penstock.gradient_exchange.gradients import GradientStream, Learner
from penstock.gradient_exchange.int8 import Int8
from penstock.gradient_exchange.top_k import TopK
from penstock.kernels.noise import generate
from penstock.memory.board import Board
from penstock.memory.stream import Stream
from penstock.nodes.learner.gradient_slot import board_specs, gradients_in, ranked_specs, slot_specs
from penstock.seeding import phase_seed
from penstock.updates.eager import build_applier, build_follower
from tests.updates import tracking

ROWS = 8
STATE = tracking.spec(ROWS).shared()
SLOTS = 3
LEARNERS = 2


class Writer:
    """The writing end of a stream, as a scheduler hands it out."""

    def __init__(self, stream, owner):
        self.stream, self.owner = stream, owner
        self.slots, self.slot, self.written = SLOTS, stream.slot, stream.written

    def claim(self, sequence):
        return self.stream.claim(self.owner, sequence)

    def push(self, index):
        self.stream.push(index, self.owner)


@pytest.fixture
def stream(segment):
    return Stream(segment(Stream.required(slot_specs(STATE), SLOTS)).bytes, slot_specs(STATE), SLOTS)


@pytest.fixture
def board(segment):
    specs = board_specs(STATE, LEARNERS)
    return Board(segment(Board.required(specs)).bytes, specs)


def initial():
    return {part.name: np.zeros(part.shape, part.dtype) for part in STATE} | tracking.init_state(0)


def team(stream, board, learner, owner=None, stopping=False, **pace):
    writer = Writer(stream, 10 + learner if owner is None else owner)
    return GradientStream(writer, board, STATE, Learner(learner, LEARNERS, lambda: stopping, **pace))


def publish(board, master, settled=(0, 0)):
    state = master.state()
    board.publish({**state, "settled": np.array(settled)}, int(state["gradient_steps"]))


def learner_of(part, learner=0):
    updater = build_follower(tracking.settings(ROWS, learner=learner), part)
    updater.load(part.join(initial()))
    return updater


def master_of():
    master = build_applier(tracking.settings(ROWS))
    master.load(initial())
    return master


def test_a_learner_finds_every_phase_on_what_was_published_and_its_master_steps(stream, board) -> None:
    """The rule by hand: both phases' gradients are of the parameters that the step began with."""
    master, config = master_of(), tracking.Config()
    publish(board, master)
    part = team(stream, board, 0)
    learner = learner_of(part)
    critic, actor = (initial()[name].astype(np.float64) for name in ("critic", "actor"))
    for step in range(5):
        minibatch = tracking.minibatch(ROWS, step)
        assert part.begin(learner)
        learner.learn(minibatch, 0.5)
        part.end()
        index = stream.take(1)
        slot = stream.slot(index)
        assert (int(slot["learner"]), int(slot["step"]), int(slot["version"])) == (0, step + 1, step)
        found = gradients_in(slot, STATE)
        assert set(found) == ({"critic", "actor"} if step % 2 == 0 else {"critic"})
        master.apply(found, 0.5)
        stream.release(index, 1)
        publish(board, master, (step + 1, 0))
        share, obs = minibatch["weight"] / minibatch["weight"].sum(), minibatch["obs"].astype(np.float64)
        noise = generate(tracking.NOISE, phase_seed(3, 0, 0), np.arange(ROWS), step)
        error = obs @ critic + config.noise * noise - minibatch["reward"]
        towards = (share * (obs @ (actor - critic))) @ obs
        critic = critic - config.lr * (share * error) @ obs
        if step % 2 == 0:
            actor = actor - 0.5 * config.lr * towards
        np.testing.assert_allclose(master.state()["critic"], critic, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(master.state()["actor"], actor, rtol=1e-4, atol=1e-6)


def test_a_learner_that_finds_nothing_new_published_finds_again_from_the_same(stream, board) -> None:
    publish(board, master_of())
    part = team(stream, board, 0)
    learner = learner_of(part)
    found = []
    for _ in range(2):
        assert part.begin(learner)
        learner.learn(tracking.minibatch(ROWS), 0.5)
        part.end()
        index = stream.take(1)
        slot = stream.slot(index)
        assert int(slot["version"]) == 0
        found.append(learner.state()["critic"].tobytes())
        stream.release(index, 1)
    assert found == [initial()["critic"].tobytes()] * 2


@pytest.mark.parametrize("before", [0, 1])
def test_learners_come_to_a_delayed_phase_as_often_as_one_does(stream, board, before: int) -> None:
    master = master_of()
    for _ in range(before):
        master.apply({}, 0.0)
    publish(board, master)
    teams = [team(stream, board, number) for number in range(LEARNERS)]
    learners = [learner_of(part, number) for number, part in enumerate(teams)]
    actor = []
    for step in range(10):
        for part, learner in zip(teams, learners, strict=True):
            # Both begin with the same parameters, so the count of all is even at each of their steps, or odd at each.
            assert part.begin(learner)
        for part, learner in zip(teams, learners, strict=True):
            learner.learn(tracking.minibatch(ROWS, step), 0.0)
            part.end()
            index = stream.take(1)
            found = gradients_in(stream.slot(index), STATE)
            actor.append("actor" in found)
            master.apply(found, 0.0)
            stream.release(index, 1)
        publish(board, master, (step + 1, step + 1))
    assert sum(actor) == len(actor) / 2


@pytest.mark.parametrize(
    ("pace", "found_on"),
    [
        # The board is at 0, 1, 2, ... when the steps begin.
        ({}, [0, 1, 2, 3, 4, 5, 6]),
        # Version 3 is the first that is more than 2 ahead of 0, version 6 of 3.
        ({"pull_after": 2}, [0, 0, 0, 3, 3, 3, 6]),
    ],
)
def test_a_learner_takes_newer_parameters_at_its_pace(stream, board, pace, found_on) -> None:
    master = master_of()
    publish(board, master)
    part = team(stream, board, 0, **pace)
    learner = learner_of(part)
    found = []
    for step in range(len(found_on)):
        assert part.begin(learner)
        learner.learn(tracking.minibatch(ROWS, step), 0.0)
        part.end()
        index = stream.take(1)
        found.append(int(stream.slot(index)["version"]))
        stream.release(index, 1)
        master.apply({}, 0.0)
        publish(board, master)
    assert found == found_on


def test_a_learner_that_waits_hands_on_one_gradient_for_each_version(stream, board) -> None:
    master = master_of()
    publish(board, master)
    part = team(stream, board, 0, waits=True)
    learner = learner_of(part)
    for version in range(3):
        assert part.begin(learner)
        assert part.begin(learner)  # asked again before it began
        learner.learn(tracking.minibatch(ROWS), 0.0)
        part.end()
        assert not part.begin(learner)
        assert part.in_flight()
        index = stream.take(1)
        assert int(stream.slot(index)["version"]) == version
        stream.release(index, 1)
        assert not part.in_flight()
        master.apply({}, 0.0)
        publish(board, master)


def test_arrays_that_are_watched_belong_to_the_parameters_that_were_taken(stream, board) -> None:
    master, settled = master_of(), np.zeros(LEARNERS, np.int64)
    publish(board, master, (3, 4))
    part = team(stream, board, 0, pull_after=1)
    part.watch({"settled": settled})
    learner = learner_of(part)
    assert settled.tolist() == [3, 4]
    for expected in ([3, 4], [5, 6]):
        master.apply({}, 0.0)
        publish(board, master, (5, 6))
        assert part.begin(learner)
        assert settled.tolist() == expected


@pytest.mark.parametrize(("compression", "nbytes"), [(None, 16), (Int8(), 8 + 4), (TopK(0.25), 8)])
def test_gradients_arrive_as_they_were_encoded_and_what_is_lost_comes_later(segment, board, compression, nbytes):
    """Four numbers a network. The largest of 8, 1, 0 and -2 is sent first; the leftover of -2 twice is -4, then."""
    specs = slot_specs(STATE, compression)
    stream = Stream(segment(Stream.required(specs, SLOTS)).bytes, specs, SLOTS)
    write = {} if compression is None else {"write": ErrorFeedback(compression).write}
    part = GradientStream(Writer(stream, 10), board, STATE, Learner(0, LEARNERS, lambda: False), **write)
    publish(board, master_of())
    learner = learner_of(part)
    gradients = [np.array(values, np.float32) for values in ([8.0, 1.0, 0.0, -2.0], [0.0, 0.0, 0.0, -2.0])]
    arrived = []
    for gradient in gradients:
        assert part.begin(learner)
        part("critic", {"critic": gradient}, 3.0)
        part.end()
        index = stream.take(1)
        slot = stream.slot(index)
        assert (int(slot["sent"]), float(slot["weight"])) == (nbytes, 3.0)
        arrived.append(gradients_in(slot, STATE, compression)["critic"]["critic"].copy())
        stream.release(index, 1)
    assert part.sent() == 2 * nbytes
    if isinstance(compression, TopK):
        assert [found.tolist() for found in arrived] == [[8.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, -4.0]]
    else:
        # Eight bits of a range of 10 err by 0.02 at most, and what they err by comes back.
        np.testing.assert_allclose(sum(arrived), sum(gradients), atol=0.02)


def test_a_learner_waits_where_its_gradients_are_not_taken(stream, board) -> None:
    publish(board, master_of())
    part = team(stream, board, 0)
    learner = learner_of(part)
    for step in range(SLOTS):
        assert part.begin(learner)
        assert part.begin(learner)  # asked again before it began
        learner.learn(tracking.minibatch(ROWS, step), 0.0)
        part.end()
    assert not part.begin(learner)
    stream.release(stream.take(1), 1)
    assert part.begin(learner)


def test_what_a_learner_handed_on_tells_which_parameters_it_came_from(stream, board) -> None:
    master = master_of()
    publish(board, master)
    slow, fast = team(stream, board, 0), team(stream, board, 1)
    learners = [learner_of(slow), learner_of(fast, 1)]
    assert slow.begin(learners[0])
    for step in range(2):
        assert fast.begin(learners[1])
        learners[1].learn(tracking.minibatch(ROWS, step), 0.0)
        fast.end()
        index = stream.take(1)
        master.apply(gradients_in(stream.slot(index), STATE), 0.0)
        stream.release(index, 1)
        publish(board, master, (0, step + 1))
    learners[0].learn(tracking.minibatch(ROWS, 5), 0.0)
    slow.end()
    slot = stream.slot(stream.take(1))
    assert (int(slot["learner"]), int(slot["version"])) == (0, 0)
    assert int(master.state()["gradient_steps"]) - int(slot["version"]) == 2
    assert slow.begin(learners[0])
    assert learners[0].state()["critic"].tobytes() == master.state()["critic"].tobytes()


def test_a_new_life_counts_on_behind_what_was_handed_on_or_settled(stream, board) -> None:
    publish(board, master_of())
    first = team(stream, board, 1)
    learner = learner_of(first)
    for _ in range(2):
        assert first.begin(learner)
        learner.learn(tracking.minibatch(ROWS), 0.0)
        first.end()
    assert first.begin(learner)  # and dies
    stream.recover(11)
    second = team(stream, board, 1, owner=20)
    learner = learner_of(second)
    assert second.begin(learner)
    learner.learn(tracking.minibatch(ROWS), 0.0)
    second.end()
    steps = [int(stream.slot(stream.take(1))["step"]) for _ in range(3)]
    assert sorted(steps) == [1, 2, 3]
    publish(board, master_of(), (0, 7))
    third = team(stream, board, 1, owner=30)
    learner_of(third)
    for index in range(3):
        stream.release(index, 1)
    assert third.begin(learner)
    third.end()
    assert int(stream.slot(stream.take(1))["step"]) == 8


def test_nobody_waits_for_parameters_where_the_run_is_to_end(stream, board) -> None:
    assert team(stream, board, 0, stopping=True).join(initial()) is None


def test_gradients_outside_of_a_step_are_refused(stream, board) -> None:
    with pytest.raises(PenstockError, match="outside of a step"):
        team(stream, board, 0)("critic", {}, 1.0)


def test_what_is_the_optimizers_own_is_neither_told_nor_overwritten(stream, board, segment) -> None:
    own = {"critic"}
    shared = tuple(part for part in STATE if part.name not in own)
    narrow = board_specs(shared, LEARNERS)
    told = Board(segment(Board.required(narrow)).bytes, narrow)
    master = master_of()
    publish(told, master)
    part = GradientStream(Writer(stream, 10), told, shared, Learner(0, LEARNERS, lambda: False))
    mine = initial() | {"critic": np.full_like(initial()["critic"], 7.0)}
    joined = part.join(mine)
    assert joined is not None
    assert np.array_equal(joined["critic"], mine["critic"])
    learner = build_follower(tracking.settings(ROWS), part)
    learner.load(joined)
    master.apply({"actor": {"actor": np.ones(tracking.SIZE, np.float32)}}, 0.5)
    publish(told, master)
    assert part.begin(learner)
    assert np.array_equal(learner.state()["critic"], mine["critic"])
    assert np.array_equal(learner.state()["actor"], master.state()["actor"])


@pytest.mark.parametrize("room", [True, False])
def test_new_priorities_go_with_the_gradients_if_slots_have_room_for_them(segment, board, room: bool) -> None:
    specs = (*slot_specs(STATE), *(ranked_specs(2) if room else ()))
    stream = Stream(segment(Stream.required(specs, SLOTS)).bytes, specs, SLOTS)
    publish(board, master_of())
    part = team(stream, board, 0)
    learner = learner_of(part)
    given = {"row": np.array([7, 3]), "stamp": np.array([1, 0]), "priority": np.array([0.5, 2.0])}
    with pytest.raises(PenstockError, match="no step has begun"):
        part.ranked(*given.values())
    assert part.begin(learner)
    learner.learn(tracking.minibatch(ROWS), 0.0)
    part.ranked(*given.values())
    part.end()
    slot = stream.slot(stream.take(1))
    assert {name: slot[name].tolist() for name in given if name in slot} == (
        {name: values.tolist() for name, values in given.items()} if room else {}
    )
