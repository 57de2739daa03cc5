"""R2D2 as plain data: its hyper-parameters, its network with a memory, the sequences it learns from. No torch."""

import math
from dataclasses import dataclass, replace

from penstock.algorithm import AlgorithmSpec, Priorities, TableSpec
from penstock.algorithms.dqn.spec import ValueConfig, initial_q_arrays
from penstock.algorithms.off_policy.exploration import LadderConfig
from penstock.algorithms.off_policy.spec import (
    MOST_UPDATES,
    SequenceConfig,
    body_of,
    off_policy_spec,
    over_sequences,
    with_statistics,
)
from penstock.config.fields import BY_LANES, BY_NETWORKS, BY_PRIORITIES, BY_PRIORITY_ALPHA, tunable
from penstock.errors import ConfigError
from penstock.policies import PolicyGraph
from penstock.policies.architecture import q_network
from penstock.policies.network_settings import check_network_settings
from penstock.policies.trunk import MODEL_FORM, MODELS_WITH_MEMORY
from penstock.types import Arrays, Spaces

__all__ = ["ACTIONS", "MASKS", "R2D2Config", "init_state", "policy_graph", "spec"]

ACTIONS = ("discrete",)
MASKS = True


@dataclass(frozen=True, kw_only=True)
class R2D2Config(LadderConfig, SequenceConfig, ValueConfig):
    """Hyper-parameters of R2D2.

    The paper's are for 256 actors and billions of frames of Atari: sequences of 80 rows behind a burn-in of 40,
    minibatches of 64 sequences, gamma 0.997, 5 steps, a target copied every 2,500 gradient steps. The defaults here
    are for small tasks: docs/algorithms/r2d2.md has the figures.
    """

    num_steps: int = tunable(
        16,
        "steps of each lane in a rollout, after which a newer policy acts; without lock step one also acts after each "
        "--renew_every steps; a sequence begins with each rollout, so fewer steps let more of them overlap "
        "(usual: 8 to 40, at most learned_steps)",
        min=1,
        fixed=BY_LANES,
    )
    mini_batch_size: int = tunable(
        512,
        "rows of one gradient step that are learned from, of whole sequences; fewer: noisier, but cheaper steps "
        "(usual: 512 to 5120)",
        min=1,
    )
    updates_per_step: float = tunable(
        0.03,
        "gradient steps for each collected row; more: learns more from each row, but overfits to it "
        "(usual: 0.002 to 0.1)",
        min=1e-4,
        max=MOST_UPDATES,
    )
    n_step: int = tunable(
        3,
        "rewards that are summed before the target's value counts; more: learns faster, but exploring lowers the "
        "values (usual: 1 to 5)",
        min=1,
    )
    prioritised: bool = tunable(
        True,
        "sample sequences with large errors of their values more often; False: sample all sequences equally often",
        fixed=BY_PRIORITIES,
    )
    priority_alpha: float = tunable(
        0.9,
        "with prioritised: power of the error; 0: sample all sequences equally often; 1: in proportion to their errors "
        "(usual: 0.6 to 0.9)",
        min=0,
        max=1,
        fixed=BY_PRIORITY_ALPHA,
    )
    priority_beta: float = tunable(
        0.6,
        "with prioritised: share of the bias from sampling that is corrected at the start of the run; it grows to 1 at "
        "the end (usual: 0.4 to 1)",
        min=0,
        max=1,
    )
    priority_eta: float = tunable(
        0.9,
        "with prioritised: a sequence's priority is this share of its largest error, and the rest of its mean error "
        "(usual: 0.5 to 1)",
        min=0,
        max=1,
    )
    rescale_value: bool = tunable(
        True,
        "learn values squashed by h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x, which suits rewards of any size",
        fixed=BY_NETWORKS,
    )
    model: str = tunable("lstm", MODELS_WITH_MEMORY, pattern=r"(?s).+", form=MODEL_FORM, fixed=BY_NETWORKS)
    hidden_sizes: tuple[int, ...] = tunable(
        (64,),
        "widths of the hidden layers below the memory; wider: learns more, but takes more time (usual: 64 to 256,256)",
        min=1,
        fixed=BY_NETWORKS,
    )


def spec(spaces: Spaces, config: R2D2Config) -> AlgorithmSpec:
    """What penstock needs to know to run R2D2 on ``spaces``.

    Raises:
        SpaceError: the actions are not a Discrete, or penstock has no model for the observations.
        ConfigError: the model has no memory, or a return has more steps than a sequence has learned rows.
    """
    if config.n_step > config.learned_steps:
        raise ConfigError(
            f"--n_step {config.n_step} is more than the --learned_steps {config.learned_steps} of a sequence: no "
            "reward behind it is known; give a smaller --n_step"
        )
    graph = policy_graph(spaces, config)
    found = off_policy_spec(spaces, config, graph, learned=(graph.actor.spec,), targeted=("actor",), losses=("",))
    priorities = Priorities(config.priority_alpha, config.priority_beta) if config.prioritised else None
    limit = 1.0 if config.clip_reward else math.inf
    found = replace(
        found,
        table=TableSpec(config.capacity, config.gamma, priorities=priorities, reward_limit=limit),
        minibatch=("importance",) if config.prioritised else (),
        explore=config.ladder(),
        warmup=0,
    )
    return over_sequences(found, spaces, config, "async_off_policy")


def policy_graph(spaces: Spaces, config: R2D2Config) -> PolicyGraph:
    """The network of action values of ``config`` for ``spaces``.

    Raises:
        SpaceError: the actions are not a Discrete, or penstock has no model for the observations.
        ConfigError: the model has no memory.
    """
    graph = q_network(
        spaces, body_of(config), "r2d2", dueling=config.dueling, atoms=1, low=0.0, high=0.0, memory="required"
    )
    check_network_settings(graph, config)
    return with_statistics(graph, spaces, config)


def init_state(spaces: Spaces, config: R2D2Config, seed: int) -> Arrays:
    """The first state: a random network that depends on ``seed``, an equal target, everything else 0."""
    return initial_q_arrays(spec(spaces, config), seed)
