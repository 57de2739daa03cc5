"""Each rule of exchange over shared memory and over a transport of a user's own, with numbers worked out by hand.

Those that meet in rounds run over gloo, too.
"""

from collections.abc import Callable
from queue import SimpleQueue

import numpy as np
import pytest

from penstock.gradient_exchange.all_reduce import AllReduce
from penstock.gradient_exchange.feedback import ErrorFeedback
from penstock.gradient_exchange.gossip import Gossip
from penstock.gradient_exchange.gradients import GradientStream, Learner
from penstock.gradient_exchange.hogwild import Hogwild
from penstock.gradient_exchange.top_k import TopK
from penstock.memory.board import Board
from penstock.memory.rounds import Rounds
from penstock.memory.stream import Stream
from penstock.nodes.learner.gradient_slot import board_specs, gradients_in, slot_specs
from penstock.nodes.ports import RoundsPort
from penstock.types import ArraySpec
from tests.gradient_exchange.own_transport import OwnStream, QueueRounds
from tests.gradient_exchange.test_gossip import STATE, Held
from tests.gradient_exchange.test_hogwild import TOLD, Writer
from tests.gradient_exchange.test_hogwild import Held as WithMetrics
from tests.gradient_exchange.test_process_group import Notices, entered, member_over_gloo, together

COUNT = 4
"""Learners. In a ring of four each has one that is no neighbour."""
ACTOR = (ArraySpec("actor", (2,), "float32"),)


@pytest.fixture(params=["shared memory", "gloo", "a user's own"])
def rounds(request: pytest.FixtureRequest, segment) -> Callable[[int], RoundsPort]:
    """The end of learner k."""
    shared = segment(Rounds.required(COUNT, STATE))
    board = Notices()
    queues: dict[tuple[int, int], SimpleQueue] = {
        (one, other): SimpleQueue() for one in range(COUNT) for other in range(COUNT)
    }
    made = {
        "shared memory": lambda me: Rounds(shared.bytes, COUNT, STATE, me),
        "gloo": lambda me: member_over_gloo(board, COUNT, STATE, me),
        "a user's own": lambda me: QueueRounds(queues, COUNT, me),
    }
    return made[request.param]


def test_all_reduce_steps_down_the_weighted_mean_of_all(rounds) -> None:
    """Learner k has the gradient (k, 10 k) of k + 1 rows: (0 * 1 + 1 * 2 + 2 * 3 + 3 * 4) / 10 = 2."""

    def learner(me: int) -> tuple[list[float], bytes]:
        team = AllReduce(rounds(me), me=me, alive=lambda: False)
        entered(team, Held(me).state())
        mean = team("policy", {"actor": np.array([me, 10 * me], np.float32)}, me + 1.0)["actor"]
        found = mean.tolist(), mean.tobytes()
        team.settle(Held(me))
        return found

    found = together(*(lambda me=me: learner(me) for me in range(COUNT)))
    for mean, content in found:
        assert mean == pytest.approx([2.0, 20.0], rel=1e-6)
        assert content == found[0][1]


def test_all_reduce_sends_what_a_compression_keeps_and_the_rest_with_the_next_gradient(rounds) -> None:
    """The larger number of each gradient is kept. Of (3, 4) and (3, 0) for all: (0, 4), then (3 + 3, 0)."""

    def learner(me: int) -> list[list[float]]:
        compressed = ErrorFeedback(TopK(0.5))
        team = AllReduce(rounds(me), me=me, alive=lambda: False, compressed=compressed)
        entered(team, Held(me).state())
        given = ([3.0, 4.0], [3.0, 0.0])
        found = [team("policy", {"actor": np.array(one, np.float32)}, 1.0)["actor"].tolist() for one in given]
        team.settle(Held(me))
        return found

    assert together(*(lambda me=me: learner(me) for me in range(COUNT))) == [[[0.0, 4.0], [6.0, 0.0]]] * COUNT


