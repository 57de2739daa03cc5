"""SAC as plain data: its hyper-parameters, its policy and the arrays of its state. Imports no torch."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.algorithm import AlgorithmSpec
from penstock.algorithms.off_policy.critics import (
    check_actor_critic,
    critic_network,
    critic_of_features,
    memory_network,
)
from penstock.algorithms.off_policy.spec import (
    LOSSES,
    ContinuousConfig,
    SequenceConfig,
    body_of,
    initial_arrays,
    off_policy_spec,
    over_sequences,
    stacked,
    with_statistics,
)
from penstock.config.fields import BY_NETWORKS, BY_TEMPERATURE, tunable
from penstock.errors import ConfigError
from penstock.policies import Network, PolicyGraph
from penstock.policies.architecture import squashed_actor
from penstock.policies.trunk import MODEL_FORM, MODELS_WITH_MEMORY
from penstock.types import Arrays, ArraySpec, Spaces

__all__ = [
    "ACTIONS",
    "LOG_ALPHA",
    "EntropyConfig",
    "SACConfig",
    "actor_graph",
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
        fixed=BY_TEMPERATURE,
    )
    temperature_lr: float = tunable(
        3e-4, "learning rate of a learned temperature; smaller: explores for longer (usual: 1e-4 to 3e-3)", min=0
    )
    target_entropy: float | Literal["auto"] = tunable(
        "auto",
        "entropy in nats that a learned temperature aims at; higher: explores more; auto: -1 for each element of an "
        "action",
    )
    policy_delay: int = tunable(
        1,
        "steps of the critics for each step of actor and temperature; more: the actor takes fewer steps where "
        "updates_per_step is high (usual: 1; as many as updates_per_step)",
        min=1,
    )


@dataclass(frozen=True, kw_only=True)
class SACConfig(SequenceConfig, EntropyConfig):
    """Hyper-parameters of SAC."""

    model: str = tunable("auto", MODELS_WITH_MEMORY, pattern=r"(?s).+", form=MODEL_FORM, fixed=BY_NETWORKS)

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
        ConfigError: a policy with a memory shall keep to demonstrations.
    """
    graph = actor_graph(spaces, config)
    if graph.carry and config.imitation:
        raise ConfigError("--imitation is for policies without a memory; leave it out, or take --model mlp")
    networks = _networks(graph, config)
    learned = [stacked(name, parts[0], len(parts)) for name, parts in networks.items()]
    targeted = tuple(name for name in networks if name != "actor")
    found = off_policy_spec(spaces, config, graph, learned=(*learned, LOG_ALPHA), targeted=targeted, losses=LOSSES)
    return over_sequences(found, spaces, config, "off_policy") if graph.carry else found


def actor_graph(spaces: Spaces, config: SACConfig) -> PolicyGraph:
    """The actor of SAC itself, which may have a memory.

    Raises:
        SpaceError: as for `spec`.
        ConfigError: nothing reads a setting of networks that was given.
    """
    graph = with_statistics(squashed_actor(spaces, body_of(config), "sac", memory="optional"), spaces, config)
    check_actor_critic(graph, config)
    return graph


def _networks(graph: PolicyGraph, config: SACConfig) -> dict[str, list[Network]]:
    """The networks of each vector that gradient steps change."""
    if not graph.carry:
        return {"actor": [graph.actor], "critic": [critic_network(graph, config)] * config.critics}
    critics = [critic_of_features(graph, config)] * config.critics
    return {"actor": [graph.actor], "memory": [memory_network(graph, config)], "critic": critics}


def policy_graph(spaces: Spaces, config: EntropyConfig, algorithm: str = "sac") -> PolicyGraph:
    """The actor of ``config`` for ``spaces``, without a memory.

    Raises:
        SpaceError: as for `spec`; the text names ``algorithm``.
        ConfigError: nothing reads a setting of networks that was given.
    """
    graph = with_statistics(squashed_actor(spaces, body_of(config), algorithm), spaces, config)
    check_actor_critic(graph, config)
    return graph


def init_state(spaces: Spaces, config: SACConfig, seed: int) -> Arrays:
    """The first state: random networks that depend on ``seed``, equal targets, the first temperature."""
    networks = _networks(actor_graph(spaces, config), config)
    return with_temperature(initial_arrays(spec(spaces, config), networks, seed), config)


def with_temperature(state: Arrays, config: EntropyConfig) -> Arrays:
    """``state`` with the logarithm of the first temperature."""
    first = 1.0 if config.temperature == "auto" else config.temperature
    return {**state, "log_alpha": np.full(1, math.log(max(first, TINY)), np.float32)}
