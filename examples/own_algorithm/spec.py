"""REINFORCE as plain data: its settings, its policy, the arrays of its state. Imports no torch."""

from dataclasses import dataclass

import numpy as np

from penstock.algorithm import AlgorithmSpec, Schedule
from penstock.config.fields import BY_LANES, BY_NETWORKS, tunable
from penstock.policies import PolicyGraph
from penstock.policies.architecture import Body, actor_critic
from penstock.types import Arrays, ArraySpec, Spaces

ACTIONS = ("discrete",)
"""The action spaces that the algorithm can handle. penstock refuses all others."""


@dataclass(frozen=True, kw_only=True)
class Reinforce:
    """Each field is a flag of `penstock train --algo own_algorithm`; the name of the class is yours."""

    num_steps: int = tunable(64, "steps of each lane in one batch", min=1, fixed=BY_LANES)
    mini_batch_size: int = tunable(
        512, "rows of one gradient step; num_envs times num_steps: one step for each batch", min=1
    )
    lr: float = tunable(1e-2, "learning rate; too large: the policy collapses (usual: 1e-3 to 2e-2)", min=0)
    gamma: float = tunable(0.99, "discount; rewards count about 1 / (1 - gamma) steps ahead", min=0, max=1)
    entropy_coef: float = tunable(0.01, "weight of the policy's entropy (usual: 0 to 0.05)", min=0)
    hidden_size: int = tunable(64, "width of the one hidden layer", min=1, fixed=BY_NETWORKS)


def policy_graph(spaces: Spaces, config: Reinforce) -> PolicyGraph:
    """An MLP for the policy, and one for the baseline."""
    body = Body("mlp", (config.hidden_size,), "tanh")
    return actor_critic(spaces, body, 0.0, normalize_obs=False, normalize_value=False)


def spec(spaces: Spaces, config: Reinforce) -> AlgorithmSpec:
    """What penstock needs to know to run REINFORCE. The second parameter's annotation names the config."""
    graph = policy_graph(spaces, config)
    moments = [f"adam_{moment}.{network.name}" for network in graph.networks for moment in "mv"]
    sizes = [network.spec.shape for network in graph.networks for _ in "mv"]
    return AlgorithmSpec(
        topology="on_policy",
        row=(ArraySpec("value", (), "float32"),),
        policy=graph,
        state=(
            *graph.published(),
            *(ArraySpec(name, shape, "float32") for name, shape in zip(moments, sizes, strict=True)),
            ArraySpec("adam_step", (), "int64"),
            ArraySpec("progress", (), "float64"),
        ),
        targets=(ArraySpec("advantage", (), "float32"), ArraySpec("target", (), "float32")),
        minibatch=(*(name for name, _ in spaces.obs), "action", "advantage", "target"),
        schedule=Schedule(1, config.mini_batch_size),
    )


def init_state(spaces: Spaces, config: Reinforce, seed: int) -> Arrays:
    """The first state: random networks that depend on ``seed``, everything else 0."""
    state = {part.name: np.zeros(part.shape, part.dtype) for part in spec(spaces, config).state}
    for number, network in enumerate(policy_graph(spaces, config).networks):
        state[network.name] = network.initial(np.random.default_rng([seed, number]))
    return state
