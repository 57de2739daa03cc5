"""Seeds that depend on what is seeded, never on which process does it.

Episodes belong to one of three streams: *training*, *validation* (evaluations on the way) and *test* (the final
evaluation and ``penstock eval``). Each is keyed by lanes that the others do not reach, so no episode of one is an
episode of another. Seeds have 31 bits: two episodes share one by chance, once in 2^31 pairs.
"""

import functools

__all__ = ["VALIDATION_LANE", "episode_seed", "final_seed", "phase_seed", "validation_seed", "warmup_seed"]

_MASK = (1 << 64) - 1
VALIDATION_LANE = 1 << 20
"""Each validation episode is seeded as the first one of a lane from here on, which no training lane reaches."""
_TEST_LANE = 1 << 40
"""All test episodes are seeded as those of this lane, which no validation episode reaches."""


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
    """The seed of one episode of one lane, in ``[0, 2**31)`` (what every environment accepts)."""
    return _mix(_lane(seed, lane) ^ episode) >> 33


def validation_seed(seed: int, episode: int) -> int:
    """The seed of one episode of each evaluation on the way, in ``[0, 2**31)``."""
    return episode_seed(seed, VALIDATION_LANE + episode, 0)


def final_seed(seed: int, episode: int) -> int:
    """The seed of one episode of the final evaluation and of ``penstock eval``, in ``[0, 2**31)``."""
    return episode_seed(seed, _TEST_LANE, episode)


def phase_seed(seed: int, phase: int, index: int) -> int:
    """The seed of one noise input of one phase of an update, in ``[0, 2**64)``; acting draws from the run's own."""
    return _mix(_mix(_mix(seed & _MASK) ^ (phase + 1)) ^ (index + 1))


def warmup_seed(seed: int) -> int:
    """The seed of the actions that are drawn before a policy acts, in ``[0, 2**64)``."""
    return _mix(_mix(_mix(seed & _MASK)))
