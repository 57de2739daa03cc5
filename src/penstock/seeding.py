"""Seeds that depend on what is seeded, never on which process does it."""

import functools

__all__ = ["episode_seed", "phase_seed", "warmup_seed"]

_MASK = (1 << 64) - 1


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


def phase_seed(seed: int, phase: int, index: int) -> int:
    """The seed of one noise input of one phase of an update, in ``[0, 2**64)``; acting draws from the run's own."""
    return _mix(_mix(_mix(seed & _MASK) ^ (phase + 1)) ^ (index + 1))


def warmup_seed(seed: int) -> int:
    """The seed of the actions that are drawn before a policy acts, in ``[0, 2**64)``."""
    return _mix(_mix(_mix(seed & _MASK)))
