"""Minibatches that are sampled on demand, or ahead of time while the learner uses the one before."""

import threading

import numpy as np
import pytest
import torch

from penstock.errors import ResourceError
from penstock.nodes.learner.sampling import AHEAD_FROM_BYTES, Ahead, AtOnce, Sampled, SampleSpec, sampling
from penstock.types import ArraySpec
from penstock.updates.inbox import Inbox

SIZE = 4


class Numbers:
    """Takes the place of a sampler: each minibatch holds the arguments of its request."""

    def __init__(self):
        self.asked = []
        self.threads = set()
        self.may_sample = threading.Event()
        self.may_sample.set()

    def sample(self, key, out, before, beta):
        assert self.may_sample.wait(90)
        if before == [0]:
            raise ResourceError("there is nothing to sample")
        self.asked.append((key, tuple(before), beta))
        self.threads.add(threading.get_ident())
        out["obs"][...] = key[1]
        out["index"][...] = key[1] + 100
        out["stamp"][...] = before[0]


def arrays():
    return {"obs": np.zeros(SIZE, np.float32)}


def buffer():
    return Sampled(arrays(), {name: np.zeros(SIZE, np.int64) for name in ("index", "stamp")})


def ahead(sampler):
    return Ahead(sampler, [buffer() for _ in range(3)])


def wanted(step, before=(9,), beta=0.0):
    return SampleSpec((7, step), before, beta)


@pytest.mark.parametrize("make", [lambda sampler: AtOnce(sampler, buffer()), ahead])
def test_each_minibatch_is_the_one_that_was_asked_for(make):
    sampler = Numbers()
    made = make(sampler)
    for step in range(20):
        then = wanted(step + 1) if step % 5 != 4 else None
        sampled = made.take(wanted(step), then)
        assert (sampled.rows["obs"] == step).all()
        assert (sampled.places["index"] == step + 100).all()
        assert (sampled.places["stamp"] == 9).all()
    assert [key for key, _, _ in sampler.asked] == [(7, step) for step in range(20)]


def test_what_is_known_of_the_next_is_sampled_in_another_thread_and_nothing_twice():
    sampler = Numbers()
    made = ahead(sampler)
    for step in range(10):
        made.take(wanted(step), wanted(step + 1))
    made.settle()
    assert len(sampler.asked) == 11
    assert len(sampler.threads) == 2


def test_what_was_sampled_for_other_rows_is_not_taken():
    sampler = Numbers()
    made = ahead(sampler)
    made.take(wanted(0), wanted(1))
    sampled = made.take(wanted(1, before=(10,)), None)
    assert (sampled.places["stamp"] == 10).all()
    made.take(wanted(2), wanted(3, beta=0.5))
    made.take(wanted(3, beta=0.6), None)
    assert sampler.asked[-1] == ((7, 3), (9,), 0.6)


def test_a_minibatch_stays_as_it_is_until_the_next_but_one_is_taken():
    sampler = Numbers()
    made = ahead(sampler)
    first = made.take(wanted(0), wanted(1))
    second = made.take(wanted(1), wanted(2))
    made.settle()
    assert (first.rows["obs"] == 0).all()
    assert (second.rows["obs"] == 1).all()


def test_settled_means_that_nothing_is_being_sampled():
    sampler = Numbers()
    made = ahead(sampler)
    made.take(wanted(0), None)
    made.settle()
    sampler.may_sample.clear()
    threading.Timer(0.05, sampler.may_sample.set).start()
    # Samples at once, behind the timer, and then what comes next.
    made.take(wanted(1), wanted(2))
    made.settle()
    assert sampler.asked[-1][0] == (7, 2)


def test_what_cannot_be_sampled_is_said_where_it_is_wanted():
    made = ahead(Numbers())
    made.take(wanted(0), wanted(1, before=(0,)))
    with pytest.raises(ResourceError, match="nothing to sample"):
        made.take(wanted(1, before=(0,)), None)
    assert (made.take(wanted(2), None).rows["obs"] == 2).all()


@pytest.mark.parametrize(
    ("nbytes", "device", "kind"),
    [
        (AHEAD_FROM_BYTES - 8, "cpu", AtOnce),
        (AHEAD_FROM_BYTES, "cpu", Ahead),
        (8, "cuda", Ahead),
        (8, "cuda:1", Ahead),
    ],
)
def test_what_is_quickly_sampled_here_is_sampled_at_once(nbytes, device, kind):
    assert isinstance(sampling(Numbers(), lambda: {"obs": np.zeros(nbytes, np.uint8)}, SIZE, device=device), kind)


@pytest.mark.parametrize("size", [SIZE, AHEAD_FROM_BYTES // 4])
def test_what_is_learned_from_in_one_place_stays_while_the_next_is_sampled(size):
    specs = [ArraySpec(name, (), "float32") for name in ("obs", "weight")]
    rows = {spec.name: torch.zeros(size) for spec in specs}
    inbox = Inbox(specs, size, 1, torch.device("cpu"), across_minibatch=None, rows=rows)
    made = sampling(Numbers(), inbox.buffers, size, device="cpu")
    for step in range(8):
        (part,) = inbox.take(made.take(wanted(step), wanted(step + 1)).rows)
        if part is not rows:
            rows["obs"].copy_(part["obs"])
        made.settle()
        assert (rows["obs"] == step).all()
