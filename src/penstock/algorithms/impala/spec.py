"""IMPALA as plain data: its hyper-parameters and the arrays of its state. Imports no torch; networks are PPO's."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from penstock.algorithm import AlgorithmSpec, Schedule
from penstock.algorithms.correction.spec import VTraceConfig, check_weights
from penstock.algorithms.ppo.spec import (
    ActorCriticConfig,
    actor_critic_spec,
    initial_arrays,
    policy_graph,
)
from penstock.config.fields import BY_LANES, tunable
from penstock.types import Arrays, ArraySpec, Spaces

__all__ = ["MASKS", "IMPALAConfig", "init_state", "spec"]

MASKS = True


@dataclass(frozen=True, kw_only=True)
class IMPALAConfig(VTraceConfig, ActorCriticConfig):
    """Hyper-parameters of IMPALA. It learns from each short batch once, whichever policy collected it."""

    clip_apart: ClassVar[bool] = True
    num_steps: int = tunable(
        20,
        "steps of each lane in one batch; more: less bias, but rarer updates (usual: 10 to 100)",
        min=1,
        fixed=BY_LANES,
    )
    mini_batch_size: int = tunable(
        40,
        "rows of one gradient step, of whole lanes; num_envs times num_steps or more: one step for each batch "
        "(usual: 40 to 2000)",
        min=1,
    )
    lr: float = tunable(
        5e-4,
        "learning rate of the optimizer; too large: the policy collapses; too small: learning is slow "
        "(usual: 1e-4 to 3e-3)",
        min=0,
    )
    lr_schedule: Literal["constant", "linear"] = tunable(
        "linear",
        "how the learning rate changes; linear: it falls to 0 at the end of the run",
        choices=("constant", "linear"),
    )
    gae_lambda: float = tunable(
        0.95,
        "how far V-trace looks; 1: over the whole rollout; less: more from the critic, with more bias "
        "(usual: 0.9 to 1)",
        min=0,
        max=1,
    )
    normalize_advantage: bool = tunable(
        True,
        "scale the advantages of each minibatch by their size, so that the other settings suit rewards of any size",
    )


def spec(spaces: Spaces, config: IMPALAConfig) -> AlgorithmSpec:
    """What penstock needs to know to run IMPALA on ``spaces``.

    Raises:
        SpaceError: penstock has no model for a space.
        ConfigError: ``c_bar`` is above ``rho_bar``.
    """
    check_weights(config)
    graph = policy_graph(spaces, config)
    lanes = max(1, config.mini_batch_size // config.num_steps)
    plain = actor_critic_spec(spaces, graph, config, Schedule(1, lanes))
    read = ("log_prob", "reward", "terminated", "truncated", "bootstrap", "size")
    # The networks see whole lanes. A policy with memory needs to know where they begin.
    memory = ("first", *(part.name for part in graph.carry)) if graph.carry else ()
    returns = (ArraySpec("target", (), "float32"),) if graph.normalize_value else ()
    return replace(
        plain,
        topology="async_on_policy",
        targets=(ArraySpec("bootstrap", (), "float32"), ArraySpec("size", (), "float32"), *returns),
        minibatch=(*(name for name, _ in spaces.obs), "action", *read, *memory),
        unit="lane",
    )


def init_state(spaces: Spaces, config: IMPALAConfig, seed: int) -> Arrays:
    """The first state: random networks that depend on ``seed``, variances 1, everything else 0."""
    return initial_arrays(spec(spaces, config), seed)
