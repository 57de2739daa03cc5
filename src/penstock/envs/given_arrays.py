"""Arrays of numbers from what a client sends or an environment gives, without the memory that text would take.

Does not decide which numbers are right.
"""

from itertools import chain
from typing import Any

import numpy as np

from penstock.types import Array

__all__ = ["array_given"]

_LISTS = (list, tuple)
_TEXTS = (str, bytes, bytearray)
_PLAIN = frozenset({float, int, bool})
_DEEPEST = 64
"""Axes that an array may have. NumPy leaves alone what lies deeper."""


def array_given(given: Any) -> Array:
    """As ``np.asarray``, but of dtype object for text and where a list holds text.

    NumPy would make text of all its numbers, each as wide as the longest one: a request of 100 kB would take
    gigabytes.

    Raises:
        ValueError: it is a list whose rows have different lengths.
    """
    is_list = isinstance(given, _LISTS)
    if (is_list and not _adds_up(given) and _holds_text(given)) or isinstance(given, _TEXTS):
        whole = np.empty((), object)
        whole[()] = given
        return whole
    return np.asarray(given)


def _adds_up(given: Any) -> bool:
    """True if the lists have a sum, so they hold numbers only. This is the fastest way to find that there is no text.

    False: they may hold text.
    """
    try:
        while given and type(given[0]) is list:
            given = list(chain.from_iterable(given))
        # Numbers of NumPy would warn if their sum is too large.
        if given and type(given[0]) in _PLAIN:
            sum(given)
            return True
    except (TypeError, OverflowError):
        pass
    return False


def _holds_text(given: Any, depth: int = 0) -> bool:
    if isinstance(given, _LISTS):
        return depth < _DEEPEST and any(_holds_text(one, depth + 1) for one in given)
    return isinstance(given, _TEXTS)
