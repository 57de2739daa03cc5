"""TD3 as plain data: its hyper-parameters, its policy, the arrays of its state. Imports no torch."""

from dataclasses import dataclass, replace

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
from penstock.policies.architecture import deterministic_actor
from penstock.policies.exploration import Constant
from penstock.types import Arrays, Spaces

__all__ = ["ACTIONS", "DeterministicConfig", "TD3Config", "init_state", "policy_graph", "spec"]

ACTIONS = ("bounded",)


@dataclass(frozen=True, kw_only=True)
class DeterministicConfig(ContinuousConfig):
    """What every actor takes whose actions are a function of the state."""

    exploration: float = tunable(
        0.1, "deviation of the noise on actions, of which each reaches from -1 to 1: more explores (0.05 to 0.3)", min=0
    )


@dataclass(frozen=True, kw_only=True)
class TD3Config(DeterministicConfig):
    """Hyper-parameters of TD3."""

    critics: int = tunable(
        2, "critics, of which the smallest value is the target: more underestimate, 1 overestimates (1 to 10)", min=1
    )
    policy_delay: int = tunable(
        2, "steps of the critics for each of the actor and the targets: more lets values settle first (1 to 4)", min=1
    )
    smoothing: float = tunable(
        0.2, "deviation of the noise on the action that a target judges: more flattens narrow peaks (0 to 0.4)", min=0
    )
    smoothing_clip: float = tunable(0.5, "where that noise is cut off (0.3 to 1)", min=0)


def spec(spaces: Spaces, config: TD3Config, algorithm: str = "td3") -> AlgorithmSpec:
    """What the house needs to know to run TD3 on ``spaces``.

    Raises:
        SpaceError: actions that are not a box with bounds, or observations that no model here serves; the text names
            ``algorithm``.
    """
    graph = policy_graph(spaces, config, algorithm)
    critics = stacked("critic", critic_network(graph, config), config.critics)
    found = off_policy_spec(
        spaces,
        config,
        graph,
        learned=(graph.actor.spec, critics),
        followed=("actor", "critic"),
    )
    return replace(found, explore=Constant(config.exploration))


def policy_graph(spaces: Spaces, config: TD3Config, algorithm: str = "td3") -> PolicyGraph:
    """The actor that ``config`` asks for on ``spaces``.

    Raises:
        SpaceError: as `spec`.
    """
    return deterministic_actor(spaces, body_of(config), algorithm)


def init_state(spaces: Spaces, config: TD3Config, seed: int, algorithm: str = "td3") -> Arrays:
    """The state to begin with: networks drawn from ``seed``, targets equal to them, everything else 0."""
    found = spec(spaces, config, algorithm)
    critic = critic_network(found.policy, config)
    return initial_arrays(found, {"actor": [found.policy.actor], "critic": [critic] * config.critics}, seed)
