"""Builds the torch functions of an updater's algorithm. Holds no state."""

import torch

from penstock.algorithm import Algorithm
from penstock.algorithm_lookup import load_functions
from penstock.updates.settings import UpdaterSettings

__all__ = ["algorithm_of"]


def algorithm_of(settings: UpdaterSettings) -> Algorithm:
    """The algorithm's functions. From now on torch computes with as many threads as the settings say.

    On a GPU convolutions give the same bits each time, so that a run can be repeated there as well.
    """
    torch.set_num_threads(settings.threads)
    torch.backends.cudnn.deterministic = True
    algorithm: Algorithm = load_functions(settings.learn)(settings.spaces, settings.config)
    return algorithm
