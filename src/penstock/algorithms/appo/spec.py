"""APPO as plain data: its hyper-parameters and the arrays of its state. Imports no torch; networks are PPO's."""

from dataclasses import dataclass, replace

from penstock.algorithm import AlgorithmSpec
from penstock.algorithms.correction.spec import VTraceConfig, check_weights
from penstock.algorithms.ppo import spec as ppo
from penstock.algorithms.ppo.spec import PPOConfig, initial_arrays, penalised
from penstock.types import Arrays, ArraySpec, Spaces

__all__ = ["MASKS", "APPOConfig", "init_state", "spec"]

MASKS = True


@dataclass(frozen=True, kw_only=True)
class APPOConfig(VTraceConfig, PPOConfig):
    """Hyper-parameters of APPO: those of PPO, and the bounds of V-trace."""


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
        targets=(*plain.targets, *(ArraySpec(name, (), "float32") for name in ("importance", "proximal_log_prob"))),
        minibatch=(*("proximal_log_prob" if name == "log_prob" else name for name in plain.minibatch), "importance"),
    )


def init_state(spaces: Spaces, config: APPOConfig, seed: int) -> Arrays:
    """The first state: random networks that depend on ``seed``, variances 1, ``kl_coef``, everything else 0."""
    return penalised(initial_arrays(spec(spaces, config), seed), config)
