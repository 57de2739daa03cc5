"""DSAC-T as plain data: DSAC with two critics whose steps are scaled by their own deviation. Imports no torch."""

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
        2,
        "number of critics; the smallest of their values counts; more: values become too low; 1: values become too "
        "high (usual: 1 to 10)",
        min=1,
    )
    bound_scale: float = tunable(
        3.0,
        "largest distance of a sampled return from its mean, in mean deviations; the deviation is learned from it "
        "(usual: 1 to 5)",
        min=0,
    )


def spec(spaces: Spaces, config: DSACTConfig) -> AlgorithmSpec:
    """What penstock needs to know to run DSAC-T on ``spaces``.

    Raises:
        SpaceError: the actions are not a Box with bounds, or penstock has no model for the observations.
    """
    scales = tuple(ArraySpec(f"mean_{name}", (config.critics,), "float32") for name in ("deviation", "variance"))
    graph = policy_graph(spaces, config, "dsact")
    return distributional_spec(spaces, config, graph, config.critics, scales)


def init_state(spaces: Spaces, config: DSACTConfig, seed: int) -> Arrays:
    """The first state: random networks that depend on ``seed``, equal targets, the first temperature and scales.

    At first a critic's deviation is about softplus(0) = log 2.
    """
    state = distributional_arrays(spec(spaces, config), config, config.critics, seed)
    first = np.full(config.critics, math.log(2.0), np.float32)
    return {**state, "mean_deviation": first, "mean_variance": first**2}
