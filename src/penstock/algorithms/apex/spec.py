"""Ape-X as plain data: DQN whose lanes explore differently, and whose rows come with priorities. Imports no torch."""

from dataclasses import dataclass, replace

from penstock.algorithm import AlgorithmSpec
from penstock.algorithms.dqn.spec import QConfig, policy_graph, q_spec
from penstock.algorithms.off_policy.spec import MOST_UPDATES, initial_arrays
from penstock.config.fields import BY_LANES, BY_PRIORITIES, tunable
from penstock.policies.exploration import Ladder
from penstock.types import Arrays, ArraySpec, Spaces

__all__ = ["ACTIONS", "ApexConfig", "init_state", "spec"]

ACTIONS = ("discrete",)


@dataclass(frozen=True, kw_only=True)
class ApexConfig(QConfig):
    """Hyper-parameters of Ape-X.

    Exploration, priorities and ``n_step`` are those of Horgan et al. 2018. The rest is not: the paper's values are for
    hundreds of environments and hundreds of millions of steps of Atari, and have a preset, ``atari-apex``. The defaults
    did better on tasks that they were not found on: docs/algorithms/apex.md holds the figures.
    """

    num_steps: int = tunable(
        16,
        "steps of each lane between updates of the acting policy: fewer keep it fresh, more cost less (8 to 64)",
        min=1,
        fixed=BY_LANES,
    )
    updates_per_step: float = tunable(
        0.25,
        "gradient steps for each row collected: more learns faster from it and overfits to it (0.05 to 4)",
        min=1e-4,
        max=MOST_UPDATES,
    )
    capacity: int = tunable(
        1_000_000, "rows the table keeps: more remembers longer and takes memory (100,000 to 2,000,000)", min=1
    )
    n_step: int = tunable(
        3, "rewards summed before a target's value: more is faster and counts what exploring cost (1 to 5)", min=1
    )
    prioritised: bool = tunable(
        True,
        "draw rows by how wrong their value was, instead of all alike (on or off)",
        fixed=BY_PRIORITIES,
    )
    epsilon_base: float = tunable(
        0.4,
        "lane i of N explores with probability base^(1 + power i / (N - 1)): that of the first lane (0.2 to 0.6)",
        min=0,
        max=1,
    )
    epsilon_power: float = tunable(
        7.0, "how much less the last lane explores than the first: base^(1 + power) (3 to 10)", min=0
    )


def spec(spaces: Spaces, config: ApexConfig) -> AlgorithmSpec:
    """What the house needs to know to run Ape-X on ``spaces``.

    Raises:
        SpaceError: actions that are not a Discrete, or observations that no model here serves.
        ConfigError: atoms without a range, or a range without atoms.
    """
    graph = policy_graph(spaces, config, "apex")
    found = q_spec(spaces, config, graph, Ladder(config.epsilon_base, config.epsilon_power))
    # With atoms, who learns finds how far distributions are apart, and acting knows of these their means alone: then
    # rows begin with the largest priority so far.
    if not config.prioritised or config.atoms > 1:
        return found
    return replace(
        found,
        row=(ArraySpec("q", (graph.head.outputs,), "float32"),),
        initial_priority="penstock.algorithms.apex.priorities:initial_priority",
    )


def init_state(spaces: Spaces, config: ApexConfig, seed: int) -> Arrays:
    """The state to begin with: the network drawn from ``seed``, its target equal to it, everything else 0."""
    found = spec(spaces, config)
    return initial_arrays(found, {"actor": [found.policy.actor]}, seed)
