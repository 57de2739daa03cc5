"""Minibatches that are drawn when they are wanted, or while the one before is learned from."""

import threading

import numpy as np
import pytest
import torch

from penstock.errors import ResourceError
from penstock.nodes.learner.drawing import AHEAD_FROM_BYTES, Ahead, AtOnce, Draw, Drawn, drawing
from penstock.types import ArraySpec
from penstock.updates.inbox import Inbox

SIZE = 4


class Numbers:
    """Stands in for a sampler: what it draws says what it was asked for."""

    def __init__(self):
        self.asked = []
        self.threads = set()
        self.may_draw = threading.Event()
        self.may_draw.set()

    def sample(self, key, out, before, beta):
        assert self.may_draw.wait(10)
        if before == [0]:
            raise ResourceError("there is nothing to draw")
        self.asked.append((key, tuple(before), beta))
        self.threads.add(threading.get_ident())
        out["obs"][...] = key[1]
        out["index"][...] = key[1] + 100
        out["stamp"][...] = before[0]


def room():
    return {"obs": np.zeros(SIZE, np.float32)}


def buffer():
    return Drawn(room(), {name: np.zeros(SIZE, np.int64) for name in ("index", "stamp")})


def ahead(sampler):
    return Ahead(sampler, [buffer() for _ in range(3)])


def draw(step, before=(9,), beta=0.0):
    return Draw((7, step), before, beta)


@pytest.mark.parametrize("make", [lambda sampler: AtOnce(sampler, buffer()), ahead])
def test_each_minibatch_is_the_one_that_was_asked_for(make):
    sampler = Numbers()
    made = make(sampler)
    for step in range(20):
        then = draw(step + 1) if step % 5 != 4 else None
        drawn = made.take(draw(step), then)
        assert (drawn.rows["obs"] == step).all()
        assert (drawn.places["index"] == step + 100).all()
        assert (drawn.places["stamp"] == 9).all()
    assert [key for key, _, _ in sampler.asked] == [(7, step) for step in range(20)]


def test_what_is_known_of_the_next_is_drawn_in_another_thread_and_nothing_twice():
    sampler = Numbers()
    made = ahead(sampler)
    for step in range(10):
        made.take(draw(step), draw(step + 1))
    made.settle()
    assert len(sampler.asked) == 11
    assert len(sampler.threads) == 2


def test_what_was_drawn_for_other_rows_is_not_taken():
    sampler = Numbers()
    made = ahead(sampler)
    made.take(draw(0), draw(1))
    drawn = made.take(draw(1, before=(10,)), None)
    assert (drawn.places["stamp"] == 10).all()
    made.take(draw(2), draw(3, beta=0.5))
    made.take(draw(3, beta=0.6), None)
    assert sampler.asked[-1] == ((7, 3), (9,), 0.6)


def test_a_minibatch_stays_as_it_is_until_the_next_but_one_is_taken():
    sampler = Numbers()
    made = ahead(sampler)
    first = made.take(draw(0), draw(1))
    second = made.take(draw(1), draw(2))
    made.settle()
    assert (first.rows["obs"] == 0).all()
    assert (second.rows["obs"] == 1).all()


def test_settled_means_that_nothing_is_being_drawn():
    sampler = Numbers()
    made = ahead(sampler)
    made.take(draw(0), None)
    made.settle()
    sampler.may_draw.clear()
    threading.Timer(0.05, sampler.may_draw.set).start()
    # Draws at once, behind the timer, and then what comes next.
    made.take(draw(1), draw(2))
    made.settle()
    assert sampler.asked[-1][0] == (7, 2)


def test_what_cannot_be_drawn_is_said_where_it_is_wanted():
    made = ahead(Numbers())
    made.take(draw(0), draw(1, before=(0,)))
    with pytest.raises(ResourceError, match="nothing to draw"):
        made.take(draw(1, before=(0,)), None)
    assert (made.take(draw(2), None).rows["obs"] == 2).all()


@pytest.mark.parametrize(
    ("nbytes", "device", "kind"),
    [
        (AHEAD_FROM_BYTES - 8, "cpu", AtOnce),
        (AHEAD_FROM_BYTES, "cpu", Ahead),
        (8, "cuda", Ahead),
        (8, "cuda:1", Ahead),
    ],
)
def test_what_is_quickly_drawn_here_is_drawn_at_once(nbytes, device, kind):
    assert isinstance(drawing(Numbers(), lambda: {"obs": np.zeros(nbytes, np.uint8)}, SIZE, device=device), kind)


@pytest.mark.parametrize("size", [SIZE, AHEAD_FROM_BYTES // 4])
def test_what_is_learned_from_in_one_place_stays_while_the_next_is_drawn(size):
    specs = [ArraySpec(name, (), "float32") for name in ("obs", "weight")]
    rows = {spec.name: torch.zeros(size) for spec in specs}
    inbox = Inbox(specs, size, 1, torch.device("cpu"), rows)
    made = drawing(Numbers(), inbox.room, size, device="cpu")
    for step in range(8):
        (part,) = inbox.take(made.take(draw(step), draw(step + 1)).rows)
        if part is not rows:
            rows["obs"].copy_(part["obs"])
        made.settle()
        assert (rows["obs"] == step).all()
