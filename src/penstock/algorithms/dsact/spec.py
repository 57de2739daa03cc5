"""DSAC-T as plain data: DSAC with twin critics that learn at the scale of their own spread. Imports no torch."""

import math
from dataclasses import dataclass

import numpy as np

from penstock.algorithm import AlgorithmSpec
from penstock.algorithms.dsac.spec import DistributionalConfig, distributional_arrays, distributional_spec
from penstock.algorithms.sac.spec import policy_graph
from penstock.config.fields import tunable
from penstock.types import Arrays, ArraySpec, Spaces

__all__ = ["ACTIONS", "DSACTConfig", "init_state", "spec"]

ACTIONS = ("bounded",)


@dataclass(frozen=True, kw_only=True)
class DSACTConfig(DistributionalConfig):
    """Hyper-parameters of DSAC-T."""

    critics: int = tunable(
        2, "critics, of which the smallest value counts: more underestimate, 1 overestimates (1 to 10)", min=1
    )
    bound_scale: float = tunable(
        3.0, "how far a return may lie from its mean when the spread is learned, in mean deviations (1 to 5)", min=0
    )


def spec(spaces: Spaces, config: DSACTConfig) -> AlgorithmSpec:
    """What the house needs to know to run DSAC-T on ``spaces``.

    Raises:
        SpaceError: actions that are not a box with bounds, or observations that no model here serves.
    """
    scales = tuple(ArraySpec(f"mean_{name}", (config.critics,), "float32") for name in ("deviation", "variance"))
    graph = policy_graph(spaces, config, "dsact")
    return distributional_spec(spaces, config, graph, config.critics, scales)


def init_state(spaces: Spaces, config: DSACTConfig, seed: int) -> Arrays:
    """The state to begin with: networks drawn from ``seed``, targets equal to them, the first temperature and scales.

    A critic's deviation is about softplus(0) = log 2 at first.
    """
    state = distributional_arrays(spec(spaces, config), config, config.critics, seed)
    first = np.full(config.critics, math.log(2.0), np.float32)
    return {**state, "mean_deviation": first, "mean_variance": first**2}
