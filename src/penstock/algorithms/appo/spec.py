"""APPO as plain data: its hyper-parameters and the arrays of its state. Imports no torch; networks are PPO's."""

from dataclasses import dataclass, replace

from penstock.algorithm import AlgorithmSpec
from penstock.algorithms.correction.spec import VTraceConfig, check_weights
from penstock.algorithms.ppo import spec as ppo
from penstock.algorithms.ppo.spec import PPOConfig, initial_arrays, penalised
from penstock.config.fields import BY_TARGET, tunable
from penstock.types import Arrays, ArraySpec, Spaces

__all__ = ["MASKS", "APPOConfig", "init_state", "spec"]

MASKS = True

GRADIENT_STEPS = ArraySpec("gradient_steps", (), "int64")
"""The updater counts there when targets are due."""


@dataclass(frozen=True, kw_only=True)
class APPOConfig(VTraceConfig, PPOConfig):
    """Hyper-parameters of APPO: those of PPO, the bounds of V-trace, and the target network."""

    target_every: int = tunable(
        0,
        "gradient steps between two copies of the networks to their targets, from which ratios, weights and values "
        "come; more: learns more steadily, but more slowly; 0: no target, each batch begins with the networks as they "
        "are (usual: one or two batches)",
        min=0,
        fixed=BY_TARGET,
    )


def spec(spaces: Spaces, config: APPOConfig) -> AlgorithmSpec:
    """What penstock needs to know to run APPO on ``spaces``.

    Raises:
        SpaceError: penstock has no model for a space.
        ConfigError: ``c_bar`` is above ``rho_bar``.
    """
    check_weights(config)
    plain = ppo.spec(spaces, config)
    return replace(
        plain,
        topology="async_on_policy",
        state=(*plain.state, *_targets(plain)) if config.target_every else plain.state,
        targets=(*plain.targets, *(ArraySpec(name, (), "float32") for name in ("importance", "proximal_log_prob"))),
        minibatch=(*("proximal_log_prob" if name == "log_prob" else name for name in plain.minibatch), "importance"),
    )


def _targets(plain: AlgorithmSpec) -> tuple[ArraySpec, ...]:
    """The target of each published array, running statistics included, and the count by which targets are copied.

    A target without statistics of its own would change whenever those of the networks do.
    """
    counts = () if GRADIENT_STEPS in plain.state else (GRADIENT_STEPS,)
    return (*(replace(part, name=f"target.{part.name}") for part in plain.published()), *counts)


def init_state(spaces: Spaces, config: APPOConfig, seed: int) -> Arrays:
    """The first state: random networks that depend on ``seed``, equal targets, variances 1, ``kl_coef``, else 0."""
    of = spec(spaces, config)
    state = penalised(initial_arrays(of, seed), config)
    targets = {f"target.{part.name}": state[part.name].copy() for part in of.published()}
    return {**state, **{name: values for name, values in targets.items() if name in state}}
