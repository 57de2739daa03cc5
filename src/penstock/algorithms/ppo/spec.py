"""PPO as plain data: its hyper-parameters, the shape of its policy, the arrays of its state. Imports no torch."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from penstock.algorithm import AlgorithmSpec, Schedule
from penstock.config.fields import BY_LANES, BY_NETWORKS, tunable
from penstock.errors import SpaceError
from penstock.policies import PolicyGraph
from penstock.policies.architecture import ActivationName, Body, ModelName, PrecisionName, actor_critic
from penstock.types import Arrays, ArraySpec, Spaces

__all__ = [
    "ActorCriticConfig",
    "PPOConfig",
    "actor_critic_spec",
    "init_state",
    "initial_arrays",
    "policy_graph",
    "spec",
]


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig:
    """What every on-policy actor-critic here takes."""

    num_steps: int = tunable(
        2048,
        "steps of each lane in one batch: longer lowers bias and makes updates rarer (32 to 4096)",
        min=1,
        fixed=BY_LANES,
    )
    lr: float = tunable(
        3e-4, "step size: too large and the policy collapses, too small and it creeps (1e-5 to 3e-3)", min=0
    )
    lr_schedule: Literal["constant", "linear"] = tunable(
        "constant", "linear lets the step size fall to 0 at the end of the run", choices=("constant", "linear")
    )
    gamma: float = tunable(
        0.99, "discount: rewards count about 1 / (1 - gamma) steps ahead (0.9 to 0.999)", min=0, max=1
    )
    gae_lambda: float = tunable(
        0.95, "1 trusts the returns (variance), 0 trusts the critic (bias) (0.8 to 1)", min=0, max=1
    )
    value_coef: float = tunable(0.5, "weight of the value loss against the policy's (0.25 to 1)", min=0)
    entropy_coef: float = tunable(
        0.01, "reward for randomness: more explores longer and ends less exact (0 to 0.05)", min=0
    )
    max_grad_norm: float = tunable(0.5, "longer gradients are scaled down to this norm (0.3 to 10)", min=1e-4)
    normalize_obs: bool = tunable(
        False, "shift and scale observations by running statistics (off or on)", fixed=BY_NETWORKS
    )
    normalize_value: bool = tunable(
        False, "let the critic learn returns scaled by running statistics (off or on)", fixed=BY_NETWORKS
    )
    normalize_advantage: bool = tunable(True, "shift and scale the advantages of each minibatch (on or off)")
    clip_reward: bool = tunable(
        False, "learn from rewards cut to -1 .. 1, as is usual on Atari; returns are reported whole (off or on)"
    )
    model: ModelName = tunable(  # noqa: RUF009
        "auto", "auto: nature_cnn for one uint8 image, else mlp", choices=get_args(ModelName), fixed=BY_NETWORKS
    )
    hidden_sizes: tuple[int, ...] = tunable(
        (64, 64),
        "widths of an mlp's hidden layers: wider fits more and costs more (64,64 to 400,300)",
        min=1,
        fixed=BY_NETWORKS,
    )
    activation: ActivationName = tunable(  # noqa: RUF009
        "tanh",
        "between the layers of an mlp: tanh is the steadiest, relu the cheapest",
        choices=get_args(ActivationName),
        fixed=BY_NETWORKS,
    )
    log_std_init: float = tunable(
        0.0, "logarithm of a Gaussian policy's first spread: lower explores less (-2 to 0.5)", min=-10, max=4
    )
    precision: PrecisionName = tunable(  # noqa: RUF009
        "float32",
        "of an image network's layers while learning: bfloat16 is up to twice as fast on processors that multiply it "
        "(avx512_bf16, amx_bf16) and on GPUs, slower on others",
        choices=get_args(PrecisionName),
    )


@dataclass(frozen=True, kw_only=True)
class PPOConfig(ActorCriticConfig):
    """Hyper-parameters of PPO."""

    epochs: int = tunable(10, "passes over each batch: more learns more from it and drifts further (3 to 20)", min=1)
    mini_batch_size: int = tunable(64, "rows of one gradient step: fewer are noisier and slower (32 to 4096)", min=1)
    clip_param: float = tunable(
        0.2, "how far an action's probability may move before its gradient stops (0.1 to 0.3)", min=0, max=1
    )
    target_kl: float = tunable(
        0.0, "end a batch's epochs once the policy moved this far; 0 never does (0.01 to 0.05)", min=0
    )
    adam_eps: float = tunable(1e-5, "Adam's epsilon: larger damps steps where gradients are tiny (1e-8 to 1e-5)", min=0)


def spec(spaces: Spaces, config: PPOConfig) -> AlgorithmSpec:
    """What the house needs to know to run PPO on ``spaces``.

    Raises:
        SpaceError: a space that no model here serves.
    """
    graph = policy_graph(spaces, config)
    optimizer = (
        *(ArraySpec(f"adam_m.{network.name}", network.spec.shape, "float32") for network in graph.networks),
        *(ArraySpec(f"adam_v.{network.name}", network.spec.shape, "float32") for network in graph.networks),
        ArraySpec("adam_step", (), "int64"),
    )
    schedule = Schedule(config.epochs, config.mini_batch_size, config.target_kl or None)
    return actor_critic_spec(spaces, graph, optimizer, schedule)


def policy_graph(spaces: Spaces, config: ActorCriticConfig) -> PolicyGraph:
    """The networks that ``config`` asks for on ``spaces``.

    Raises:
        SpaceError: a space that no model here serves, or bfloat16 without an image.
    """
    graph = actor_critic(
        spaces,
        Body(config.model, config.hidden_sizes, config.activation),
        config.log_std_init,
        normalize_obs=config.normalize_obs,
        normalize_value=config.normalize_value,
    )
    if config.precision != "float32" and not graph.sees_image:
        raise SpaceError(f"--precision {config.precision} is for networks that see an image: leave it out")
    return graph


def actor_critic_spec(
    spaces: Spaces, graph: PolicyGraph, optimizer: tuple[ArraySpec, ...], schedule: Schedule
) -> AlgorithmSpec:
    """The spec of an on-policy actor-critic, whatever its loss; ``optimizer`` lists its optimizer's arrays."""
    fields = tuple(name for name, _ in spaces.obs)
    return AlgorithmSpec(
        topology="on_policy",
        row=(ArraySpec("log_prob", (), "float32"), ArraySpec("value", (), "float32")),
        policy=graph,
        noise=graph.head.noise,
        state=(*graph.published(), *optimizer, ArraySpec("progress", (), "float64")),
        targets=(ArraySpec("advantage", (), "float32"), ArraySpec("target", (), "float32")),
        minibatch=(*fields, "action", "log_prob", "advantage", "target"),
        schedule=schedule,
    )


def init_state(spaces: Spaces, config: PPOConfig, seed: int) -> Arrays:
    """The state to begin with: networks drawn from ``seed``, variances 1, everything else 0."""
    return initial_arrays(spec(spaces, config), seed)


def initial_arrays(of: AlgorithmSpec, seed: int) -> Arrays:
    """The arrays of a spec's state to begin with, as ``init_state`` describes them."""
    state = {part.name: np.zeros(part.shape, part.dtype) for part in of.state}
    for number, network in enumerate(of.policy.networks):
        state[network.name] = network.initial(np.random.default_rng([seed, number]))
    for name in ("obs_var", "value_var"):
        if name in state:
            state[name] = np.ones_like(state[name])
    return state
