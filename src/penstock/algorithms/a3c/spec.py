"""A3C as plain data: A2C's, with gradients that each environment process finds by itself. Imports no torch."""

from dataclasses import dataclass, replace
from typing import ClassVar

from penstock.algorithm import AlgorithmSpec
from penstock.algorithms.a2c.spec import A2CConfig
from penstock.algorithms.a2c.spec import spec as a2c_spec
from penstock.algorithms.ppo.spec import initial_arrays
from penstock.config.fields import BY_LANES, tunable
from penstock.errors import ConfigError
from penstock.types import Arrays, Spaces

__all__ = ["MASKS", "A3CConfig", "init_state", "spec"]

MASKS = True


@dataclass(frozen=True, kw_only=True)
class A3CConfig(A2CConfig):
    """Hyper-parameters of A3C."""

    recurrent_minibatches: ClassVar[int] = 1
    num_steps: int = tunable(
        20,
        "steps of each lane behind one gradient; more: less bias, but rarer gradients (usual: 5 to 32)",
        min=1,
        fixed=BY_LANES,
    )
    mini_batch_size: int = tunable(
        1024,
        "rows whose gradient is computed at once; larger rollouts are cut into parts with averaged gradients: for "
        "rollouts too large for memory (usual: at least the rows of a rollout)",
        min=1,
    )


def spec(spaces: Spaces, config: A3CConfig) -> AlgorithmSpec:
    """What penstock needs to know to run A3C on ``spaces``.

    Raises:
        ConfigError: running statistics are asked for.
        SpaceError: penstock has no model for a space.
    """
    for name in ("normalize_obs", "normalize_value"):
        if getattr(config, name):
            raise ConfigError(f"--{name} needs statistics of whole batches, and a3c has none; use --algo a2c")
    return replace(a2c_spec(spaces, config), topology="actor_learners")


def init_state(spaces: Spaces, config: A3CConfig, seed: int) -> Arrays:
    """The first state: random networks that depend on ``seed``, everything else 0."""
    return initial_arrays(spec(spaces, config), seed)
