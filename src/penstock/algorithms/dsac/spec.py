"""DSAC as plain data: SAC with one critic that says how returns are distributed. Imports no torch."""

from dataclasses import dataclass
from typing import get_args

from penstock.algorithm import AlgorithmSpec
from penstock.algorithms.off_policy.spec import critic_network, initial_arrays, off_policy_spec, stacked
from penstock.algorithms.sac.spec import LOG_ALPHA, EntropyConfig, policy_graph, with_temperature
from penstock.config.fields import BY_NETWORKS, tunable
from penstock.policies import Network, PolicyGraph
from penstock.policies.architecture import ActivationName
from penstock.types import Arrays, ArraySpec, Spaces

__all__ = [
    "ACTIONS",
    "DSACConfig",
    "DistributionalConfig",
    "distributional_arrays",
    "distributional_spec",
    "init_state",
    "return_network",
    "spec",
]

ACTIONS = ("bounded",)


@dataclass(frozen=True, kw_only=True)
class DistributionalConfig(EntropyConfig):
    """What every soft actor-critic takes whose critics say how returns are distributed.

    Networks and step sizes are those of Duan et al. 2025, which the authors' code has for DSAC as well.
    """

    lr: float = tunable(
        1e-4, "step size of the policy: too large and it collapses, too small and it creeps (3e-5 to 1e-3)", min=0
    )
    hidden_sizes: tuple[int, ...] = tunable(
        (256, 256, 256),
        "widths of an mlp's hidden layers: wider fits more and costs more (64,64 to 400,300)",
        min=1,
        fixed=BY_NETWORKS,
    )
    activation: ActivationName = tunable(  # noqa: RUF009
        "gelu",
        "between the layers of an mlp: relu is the cheapest, gelu smoother",
        choices=get_args(ActivationName),
        fixed=BY_NETWORKS,
    )
    critic_lr: float = tunable(
        1e-4, "step size of the critics: too large and values diverge, too small and they lag (1e-4 to 1e-3)", min=0
    )
    policy_delay: int = tunable(
        2,
        "steps of the critics for each of actor, temperature and targets: more lets values settle first (1 to 4)",
        min=1,
    )


@dataclass(frozen=True, kw_only=True)
class DSACConfig(DistributionalConfig):
    """Hyper-parameters of DSAC."""

    bound: float = tunable(
        10.0,
        "how far a return may lie from its mean when the spread is learned: in the units of returns (1 to 50)",
        min=0,
    )


def spec(spaces: Spaces, config: DSACConfig) -> AlgorithmSpec:
    """What the house needs to know to run DSAC on ``spaces``.

    Raises:
        SpaceError: actions that are not a box with bounds, or observations that no model here serves.
    """
    return distributional_spec(spaces, config, policy_graph(spaces, config, "dsac"), 1)


def distributional_spec(
    spaces: Spaces,
    config: DistributionalConfig,
    graph: PolicyGraph,
    critics: int,
    others: tuple[ArraySpec, ...] = (),
) -> AlgorithmSpec:
    """The spec with so many critics, and further arrays of the state."""
    return off_policy_spec(
        spaces,
        config,
        graph,
        learned=(graph.actor.spec, stacked("critic", return_network(graph, config), critics), LOG_ALPHA),
        followed=("actor", "critic"),
        others=others,
    )


def return_network(graph: PolicyGraph, config: DistributionalConfig) -> Network:
    """A critic that gives two numbers: the mean of returns, and what their deviation is made of."""
    return critic_network(graph, config, outputs=2)


def distributional_arrays(of: AlgorithmSpec, config: DistributionalConfig, critics: int, seed: int) -> Arrays:
    """The arrays of a spec's state to begin with: networks drawn from ``seed``, targets equal to them."""
    networks = {"actor": [of.policy.actor], "critic": [return_network(of.policy, config)] * critics}
    return with_temperature(initial_arrays(of, networks, seed), config)


def init_state(spaces: Spaces, config: DSACConfig, seed: int) -> Arrays:
    """The state to begin with: networks drawn from ``seed``, targets equal to them, the first temperature."""
    return distributional_arrays(spec(spaces, config), config, 1, seed)
