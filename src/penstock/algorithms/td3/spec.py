"""TD3 as plain data: its hyper-parameters, its policy and the arrays of its state. Imports no torch."""

from dataclasses import dataclass, replace

from penstock.algorithm import AlgorithmSpec
from penstock.algorithms.off_policy.critics import check_actor_critic, critic_network
from penstock.algorithms.off_policy.spec import (
    LOSSES,
    ContinuousConfig,
    body_of,
    initial_arrays,
    off_policy_spec,
    stacked,
    with_statistics,
)
from penstock.config.fields import BY_NETWORKS, tunable
from penstock.policies import PolicyGraph
from penstock.policies.architecture import deterministic_actor
from penstock.policies.exploration import Constant
from penstock.types import Arrays, Spaces

__all__ = ["ACTIONS", "DeterministicConfig", "TD3Config", "init_state", "policy_graph", "spec"]

ACTIONS = ("bounded",)


@dataclass(frozen=True, kw_only=True)
class DeterministicConfig(ContinuousConfig):
    """Hyper-parameters that all deterministic actors share. Layers and critic_lr are those of both papers."""

    hidden_sizes: tuple[int, ...] = tunable(
        (400, 300),
        "widths of an mlp's hidden layers; wider: learns more, but takes more time (usual: 64,64 to 400,300)",
        min=1,
        fixed=BY_NETWORKS,
    )
    critic_lr: float = tunable(
        1e-3,
        "learning rate of the critics; too large: values diverge; too small: values lag behind the policy "
        "(usual: 1e-4 to 1e-3)",
        min=0,
    )
    exploration: float = tunable(
        0.1,
        "standard deviation of the noise on actions, which are scaled to -1 .. 1; larger: explores more "
        "(usual: 0.05 to 0.3)",
        min=0,
    )


@dataclass(frozen=True, kw_only=True)
class TD3Config(DeterministicConfig):
    """Hyper-parameters of TD3."""

    lr: float = tunable(
        1e-3,
        "learning rate of the policy; too large: the policy collapses; too small: learning is slow "
        "(usual: 3e-5 to 1e-3)",
        min=0,
    )
    critics: int = tunable(
        2,
        "number of critics; the smallest of their values is the target; more: values become too low; 1: values become "
        "too high (usual: 1 to 10)",
        min=1,
    )
    policy_delay: int = tunable(
        2,
        "steps of the critics for each step of the actor and the targets; more: values settle before the actor moves "
        "(usual: 1 to 4)",
        min=1,
    )
    smoothing: float = tunable(
        0.2,
        "standard deviation of the noise on actions in the critics' targets; larger: flattens narrow peaks of the "
        "values (usual: 0 to 0.4)",
        min=0,
    )
    smoothing_clip: float = tunable(0.5, "noise of --smoothing is cut off at this size (usual: 0.3 to 1)", min=0)


def spec(spaces: Spaces, config: TD3Config, algorithm: str = "td3") -> AlgorithmSpec:
    """What penstock needs to know to run TD3 on ``spaces``.

    Raises:
        SpaceError: the actions are not a Box with bounds, or penstock has no model for the observations. The text
            names ``algorithm``.
    """
    graph = policy_graph(spaces, config, algorithm)
    critics = stacked("critic", critic_network(graph, config), config.critics)
    found = off_policy_spec(
        spaces,
        config,
        graph,
        learned=(graph.actor.spec, critics),
        targeted=("actor", "critic"),
        losses=LOSSES,
    )
    return replace(found, explore=Constant(config.exploration))


def policy_graph(spaces: Spaces, config: TD3Config, algorithm: str = "td3") -> PolicyGraph:
    """The actor of ``config`` for ``spaces``.

    Raises:
        SpaceError: as for `spec`.
        ConfigError: nothing reads a setting of networks that was given.
    """
    graph = with_statistics(deterministic_actor(spaces, body_of(config), algorithm), spaces, config)
    check_actor_critic(graph, config)
    return graph


def init_state(spaces: Spaces, config: TD3Config, seed: int, algorithm: str = "td3") -> Arrays:
    """The first state: random networks that depend on ``seed``, equal targets, everything else 0."""
    found = spec(spaces, config, algorithm)
    critic = critic_network(found.policy, config)
    return initial_arrays(found, {"actor": [found.policy.actor], "critic": [critic] * config.critics}, seed)
