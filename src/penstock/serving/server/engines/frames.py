"""Frames between the server and its workers: arrays whose names, shapes and dtypes both sides know. Nothing is pickled.

A frame is two unsigned 64-bit integers, the batch's number and its rows n, and the bytes of each array ``[n, ...]``. An
answer with n = 0 has a meaning of its own:

- Number 0: the worker is ready. Batches are numbered from 1.
- Any other number: the policy failed for this batch.
"""

import math
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np

from penstock.serving.server.policy.answering import ServedPolicy
from penstock.types import Array, Arrays, ArraySpec

__all__ = ["HEAD", "Layout", "packed", "size_of", "unpacked"]

HEAD = Struct("<QQ")
"""Number and rows."""


class Layout(NamedTuple):
    """The arrays of one row, in the order in which they travel."""

    questions: tuple[ArraySpec, ...]
    answers: tuple[ArraySpec, ...]

    @classmethod
    def of(cls, policy: ServedPolicy) -> "Layout":
        """The layout for one policy."""
        fields = policy.spaces.obs_specs()
        session = policy.session(1)
        carry = tuple(ArraySpec(name, row.shape[1:], str(row.dtype)) for name, row in session.carry.items())
        zeros = {spec.name: np.zeros((1, *spec.shape), spec.dtype) for spec in fields}
        action = session.answer({**zeros, "first": np.ones(1, np.bool_)})
        return cls(
            (*fields, ArraySpec("first", (), "bool"), *carry),
            (ArraySpec("action", action.shape[1:], str(action.dtype)), *carry),
        )


def size_of(specs: Sequence[ArraySpec], rows: int) -> int:
    """Bytes of the arrays of ``rows`` rows."""
    return rows * sum(math.prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in specs)


def packed(specs: Sequence[ArraySpec], number: int, rows: int, arrays: Mapping[str, Array]) -> bytes:
    """A frame."""
    return b"".join((HEAD.pack(number, rows), *(arrays[spec.name].tobytes() for spec in specs)))


def unpacked(specs: Sequence[ArraySpec], rows: int, body: bytes) -> Arrays:
    """The arrays of a frame's body, as views of it."""
    arrays, start = {}, 0
    for spec in specs:
        count = rows * math.prod(spec.shape)
        arrays[spec.name] = np.frombuffer(body, spec.dtype, count, start).reshape(rows, *spec.shape)
        start += arrays[spec.name].nbytes
    return arrays
