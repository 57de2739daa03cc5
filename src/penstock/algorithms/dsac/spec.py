"""DSAC as plain data: SAC with one critic that gives the distribution of returns. Imports no torch."""

from dataclasses import dataclass
from typing import get_args

from penstock.algorithm import AlgorithmSpec
from penstock.algorithms.off_policy.critics import critic_network
from penstock.algorithms.off_policy.spec import LOSSES, initial_arrays, off_policy_spec, stacked
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
    """Hyper-parameters that all soft actor-critics with distributions of returns share.

    Networks and learning rates are those of Duan et al. 2025. The authors' code uses them for DSAC as well.
    """

    lr: float = tunable(
        1e-4,
        "learning rate of the policy; too large: the policy collapses; too small: learning is slow "
        "(usual: 3e-5 to 1e-3)",
        min=0,
    )
    hidden_sizes: tuple[int, ...] = tunable(
        (256, 256, 256),
        "widths of an mlp's hidden layers; wider: learns more, but takes more time (usual: 64,64 to 400,300)",
        min=1,
        fixed=BY_NETWORKS,
    )
    activation: ActivationName = tunable(  # noqa: RUF009
        "gelu",
        "function between the layers of an mlp; relu takes the least time, gelu is smoother",
        choices=get_args(ActivationName),
        fixed=BY_NETWORKS,
    )
    critic_lr: float = tunable(
        1e-4,
        "learning rate of the critics; too large: values diverge; too small: values lag behind the policy "
        "(usual: 1e-4 to 1e-3)",
        min=0,
    )
    policy_delay: int = tunable(
        2,
        "steps of the critics for each step of actor, temperature and targets; more: values settle before the actor "
        "moves (usual: 1 to 4)",
        min=1,
    )


@dataclass(frozen=True, kw_only=True)
class DSACConfig(DistributionalConfig):
    """Hyper-parameters of DSAC."""

    bound: float = tunable(
        10.0,
        "largest distance of a sampled return from its mean, in units of returns; the deviation is learned from it "
        "(usual: 1 to 50)",
        min=0,
    )


def spec(spaces: Spaces, config: DSACConfig) -> AlgorithmSpec:
    """What penstock needs to know to run DSAC on ``spaces``.

    Raises:
        SpaceError: the actions are not a Box with bounds, or penstock has no model for the observations.
    """
    return distributional_spec(spaces, config, policy_graph(spaces, config, "dsac"), 1)


def distributional_spec(
    spaces: Spaces,
    config: DistributionalConfig,
    graph: PolicyGraph,
    critics: int,
    others: tuple[ArraySpec, ...] = (),
) -> AlgorithmSpec:
    """The spec with ``critics`` critics, and ``others`` as more arrays of the state."""
    return off_policy_spec(
        spaces,
        config,
        graph,
        learned=(graph.actor.spec, stacked("critic", return_network(graph, config), critics), LOG_ALPHA),
        targeted=("actor", "critic"),
        losses=LOSSES,
        others=others,
    )


def return_network(graph: PolicyGraph, config: DistributionalConfig) -> Network:
    """A critic with two outputs: the mean of returns, and the number whose softplus is their deviation."""
    return critic_network(graph, config, outputs=2)


def distributional_arrays(of: AlgorithmSpec, config: DistributionalConfig, critics: int, seed: int) -> Arrays:
    """The first state of ``of``: random networks that depend on ``seed``, and equal targets."""
    networks = {"actor": [of.policy.actor], "critic": [return_network(of.policy, config)] * critics}
    return with_temperature(initial_arrays(of, networks, seed), config)


def init_state(spaces: Spaces, config: DSACConfig, seed: int) -> Arrays:
    """The first state: random networks that depend on ``seed``, equal targets, the first temperature."""
    return distributional_arrays(spec(spaces, config), config, 1, seed)
