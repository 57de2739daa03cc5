"""The settings of an actor and of its steps, which on-policy actor-critics and cloning share. Imports no torch."""

from dataclasses import dataclass
from typing import Literal, get_args

from penstock.algorithms.optimizer.spec import OptimizerConfig
from penstock.config.fields import BY_NETWORKS, tunable
from penstock.kernels.optimizer import MIN_EPSILON
from penstock.policies.architecture import PRECISION_TEXT, ActivationName, PrecisionName
from penstock.policies.initial import InitName
from penstock.policies.trunk import INIT_TEXT

__all__ = ["ActorConfig"]


@dataclass(frozen=True, kw_only=True)
class ActorConfig(OptimizerConfig):
    """Hyper-parameters of an actor. A policy that was cloned with them fits a run of PPO with the same ones."""

    lr: float = tunable(
        3e-4,
        "learning rate of the optimizer; too large: the policy collapses; too small: learning is slow "
        "(usual: 1e-5 to 3e-3)",
        min=0,
    )
    lr_schedule: Literal["constant", "linear"] = tunable(
        "constant",
        "how the learning rate changes; linear: it falls to 0 at the end of the run",
        choices=("constant", "linear"),
    )
    adam_eps: float = tunable(
        1e-5,
        "with adam, adamw and muon: epsilon; larger: smaller steps where gradients are tiny (usual: 1e-8 to 1e-3)",
        min=MIN_EPSILON,
    )
    max_grad_norm: float = tunable(
        0.5, "largest norm of a gradient; longer gradients are scaled down to it (usual: 0.3 to 10)", min=1e-4
    )
    hidden_sizes: tuple[int, ...] = tunable(
        (64, 64),
        "widths of an mlp's hidden layers, and of the layers that join images and vectors; wider: learns more, but "
        "takes more time (usual: 64,64 to 400,300)",
        min=1,
        fixed=BY_NETWORKS,
    )
    activation: ActivationName = tunable(  # noqa: RUF009
        "tanh",
        "function between the layers of an mlp; tanh learns most steadily, relu takes the least time",
        choices=get_args(ActivationName),
        fixed=BY_NETWORKS,
    )
    layer_norm: bool = tunable(
        False, "normalise the outputs of each hidden linear layer; learning is steadier, but slower", fixed=BY_NETWORKS
    )
    init: InitName = tunable(  # noqa: RUF009
        "orthogonal", INIT_TEXT, choices=get_args(InitName), fixed=BY_NETWORKS
    )
    log_std_init: float = tunable(
        0.0,
        "logarithm of a Gaussian policy's initial standard deviation; lower: explores less (usual: -2 to 0.5)",
        min=-10,
        max=4,
    )
    precision: PrecisionName = tunable(  # noqa: RUF009
        "float32", PRECISION_TEXT, choices=get_args(PrecisionName)
    )
