"""Ape-X as plain data: DQN whose lanes explore differently and whose rows come with priorities. Imports no torch."""

from dataclasses import dataclass, replace

from penstock.algorithm import AlgorithmSpec
from penstock.algorithms.dqn.spec import QConfig, initial_q_arrays, policy_graph, q_spec
from penstock.algorithms.off_policy.exploration import LadderConfig
from penstock.algorithms.off_policy.spec import MOST_UPDATES
from penstock.config.fields import BY_LANES, BY_PRIORITIES, tunable
from penstock.types import Arrays, ArraySpec, Spaces

__all__ = ["ACTIONS", "MASKS", "ApexConfig", "init_state", "spec"]

ACTIONS = ("discrete",)
MASKS = True


@dataclass(frozen=True, kw_only=True)
class ApexConfig(LadderConfig, QConfig):
    """Hyper-parameters of Ape-X.

    Exploration, priorities and ``n_step`` are those of Horgan et al. 2018. The other defaults are not: the paper's
    values are for hundreds of environments and hundreds of millions of steps of Atari. The preset ``atari-apex`` has
    them. On small tasks the defaults did better: docs/algorithms/apex.md has the figures.
    """

    num_steps: int = tunable(
        16,
        "steps of each lane in a rollout, after which a newer policy acts; without lock step one also acts after each "
        "--renew_every steps; fewer: the policy that acts is newer; more: less overhead (usual: 8 to 64)",
        min=1,
        fixed=BY_LANES,
    )
    updates_per_step: float = tunable(
        0.25,
        "gradient steps for each collected row; more: learns more from each row, but overfits to it (usual: 0.05 to 4)",
        min=1e-4,
        max=MOST_UPDATES,
    )
    capacity: int = tunable(
        1_000_000,
        "rows that the replay table keeps; more: remembers for longer, but takes more memory "
        "(usual: 100,000 to 2,000,000)",
        min=1,
    )
    n_step: int = tunable(
        3,
        "rewards that are summed before the target's value counts; more: learns faster, but exploring lowers the "
        "values (usual: 1 to 5)",
        min=1,
    )
    prioritised: bool = tunable(
        True,
        "sample rows with a large error of their value more often; False: sample all rows equally often",
        fixed=BY_PRIORITIES,
    )


def spec(spaces: Spaces, config: ApexConfig) -> AlgorithmSpec:
    """What penstock needs to know to run Ape-X on ``spaces``.

    Raises:
        SpaceError: the actions are not a Discrete, or penstock has no model for the observations.
        ConfigError: atoms without a range, or a range without atoms.
    """
    graph = policy_graph(spaces, config, "apex")
    found = q_spec(spaces, config, graph, config.ladder())
    # With atoms, a learner's priorities are divergences of distributions. Acting gives only the means of these
    # distributions, so rows begin with the largest priority so far.
    if not config.prioritised or config.atoms > 1:
        return found
    return replace(
        found,
        row=(ArraySpec("q", (graph.head.outputs,), "float32"),),
        initial_priority="penstock.algorithms.apex.priorities:initial_priority",
    )


def init_state(spaces: Spaces, config: ApexConfig, seed: int) -> Arrays:
    """The first state: a random network that depends on ``seed``, an equal target, everything else 0."""
    return initial_q_arrays(spec(spaces, config), seed)
