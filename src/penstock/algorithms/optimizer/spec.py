"""How gradients become steps, as plain data: the optimizer that was chosen, its arrays, scales of losses. No torch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, get_args

import numpy as np

from penstock.config.fields import BY_OPTIMIZER, fields_of, tunable
from penstock.errors import ConfigError
from penstock.kernels.optimizer import COUNTING, MIN_EPSILON, MOMENTS, OptimizerName
from penstock.policies import Linear, Network
from penstock.policies.architecture import PrecisionName
from penstock.policies.network import ParameterSlice
from penstock.types import Arrays, ArraySpec

__all__ = [
    "NUMBERS",
    "OPTIMIZER_TEXT",
    "Layout",
    "OptimizerConfig",
    "OptimizerName",
    "check_optimizer",
    "counts_steps",
    "first_scales",
    "layout_of",
    "optimizer_arrays",
    "scale_arrays",
    "scale_names",
]

STEPS = "adam_step"
"""The count of steps, which Adam keeps besides."""
LOSS_SCALE, LOSS_SCALE_STEPS = "loss_scale", "loss_scale_steps"
FIRST_LOSS_SCALE = 65536.0
"""As that of `torch.amp.GradScaler`."""
READ: dict[OptimizerName, tuple[str, ...]] = {
    "adam": ("adam_eps",),
    "adamw": ("adam_eps", "weight_decay"),
    "sgd": ("momentum",),
    "rmsprop": ("rmsprop_eps",),
    "muon": ("adam_eps", "momentum", "weight_decay"),
}
"""The settings that an optimizer reads, besides the learning rate."""


OPTIMIZER_TEXT = (
    "what turns gradients into steps; adamw: as adam, and it shrinks the weights; rmsprop and sgd: no momentum, or no "
    "scaling by the size of gradients, so that they need learning rates of their own; muon: as adamw, but matrices "
    "between hidden layers take orthogonal steps"
)


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The settings of an optimizer. Learning rates are settings of the algorithm."""

    optimizer: OptimizerName = tunable(  # noqa: RUF009
        "adam", OPTIMIZER_TEXT, choices=get_args(OptimizerName), fixed=BY_OPTIMIZER
    )
    adam_eps: float = tunable(
        1e-8,
        "with adam, adamw and muon: epsilon; larger: smaller steps where gradients are tiny (usual: 1e-8 to 1e-4)",
        min=MIN_EPSILON,
    )
    rmsprop_eps: float = tunable(
        1e-5,
        "with rmsprop: epsilon, inside the square root; larger: smaller steps where gradients are tiny "
        "(usual: 1e-7 to 0.1)",
        min=MIN_EPSILON,
    )
    momentum: float = tunable(
        0.9,
        "with sgd and muon: share of the last step that is taken again; more: steadier steps, with sgd also longer "
        "ones (usual: 0 to 0.99)",
        min=0,
        max=1,
    )
    weight_decay: float = tunable(
        0.01,
        "with adamw and muon: a step shrinks all weights by this times the learning rate; more: smaller weights "
        "(usual: 1e-4 to 0.1)",
        min=0,
    )


class Layout(NamedTuple):
    """What the numbers of a learned vector are."""

    weights: int
    """How many at its front are weights and biases of networks. Weight decay shrinks these."""
    networks: int = 1
    """Networks of one shape, one after the other."""
    matrices: tuple[ParameterSlice, ...] = ()
    """The weight matrices between hidden layers, in each of these networks."""


NUMBERS = Layout(0)
"""The layout of plain numbers, such as a temperature."""


def layout_of(network: Network, count: int = 1) -> Layout:
    """The layout of a vector with ``count`` networks of one shape."""
    hidden = [index for index, layer in enumerate(network.layers[: network.last]) if isinstance(layer, Linear)][1:]
    names = {f"{index}.weight" for index in hidden}
    free = sum(size for _, size, _ in network.free)
    matrices = tuple(part for part in network.slices() if part.name in names)
    return Layout(count * (network.num_parameters - free), count, matrices)


def check_optimizer(config: OptimizerConfig, network: Network) -> None:
    """Check that the optimizer suits ``network``, and reads every setting that differs from its default.

    Raises:
        ConfigError: nothing reads a setting that was given; or muon finds no matrix between hidden layers.
    """
    if config.optimizer == "muon" and not layout_of(network).matrices:
        remedy = "" if network.own is not None else "--hidden_sizes two widths or more, or "
        raise ConfigError(
            "--optimizer muon steps the matrices between hidden linear layers that penstock makes, and this network "
            f"has none: give {remedy}--optimizer adamw"
        )
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


def scale_names(loss: str = "") -> tuple[str, str]:
    """Names of the arrays of a state for a scaled loss: a `penstock.ops.loss_scaling.LossScale`.

    Args:
        loss: the phase whose loss it is; empty: the algorithm has one loss.
    """
    return (f"{LOSS_SCALE}.{loss}", f"{LOSS_SCALE_STEPS}.{loss}") if loss else (LOSS_SCALE, LOSS_SCALE_STEPS)


def scale_arrays(precision: PrecisionName, losses: Sequence[str]) -> tuple[ArraySpec, ...]:
    """The arrays of the scales of these losses; none unless ``precision`` is float16.

    Losses of several phases have a scale each. Their sizes differ, and an overflow of one says nothing of another.

    Args:
        precision: number type of the layers.
        losses: each as for `scale_names`.
    """
    if precision != "float16":
        return ()
    names = [scale_names(loss) for loss in losses]
    return tuple(
        part for scale, steps in names for part in (ArraySpec(scale, (), "float32"), ArraySpec(steps, (), "int64"))
    )


def first_scales(state: Iterable[ArraySpec]) -> Arrays:
    """The first values of the scales among the arrays of a state. Their counts begin at 0."""
    names = [part.name for part in state if part.name.partition(".")[0] == LOSS_SCALE]
    return {name: np.array(FIRST_LOSS_SCALE, np.float32) for name in names}
