"""SAC as plain data: its hyper-parameters, its policy and the arrays of its state. Imports no torch."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.algorithm import AlgorithmSpec
from penstock.algorithms.off_policy.spec import (
    ContinuousConfig,
    body_of,
    critic_network,
    initial_arrays,
    off_policy_spec,
    stacked,
)
from penstock.config.fields import tunable
from penstock.policies import PolicyGraph
from penstock.policies.architecture import squashed_actor
from penstock.types import Arrays, ArraySpec, Spaces

__all__ = [
    "ACTIONS",
    "LOG_ALPHA",
    "EntropyConfig",
    "SACConfig",
    "init_state",
    "policy_graph",
    "spec",
    "with_temperature",
]

ACTIONS = ("bounded",)

LOG_ALPHA = ArraySpec("log_alpha", (1,), "float32")
"""The logarithm of the temperature."""
TINY = 1e-30
"""Stands for a temperature of 0, which has no logarithm."""


@dataclass(frozen=True, kw_only=True)
class EntropyConfig(ContinuousConfig):
    """Hyper-parameters that all actor-critics with a reward for entropy share."""

    temperature: float | Literal["auto"] = tunable(
        "auto",
        "reward for one nat of the policy's entropy; auto: it starts at 1 and is learned; a number: it stays fixed "
        "(usual: 0.01 to 1)",
        min=0,
    )
    temperature_lr: float = tunable(
        3e-4, "step size of a learned temperature; smaller: explores for longer (usual: 1e-4 to 3e-3)", min=0
    )
    target_entropy: float | Literal["auto"] = tunable(
        "auto",
        "entropy in nats that a learned temperature aims at; higher: explores more; auto: -1 for each element of an "
        "action",
    )


@dataclass(frozen=True, kw_only=True)
class SACConfig(EntropyConfig):
    """Hyper-parameters of SAC."""

    critics: int = tunable(
        2,
        "number of critics; the smallest of their values counts; more: values become too low; 1: values become too "
        "high (usual: 1 to 10)",
        min=1,
    )


def spec(spaces: Spaces, config: SACConfig) -> AlgorithmSpec:
    """What penstock needs to know to run SAC on ``spaces``.

    Raises:
        SpaceError: the actions are not a Box with bounds, or penstock has no model for the observations.
    """
    graph = policy_graph(spaces, config)
    critics = stacked("critic", critic_network(graph, config), config.critics)
    return off_policy_spec(spaces, config, graph, learned=(graph.actor.spec, critics, LOG_ALPHA), followed=("critic",))


def policy_graph(spaces: Spaces, config: EntropyConfig, algorithm: str = "sac") -> PolicyGraph:
    """The actor of ``config`` for ``spaces``.

    Raises:
        SpaceError: as for `spec`; the text names ``algorithm``.
    """
    return squashed_actor(spaces, body_of(config), algorithm)


def init_state(spaces: Spaces, config: SACConfig, seed: int) -> Arrays:
    """The first state: random networks that depend on ``seed``, equal targets, the first temperature."""
    graph = policy_graph(spaces, config)
    critic = critic_network(graph, config)
    networks = {"actor": [graph.actor], "critic": [critic] * config.critics}
    return with_temperature(initial_arrays(spec(spaces, config), networks, seed), config)


def with_temperature(state: Arrays, config: EntropyConfig) -> Arrays:
    """``state`` with the logarithm of the first temperature."""
    first = 1.0 if config.temperature == "auto" else config.temperature
    return {**state, "log_alpha": np.full(1, math.log(max(first, TINY)), np.float32)}
