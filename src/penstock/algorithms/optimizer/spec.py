"""The choice of an optimizer as plain data: its settings, and the arrays of a state that belong to it. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from penstock.config.fields import BY_OPTIMIZER, fields_of, tunable
from penstock.errors import ConfigError
from penstock.kernels.optimizer import COUNTING, MOMENTS
from penstock.types import ArraySpec

__all__ = ["OPTIMIZER_TEXT", "OptimizerConfig", "OptimizerName", "check_optimizer", "counts_steps", "optimizer_arrays"]

OptimizerName = Literal["adam", "adamw", "sgd", "rmsprop"]

STEPS = "adam_step"
"""The count of steps, which Adam keeps besides."""
READ: dict[OptimizerName, tuple[str, ...]] = {
    "adam": ("adam_eps",),
    "adamw": ("adam_eps", "weight_decay"),
    "sgd": ("momentum",),
    "rmsprop": ("rmsprop_eps",),
}
"""The settings that an optimizer reads, besides the step size."""


OPTIMIZER_TEXT = (
    "what turns gradients into steps; adamw: as adam, and it shrinks the weights; rmsprop and sgd: no momentum, or no "
    "scaling by the size of gradients, so that they need step sizes of their own"
)


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The settings of an optimizer. Step sizes are settings of the algorithm."""

    optimizer: OptimizerName = tunable(  # noqa: RUF009
        "adam", OPTIMIZER_TEXT, choices=get_args(OptimizerName), fixed=BY_OPTIMIZER
    )
    adam_eps: float = tunable(
        1e-8,
        "with adam and adamw: epsilon; larger: smaller steps where gradients are tiny (usual: 1e-8 to 1e-4)",
        min=0,
    )
    rmsprop_eps: float = tunable(
        1e-5,
        "with rmsprop: epsilon, inside the square root; larger: smaller steps where gradients are tiny "
        "(usual: 1e-7 to 0.1)",
        min=0,
    )
    momentum: float = tunable(
        0.9,
        "with sgd: share of the last step that is taken again; more: steadier and longer steps; 0: plain gradient "
        "descent (usual: 0 to 0.99)",
        min=0,
        max=1,
    )
    weight_decay: float = tunable(
        0.01,
        "with adamw: a step shrinks all weights by this times the step size; more: smaller weights "
        "(usual: 1e-4 to 0.1)",
        min=0,
    )


def check_optimizer(config: OptimizerConfig) -> None:
    """Check that every setting of an optimizer that differs from its default is read by the one that was chosen.

    Raises:
        ConfigError: nothing reads a setting that was given.
    """
    of_optimizers = {name for read in READ.values() for name in read}
    for field in fields_of(type(config)):
        unread = field.name in of_optimizers and field.name not in READ[config.optimizer]
        if unread and getattr(config, field.name) != field.default:
            readers = " or ".join(name for name, read in READ.items() if field.name in read)
            raise ConfigError(f"--{field.name} has no effect: it is for --optimizer {readers}, not {config.optimizer}")


def counts_steps(config: OptimizerConfig) -> bool:
    """Whether the optimizer keeps a count of its steps."""
    return config.optimizer in COUNTING


def optimizer_arrays(config: OptimizerConfig, vectors: Sequence[ArraySpec]) -> tuple[ArraySpec, ...]:
    """The arrays that the optimizer keeps for these vectors: ``<moment>.<vector>``. Leaves out the count of steps."""
    return tuple(
        replace(vector, name=f"{moment}.{vector.name}") for moment in MOMENTS[config.optimizer] for vector in vectors
    )
