"""The first state of a run, or of its networks after a reset. Loads no checkpoint."""

from typing import Any

import numpy as np

from penstock.algorithm.spec import AlgorithmSpec
from penstock.registry import load
from penstock.types import Arrays, Spaces

__all__ = ["first_state"]


def first_state(
    initial: str,
    spec: AlgorithmSpec,
    spaces: Spaces,
    config: Any,  # noqa: ANN401 - each algorithm has its own
    seed: int,
) -> Arrays:
    """All arrays of the first state. Those that the algorithm leaves out are zero.

    Args:
        initial: ``module:init_state`` of the algorithm.
        spec: of the algorithm.
        spaces: of one lane.
        config: of the algorithm.
        seed: of the networks.
    """
    zeros: Arrays = {part.name: np.zeros(part.shape, part.dtype) for part in spec.state}
    found: Arrays = load(initial)(spaces, config, seed)
    return {**zeros, **found}
