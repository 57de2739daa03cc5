"""Behaviour cloning as plain data: its hyper-parameters and the arrays of its state. Imports no torch.

Its networks are those of PPO with the same settings.
"""

from dataclasses import dataclass

from penstock.algorithm import HELD_OUT, AlgorithmSpec, Cloning, ReplaySchedule, TableSpec
from penstock.algorithms.optimizer.spec import STEPS, check_optimizer, counts_steps, optimizer_arrays, scale_arrays
from penstock.algorithms.ppo.actor_settings import ActorConfig
from penstock.algorithms.ppo.spec import initial_arrays
from penstock.config.fields import BY_LANES, BY_NETWORKS, tunable
from penstock.errors import ConfigError, NoEffectError
from penstock.policies import Categorical, PolicyGraph
from penstock.policies.architecture import Body, actor_critic
from penstock.policies.description import names_memory, names_module
from penstock.policies.exploration import Constant
from penstock.policies.network_settings import check_network_settings
from penstock.policies.trunk import MODEL_FORM, MODELS
from penstock.types import Arrays, ArraySpec, Spaces

__all__ = ["ACTIONS", "MASKS", "BCConfig", "init_state", "policy_graph", "spec"]

ACTIONS = ("discrete", "bounded", "unbounded")
"""Those that kept episodes hold."""
MASKS = True

GREEDY = Constant(0.0)


@dataclass(frozen=True, kw_only=True)
class BCConfig(ActorConfig):
    """Hyper-parameters of behaviour cloning."""

    num_steps: int = tunable(
        8,
        "steps that each environment plays before the next gradient steps; in lock step the same policy plays them",
        min=1,
        fixed=BY_LANES,
    )
    updates_per_step: float = tunable(
        1.0,
        "gradient steps for each step that environments play; more: less playing, which only shows how good the policy "
        "is (usual: 0.5 to 20)",
        min=1e-4,
        max=1_000,
    )
    mini_batch_size: int = tunable(
        128,
        "rows of one gradient step, those of held-out episodes included; fewer: noisier, but cheaper steps (usual: 32 "
        "to 1024)",
        min=2,
    )
    lr: float = tunable(
        1e-3,
        "learning rate of the optimizer; too large: the policy collapses; too small: learning is slow "
        "(usual: 1e-4 to 3e-3)",
        min=0,
    )
    held_out: float = tunable(
        0.1,
        "share of the episodes that nothing is learned from: the metrics on them show overfitting; 0: none "
        "(usual: 0.1 to 0.2)",
        min=0,
        max=0.5,
    )
    label_smoothing: float = tunable(
        0.0,
        "Discrete actions: share of the probability that goes to all actions alike; more: the policy is less sure, so "
        "that a run that begins with it explores (usual: 0 to 0.3)",
        min=0,
        max=0.9,
    )
    model: str = tunable("auto", MODELS, pattern=r"(?s).+", form=MODEL_FORM, fixed=BY_NETWORKS)

    @property
    def judging(self) -> float:
        """Share of the rows of a minibatch that are held out: a whole number of them, at least one if any are."""
        return max(1, round(self.held_out * self.mini_batch_size)) / self.mini_batch_size if self.held_out else 0.0


def spec(spaces: Spaces, config: BCConfig) -> AlgorithmSpec:
    """What penstock needs to know to clone on ``spaces``.

    Raises:
        SpaceError: penstock has no model for a space.
        ConfigError: the policy would have a memory; or the optimizer of ``config`` does not suit the policy, or does
            not read a setting that was given.
    """
    graph = policy_graph(spaces, config)
    check_optimizer(config, graph.actor)
    optimizer = optimizer_arrays(config, [graph.actor.spec])
    if counts_steps(config):
        optimizer = (*optimizer, ArraySpec(STEPS, (), "int64"))
    held_out = (HELD_OUT,) if config.held_out else ()
    return AlgorithmSpec(
        topology="off_policy",
        row=(),
        policy=graph,
        state=(
            *graph.published(),
            ArraySpec("gradient_steps", (), "int64"),
            *optimizer,
            *scale_arrays(config.precision, ("",)),
            ArraySpec("progress", (), "float64"),
        ),
        targets=(),
        minibatch=(*(name for name, _ in spaces.obs), "action", *held_out),
        schedule=ReplaySchedule(config.mini_batch_size, config.updates_per_step, min_rows=1, reuse=1.0),
        # Of the rows that environments give, none is sampled.
        table=TableSpec(capacity=1, gamma=1.0),
        explore=GREEDY,
        optimizer=tuple(part.name for part in optimizer),
        cloning=Cloning(config.held_out, config.judging),
    )


def policy_graph(spaces: Spaces, config: BCConfig) -> PolicyGraph:
    """The networks of ``config`` for ``spaces``, with a critic that stays as it begins: PPO may go on with both.

    Raises:
        SpaceError: penstock has no model for a space.
        ConfigError: the policy would have a memory.
        NoEffectError: labels of a Box shall be smoothed.
    """
    if not names_module(config.model) and names_memory(config.model):
        raise _no_memory(config)
    graph = actor_critic(
        spaces,
        Body(config.model, config.hidden_sizes, config.activation, layer_norm=config.layer_norm, init=config.init),
        config.log_std_init,
        normalize_obs=False,
        normalize_value=False,
    )
    if graph.carry:
        raise _no_memory(config)
    if config.label_smoothing and not isinstance(graph.head, Categorical):
        raise NoEffectError("--label_smoothing is for Discrete actions, and these are a Box", "label_smoothing")
    check_network_settings(graph, config)
    return graph


def init_state(spaces: Spaces, config: BCConfig, seed: int) -> Arrays:
    """The first state: random networks that depend on ``seed``, scales, everything else 0."""
    return initial_arrays(spec(spaces, config), seed)


def _no_memory(config: BCConfig) -> ConfigError:
    model = ": this table" if config.model.startswith("{") else f" {config.model}"
    return ConfigError(f"--model{model} has a memory, and bc learns from single rows; give --model mlp")
