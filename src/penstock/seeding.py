"""Seeds of episodes and noise. They do not depend on the process that uses them.

There are three kinds of episode: *training*, *validation* (evaluations during the run) and *test* (the final
evaluation and ``penstock eval``). Each kind has lane numbers of its own, so their seeds differ. Seeds have 31 bits: two
episodes have the same one by chance, once in 2^31 pairs.
"""

import functools

__all__ = [
    "VALIDATION_LANE",
    "episode_seed",
    "final_seed",
    "part_seed",
    "phase_seed",
    "reset_seed",
    "validation_seed",
    "warmup_seed",
]

_MASK = (1 << 64) - 1
VALIDATION_LANE = 1 << 20
"""Validation episode i has the seed of the first episode of this lane + i. No training lane has such a number."""
_TEST_LANE = 1 << 40
"""Test episodes have the seeds of this lane's episodes. No validation episode has such a lane."""


def _mix(value: int) -> int:
    """The finaliser of SplitMix64 (Steele et al. 2014): every input bit changes half of the output bits."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


@functools.lru_cache(maxsize=4096)
def _lane(seed: int, lane: int) -> int:
    return _mix(_mix(seed & _MASK) ^ lane)


def episode_seed(seed: int, lane: int, episode: int) -> int:
    """The seed of one episode of one lane, in ``[0, 2**31)``, which every environment accepts."""
    return _mix(_lane(seed, lane) ^ episode) >> 33


def validation_seed(seed: int, episode: int) -> int:
    """The seed of one episode of each evaluation during the run, in ``[0, 2**31)``."""
    return episode_seed(seed, VALIDATION_LANE + episode, 0)


def final_seed(seed: int, episode: int) -> int:
    """The seed of one episode of the final evaluation and of ``penstock eval``, in ``[0, 2**31)``."""
    return episode_seed(seed, _TEST_LANE, episode)


def phase_seed(seed: int, phase: int, index: int) -> int:
    """The seed of one noise input of one phase of an update, in ``[0, 2**64)``. Acting uses the run's seed itself."""
    return _mix(_mix(_mix(seed & _MASK) ^ (phase + 1)) ^ (index + 1))


@functools.lru_cache(maxsize=4096)
def part_seed(seed: int, part: int) -> int:
    """The seed of one part of composed noise, in ``[0, 2**64)``. The first part has the seed itself."""
    return _mix(_mix(_mix(_mix(seed & _MASK))) ^ part) if part else seed


def reset_seed(seed: int, number: int) -> int:
    """The seed of the networks that a run has from its reset ``number`` on, in ``[0, 2**64)``."""
    return _mix(_mix(~seed & _MASK) ^ number)


def warmup_seed(seed: int) -> int:
    """The seed of the random actions before a policy acts, in ``[0, 2**64)``."""
    return _mix(_mix(_mix(seed & _MASK)))
