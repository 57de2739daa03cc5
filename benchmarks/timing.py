"""Timing of things that are compared. They take turns, so that a slow moment of the machine meets all of them."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.measured import Kind, Measured
from penstock.types import Array


class Contestant(NamedTuple):
    """One of the things that are compared."""

    what: str
    kind: Kind
    run: Callable[[], Array]
    """Runs one round. Returns the seconds of each of its calls, or their mean as an array ``[]``."""


def compare(case: str, contestants: Sequence[Contestant], rounds: int) -> list[Measured]:
    """A row for each contestant of a case, in the given order. The first round only warms up."""
    found: list[list[Array]] = [[] for _ in contestants]
    for number in range(rounds + 1):
        for seconds, contestant in zip(found, contestants, strict=True):
            result = contestant.run()
            if number > 0:
                seconds.append(result)
    return [_row(case, contestant, seconds) for contestant, seconds in zip(contestants, found, strict=True)]


def per_call(function: Callable[[], object], calls: int) -> Callable[[], Array]:
    """A round of ``calls`` calls that are too short to be timed one by one."""

    def run() -> Array:
        begun = time.perf_counter()
        for _ in range(calls):
            function()
        return np.asarray((time.perf_counter() - begun) / calls)

    return run


def each_call(function: Callable[[], object], calls: int) -> Callable[[], Array]:
    """A round of ``calls`` calls, each timed."""

    def run() -> Array:
        seconds = np.empty(calls)
        for number in range(calls):
            begun = time.perf_counter()
            function()
            seconds[number] = time.perf_counter() - begun
        return seconds

    return run


def _row(case: str, contestant: Contestant, rounds: Sequence[Array]) -> Measured:
    p50 = _us(np.median([np.median(seconds) for seconds in rounds]))
    # A round that gives only its mean has no percentiles.
    p99 = _us(np.median([np.percentile(seconds, 99) for seconds in rounds])) if rounds[0].ndim else None
    return Measured(case, contestant.what, contestant.kind, p50, p99)


def _us(seconds: np.floating) -> float:
    return round(float(seconds) * 1e6, 3)
