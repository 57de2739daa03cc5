"""Counter-based noise: the same numbers for (seed, lane, step) in any process, in any order, on any machine.

The generator is Philox4x32-10 (Salmon et al. 2011, https://doi.org/10.1145/2063384.2063405). Its key is the seed, its
counter is (block, lane, step). Holds no state.
"""

import math

import numpy as np

from penstock.kernels import _native
from penstock.seeding import part_seed
from penstock.types import Array, NoiseSpec

__all__ = ["generate", "gumbel", "normal", "uniform"]


def normal(seed: int, lanes: Array, step: int, size: int) -> Array:
    """Standard normal numbers.

    Args:
        seed: 0 to 2**64 - 1.
        lanes: ``[n]`` int64, 0 to 2**32 - 1.
        step: 0 to 2**63 - 1.
        size: numbers a lane.

    Returns:
        float32 ``[n, size]``. A lane's numbers do not depend on the other lanes. A larger ``size`` only adds numbers.
    """
    return _noise("normal", seed, lanes, step, size)


def uniform(seed: int, lanes: Array, step: int, size: int) -> Array:
    """Uniform numbers in [0, 1), multiples of 2**-24. Arguments and result as for `normal`."""
    return _noise("uniform", seed, lanes, step, size)


def gumbel(seed: int, lanes: Array, step: int, size: int) -> Array:
    """Standard Gumbel numbers, ``-log(-log(u))``. Arguments and result as for `normal`."""
    return _noise("gumbel", seed, lanes, step, size)


def generate(spec: NoiseSpec, seed: int, lanes: Array, step: int) -> Array:
    """The noise input of ``act`` for these lanes at this step: float32 ``[n, *spec.shape]``.

    Each part of composed noise has a key of its own, so that the parts are independent.
    """
    if spec.parts:
        keys = (part_seed(seed, index) for index in range(len(spec.parts)))
        return np.concatenate(
            [generate(part, key, lanes, step) for part, key in zip(spec.parts, keys, strict=True)], axis=1
        )
    return _noise(spec.distribution, seed, lanes, step, math.prod(spec.shape)).reshape(len(lanes), *spec.shape)


def _noise(distribution: str, seed: int, lanes: Array, step: int, size: int) -> Array:
    out = np.empty((len(lanes), size), np.float32)
    _native.noise(distribution, seed, lanes, step, out)
    return out