def test_gossip_takes_the_mean_of_neighbours(rounds) -> None:
    """The states are k and 10 k. The neighbours of 0 are 3 and 1, so it gets 4 / 3; and so on round the ring."""
    expected = [4 / 3, 1.0, 2.0, 5 / 3]
    weights = {}

    def learner(me: int) -> list[float]:
        end, held = rounds(me), Held(me)
        team = Gossip(end, me=me, alive=lambda: False)
        entered(team, held.state())
        own = {"actor": np.array([7.0, me], np.float32)}
        assert team("step", own, 1.0) is own
        team.settle(held)
        weights[me] = end.receive((me + 1) % COUNT, 8)
        # The end of another batch, so that none leaves while others still read.
        team.mean({}, 1.0)
        return held.values["actor"].tolist()

    found = together(*(lambda me=me: learner(me) for me in range(COUNT)))
    assert found == [pytest.approx([one, 10 * one], rel=1e-6) for one in expected]
    for me, (weight, payload) in weights.items():
        other = (me + 1) % COUNT
        assert (weight, payload.view(np.float32).tolist()) == (1.0, [other, 10 * other])


@pytest.fixture(params=["shared memory", "a user's own"])
def handed_on(request: pytest.FixtureRequest, segment):
    """A stream of gradients and a board of parameters, with how the owner takes a slot."""
    slots, boards = slot_specs(ACTOR), board_specs((*ACTOR, *TOLD), 1)
    if request.param == "shared memory":
        stream = Stream(segment(Stream.required(slots, 2)).bytes, slots, 2)
        board = Board(segment(Board.required(boards)).bytes, boards)
        return Writer(stream, 10), board, lambda: stream.slot(stream.take(1))
    arrays = [{part.name: np.zeros(part.shape, part.dtype) for part in slots} for _ in range(2)]
    own = OwnStream(arrays)
    return own, Notices(), lambda: own.slot(next(iter(own.written().values())))


def test_the_parameter_server_gets_the_gradient_and_the_version_it_is_of(handed_on) -> None:
    stream, board, take = handed_on
    first = {"actor": np.array([1.0, 2.0], np.float32), "progress": np.array(0.25), "settled": np.zeros(1, np.int64)}
    board.publish(first, 5)
    team, held = GradientStream(stream, board, ACTOR, Learner(0, 1, lambda: False)), WithMetrics()
    held.load(team.join(held.state()))
    assert held.values["actor"].tolist() == [1.0, 2.0]
    assert team.begin(held)
    team("policy", {"actor": np.array([0.5, -4.0], np.float32)}, 3.0)
    team.end()
    slot = take()
    assert gradients_in(slot, ACTOR)["policy"]["actor"].tolist() == [0.5, -4.0]
    assert (float(slot["weight"]), int(slot["step"]), int(slot["version"])) == (3.0, 1, 5)


def test_hogwild_adds_its_step_and_hands_a_note_on(handed_on) -> None:
    """From (1, 2) by (2, 0), while another learner adds (0, 5): (3, 7)."""
    stream, board, take = handed_on
    vector = {"actor": np.array([1.0, 2.0], np.float32)}
    board.publish({**vector, "progress": np.array(0.25), "settled": np.zeros(1, np.int64)}, 0)
    learner = Learner(0, 1, lambda: False)
    team, held = Hogwild(stream, board, TOLD, learner, vector=vector, overwritten=frozenset()), WithMetrics()
    held.load(team.join(held.state()))
    assert team.begin(held)
    vector["actor"] += np.array([0.0, 5.0], np.float32)
    held.values = {**held.values, "actor": held.values["actor"] + np.array([2.0, 0.0], np.float32)}
    team.end()
    assert vector["actor"].tolist() == [3.0, 7.0]
    slot = take()
    assert (int(slot["parts"]), int(slot["step"]), int(slot["sent"])) == (0, 1, 8)
