"""The first state of a run, or of its networks after a reset. Loads no checkpoint."""

import numpy as np

from penstock.registry import load
from penstock.types import Arrays
from penstock.updates.settings import UpdaterSettings

__all__ = ["first_state"]


def first_state(initial: str, updater: UpdaterSettings, seed: int) -> Arrays:
    """All arrays of the first state. Those that the algorithm leaves out are zero.

    Args:
        initial: ``module:init_state`` of the algorithm.
        updater: settings of an updater of the run.
        seed: of the networks.
    """
    zeros: Arrays = {part.name: np.zeros(part.shape, part.dtype) for part in updater.spec.state}
    found: Arrays = load(initial)(updater.spaces, updater.config, seed)
    return {**zeros, **found}
