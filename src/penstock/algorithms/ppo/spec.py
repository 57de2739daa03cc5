"""PPO as plain data: its hyper-parameters, the shape of its policy, the arrays of its state. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from penstock.algorithm import KL_COEF, AlgorithmSpec, Schedule
from penstock.algorithms.optimizer.spec import (
    STEPS,
    check_optimizer,
    counts_steps,
    first_scales,
    optimizer_arrays,
    scale_arrays,
)
from penstock.algorithms.ppo.actor_settings import ActorConfig
from penstock.config.fields import BY_KL_COEF, BY_LANES, BY_NETWORKS, tunable
from penstock.envs.imports import find_callable
from penstock.errors import ConfigError
from penstock.policies import PolicyGraph
from penstock.policies.architecture import Body, actor_critic
from penstock.policies.description import names_memory, names_module
from penstock.policies.network_settings import check_network_settings
from penstock.policies.trunk import MODEL_FORM, MODELS_WITH_MEMORY
from penstock.types import Arrays, ArraySpec, Spaces

__all__ = [
    "MASKS",
    "ActorCriticConfig",
    "PPOConfig",
    "actor_critic_spec",
    "init_state",
    "initial_arrays",
    "minibatch_units",
    "penalised",
    "policy_graph",
    "spec",
]

MASKS = True


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(ActorConfig):
    """Hyper-parameters that all on-policy actor-critics share."""

    clip_apart: ClassVar[bool] = False
    """Whether ``max_grad_norm`` bounds the gradient of each network by itself, and not of all together."""
    recurrent_minibatches: ClassVar[int] = 1
    """With a memory: how many minibatches of whole lanes a batch has at least, unless ``mini_batch_size`` is given."""
    num_steps: int = tunable(
        2048,
        "steps of each lane in one batch; more: less bias, but rarer updates (usual: 32 to 4096)",
        min=1,
        fixed=BY_LANES,
    )
    mini_batch_size: int = tunable(
        64,
        "rows of one gradient step; fewer: noisier steps and slower updates; with a memory "
        "max(1, mini_batch_size // num_steps) whole lanes, and by default at most a quarter of all lanes "
        "(usual: 32 to 4096)",
        min=1,
    )
    gamma: float = tunable(
        0.99,
        "discount of later rewards; rewards count about 1 / (1 - gamma) steps ahead (usual: 0.9 to 0.999)",
        min=0,
        max=1,
    )
    gae_lambda: float = tunable(
        0.95,
        "how advantages are estimated; 1: from the returns, with more variance; 0: from the critic, with more bias "
        "(usual: 0.8 to 1)",
        min=0,
        max=1,
    )
    value_coef: float = tunable(
        0.5, "weight of the value loss; the policy's loss has weight 1 (usual: 0.25 to 1)", min=0
    )
    entropy_coef: float = tunable(
        0.01,
        "weight of the policy's entropy; more: the policy explores for longer, but ends less exact (usual: 0 to 0.05)",
        min=0,
    )
    normalize_obs: bool = tunable(
        False, "shift and scale observations by their running mean and standard deviation", fixed=BY_NETWORKS
    )
    normalize_value: bool = tunable(
        False,
        "let the critic learn returns that are shifted and scaled by their running mean and standard deviation",
        fixed=BY_NETWORKS,
    )
    clip_reward: bool = tunable(
        False, "learn from rewards cut to -1 .. 1, as is usual on Atari; reported returns are not cut"
    )
    model: str = tunable("auto", MODELS_WITH_MEMORY, pattern=r"(?s).+", form=MODEL_FORM, fixed=BY_NETWORKS)
    critic_obs: tuple[str, ...] | None = tunable(
        None,
        "fields of a Dict or Tuple observation that only the critic sees, such as the state of a whole team; a nested "
        "field is named with all its parents, as a.b",
        form="names of observation fields, separated by commas or with a flag each",
        adds=True,
        fixed=BY_NETWORKS,
    )
    memory_size: int = tunable(
        64,
        "width of the memory of lstm and gru; wider: remembers more, but takes more time (usual: 32 to 512)",
        min=1,
        fixed=BY_NETWORKS,
    )
    share_memory: bool = tunable(
        False,
        "with lstm and gru: let actor and critic share all layers but the last; this acts twice as fast, but large "
        "returns drown the policy's gradient unless --normalize_value is on",
        fixed=BY_NETWORKS,
    )
    dropout: float = tunable(
        0.0,
        "share of the outputs of a critic's hidden MLP layers that are 0 while learning; more: less overfitting "
        "(usual: 0 to 0.2)",
        min=0,
        max=0.9,
        fixed=BY_NETWORKS,
    )

    @classmethod
    def defaults_beside(cls, given: Mapping[str, Any], num_envs: int) -> dict[str, Any]:
        """With a memory: a ``mini_batch_size`` of at least ``recurrent_minibatches``, if there are as many lanes.

        Raises:
            ConfigError: the table of ``model`` cannot be read.
            EnvError: the user's own module is not found.
        """
        if cls.recurrent_minibatches == 1 or "mini_batch_size" in given:
            return {}
        model = given.get("model", cls.model)
        own = find_callable(model, "model") if names_module(model) else None
        if not (getattr(own, "carry", None) if own else names_memory(model)):
            return {}
        lanes = max(1, num_envs // cls.recurrent_minibatches)
        return {"mini_batch_size": min(cls.mini_batch_size, lanes * given.get("num_steps", cls.num_steps))}


@dataclass(frozen=True, kw_only=True)
class PPOConfig(ActorCriticConfig):
    """Hyper-parameters of PPO."""

    recurrent_minibatches: ClassVar[int] = 4
    epochs: int = tunable(
        10,
        "passes over each batch; more: learns more from each row, but the policy moves further from the one that "
        "acted (usual: 3 to 20)",
        min=1,
    )
    clip_param: float = tunable(
        0.2,
        "largest relative change of an action's probability in one update; beyond it the gradient is 0 "
        "(usual: 0.1 to 0.3)",
        min=0,
        max=1,
    )
    normalize_advantage: bool = tunable(
        True, "shift and scale the advantages of each minibatch to mean 0 and standard deviation 1"
    )
    target_kl: float = tunable(
        0.0,
        "end a batch's epochs once the policy has moved this far (KL divergence); 0: never (usual: 0.01 to 0.05)",
        min=0,
    )
    kl_coef: float = tunable(
        0.0,
        "weight of a penalty on how far the policy moves in one update (KL divergence); more: it moves less; 0: no "
        "penalty (usual: 0.2 to 3)",
        min=0,
    )
    kl_target: float = tunable(
        0.0,
        "with kl_coef: double or halve the penalty's weight after each batch, so that an update moves the policy this "
        "far (KL divergence); 0: the weight stays (usual: 0.001 to 0.03)",
        min=0,
        fixed=BY_KL_COEF,
    )


def spec(spaces: Spaces, config: PPOConfig) -> AlgorithmSpec:
    """What penstock needs to know to run PPO on ``spaces``.

    Raises:
        SpaceError: penstock has no model for a space.
        ConfigError: ``kl_target`` without ``kl_coef``.
    """
    if config.kl_target and not config.kl_coef:
        raise ConfigError(
            f"--kl_target {config.kl_target:g} doubles or halves --kl_coef, which is 0; give --kl_coef 0.2 as well"
        )
    graph = policy_graph(spaces, config)
    units = minibatch_units(graph, config)
    schedule = Schedule(config.epochs, units, config.target_kl or None, config.kl_target or None)
    plain = actor_critic_spec(spaces, graph, config, schedule)
    adapted = (ArraySpec(KL_COEF, (), "float32"),) if config.kl_target else ()
    return replace(plain, state=(*plain.state, *adapted))


def policy_graph(spaces: Spaces, config: ActorCriticConfig) -> PolicyGraph:
    """The networks of ``config`` for ``spaces``.

    Raises:
        SpaceError: penstock has no model for a space.
    """
    graph = actor_critic(
        spaces,
        Body(
            config.model,
            config.hidden_sizes,
            config.activation,
            config.memory_size,
            share_memory=config.share_memory,
            layer_norm=config.layer_norm,
            init=config.init,
            dropout=config.dropout,
        ),
        config.log_std_init,
        normalize_obs=config.normalize_obs,
        normalize_value=config.normalize_value,
        critic_obs=config.critic_obs or (),
    )
    check_network_settings(graph, config)
    return graph


def minibatch_units(graph: PolicyGraph, config: ActorCriticConfig) -> int:
    """The number of rows of a minibatch. For a policy with memory: the number of whole lanes, at least one."""
    return max(1, config.mini_batch_size // config.num_steps) if graph.carry else config.mini_batch_size


def actor_critic_spec(
    spaces: Spaces, graph: PolicyGraph, config: ActorCriticConfig, schedule: Schedule
) -> AlgorithmSpec:
    """The spec of an on-policy actor-critic with any loss.

    Raises:
        ConfigError: the optimizer of ``config`` does not suit the policy, or does not read a setting that was given.
    """
    check_optimizer(config, graph.actor)
    optimizer = optimizer_arrays(config, [network.spec for network in graph.networks])
    if counts_steps(config):
        optimizer = (*optimizer, ArraySpec(STEPS, (), "int64"))
    fields = tuple(name for name, _ in spaces.obs)
    # The updater counts gradient steps there: they key the noise of dropout.
    counted = (ArraySpec("gradient_steps", (), "int64"),) if graph.dropout else ()
    memory = ("first", *(part.name for part in graph.carry)) if graph.carry else ()
    return AlgorithmSpec(
        topology="on_policy",
        row=(ArraySpec("log_prob", (), "float32"), ArraySpec("value", (), "float32")),
        policy=graph,
        state=(
            *graph.published(),
            *optimizer,
            *counted,
            *scale_arrays(config.precision, ("",)),
            ArraySpec("progress", (), "float64"),
        ),
        targets=(ArraySpec("advantage", (), "float32"), ArraySpec("target", (), "float32")),
        minibatch=(*fields, "action", "log_prob", "advantage", "target", *memory),
        schedule=schedule,
        unit="lane" if graph.carry else "row",
        optimizer=tuple(part.name for part in optimizer),
    )


def init_state(spaces: Spaces, config: PPOConfig, seed: int) -> Arrays:
    """The first state: random networks that depend on ``seed``, variances 1, ``kl_coef``, scales, the rest 0."""
    return penalised(initial_arrays(spec(spaces, config), seed), config)


def penalised(state: Arrays, config: PPOConfig) -> Arrays:
    """A first state, with the first weight of the penalty if the run adapts it."""
    return {**state, KL_COEF: np.full_like(state[KL_COEF], config.kl_coef)} if KL_COEF in state else state


def initial_arrays(of: AlgorithmSpec, seed: int) -> Arrays:
    """The first state of any spec, as ``init_state`` describes it."""
    state = {part.name: np.zeros(part.shape, part.dtype) for part in of.state}
    for number, network in enumerate(of.policy.networks):
        state[network.name] = network.initial(np.random.default_rng([seed, number]))
    for name in ("obs_var", "value_var"):
        if name in state:
            state[name] = np.ones_like(state[name])
    return {**state, **first_scales(of.state)}
