"""Answerer: greedy actions of a policy for one batch. Has no sockets, queues or sessions; front and workers use it."""

from collections import OrderedDict
from typing import NamedTuple, Protocol

import numpy as np

from penstock.policies.batch_sizes import BatchSizes
from penstock.types import Array, Arrays, Spaces

__all__ = ["ActingLanes", "Answer", "Answerer", "Questions", "ServedPolicy"]

_KEPT = 8
"""The acting sessions that are kept have together at most so many times ``max_batch`` lanes."""


class ActingLanes(Protocol):
    """What the server needs of `penstock.serving.policy.PolicySession`."""

    @property
    def carry(self) -> Arrays:
        """Name -> ``[n, ...]``."""
        ...

    def answer(self, given: Arrays) -> Array:
        """Actions ``[n, ...]`` for checked observation fields and ``first``."""
        ...


class ServedPolicy(Protocol):
    """What the server needs of `penstock.serving.policy.Policy`."""

    spaces: Spaces

    def session(self, lanes: int = 1) -> ActingLanes:
        """Begin to act in these lanes."""
        ...

    def fields(self, obs: object, action_mask: object = None) -> tuple[Arrays, bool]:
        """Checked observation fields ``[n, ...]``, and whether a batch was given."""
        ...

    def batch(self, action: Array) -> object:
        """Actions ``[n, ...]`` in the form of the action space."""
        ...


class Questions(NamedTuple):
    """What one call of the policy takes: n rows."""

    fields: Arrays
    """Observation field -> ``[n, ...]``."""
    first: Array
    """bool ``[n]``: the row begins an episode, so its carry counts as zero."""
    carry: Arrays
    """Name -> ``[n, ...]``; empty for a policy without memory."""


class Answer(NamedTuple):
    """What one call of the policy gives."""

    action: Array
    """``[n, ...]`` in the environment's own units."""
    carry: Arrays
    """Name -> ``[n, ...]``: what the next question of each row begins with."""


class Answerer:
    """Answers batches of any size up to ``max_batch``. Only one thread at a time may use it.

    Args:
        policy: answers.
        max_batch: rows of the largest batch.
        sizes: to which batches are padded.
    """

    def __init__(self, policy: ServedPolicy, max_batch: int, sizes: BatchSizes) -> None:
        self._policy = policy
        self._sizes = sizes
        self._acting: OrderedDict[int, ActingLanes] = OrderedDict()
        """Number of lanes -> the acting session with so many. The one that was used last stands at the end."""
        self._lanes = 0
        """Of all acting sessions together."""
        self._most_lanes = _KEPT * max_batch

    def answer(self, questions: Questions) -> Answer:
        """Greedy actions. The arrays of the answer are valid until the next call."""
        count = len(questions.first)
        rows = self._sizes.padded(count)
        session = self._acting_in(rows)
        carry = session.carry
        for name, values in questions.carry.items():
            carry[name][:count] = values
            # Nothing of an earlier question stays there.
            carry[name][count:] = 0
        given = {**questions.fields, "first": questions.first}
        action = session.answer({name: _padded(values, rows) for name, values in given.items()})
        return Answer(action[:count], {name: values[:count] for name, values in carry.items()})

    def _acting_in(self, lanes: int) -> ActingLanes:
        """An acting session with so many lanes. Its arrays are made anew only if this size was not asked for lately."""
        session = self._acting.get(lanes)
        if session is not None:
            self._acting.move_to_end(lanes)
            return session
        session = self._acting[lanes] = self._policy.session(lanes)
        self._lanes += lanes
        # One for each size would hold half the square of `max_batch`.
        while self._lanes > self._most_lanes:
            self._lanes -= self._acting.popitem(last=False)[0]
        return session

    def warm_up(self) -> None:
        """Answer one row of zeros, so that the first client does not wait for what is made on first use."""
        fields = {spec.name: np.zeros((1, *spec.shape), spec.dtype) for spec in self._policy.spaces.obs_specs()}
        carry = {name: values.copy() for name, values in self._policy.session(1).carry.items()}
        self.answer(Questions(fields, np.ones(1, np.bool_), carry))


def _padded(values: Array, rows: int) -> Array:
    """``values[n, ...]``, and the last row again up to so many ``rows``: a row that the policy is sure to take."""
    return values if len(values) == rows else np.concatenate([values, np.repeat(values[-1:], rows - len(values), 0)])
