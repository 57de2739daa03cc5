"""The optimizer that was chosen, in the form that the native updates take. Imports no torch."""

from penstock.algorithms.optimizer.spec import OptimizerConfig
from penstock.kernels.optimizer import Optimizer

__all__ = ["native_optimizer", "steps_natively"]


def steps_natively(config: OptimizerConfig) -> bool:
    """Whether the native updates have the optimizer of ``config``, and can take its epsilon. They lack muon.

    For a layer of n x n weights, a step of Muon takes 15 n^3 multiplications. The gradient of m rows takes 3 m n^2. So
    with as many rows as the layer is wide, the step would take five times as long as the gradient.
    """
    return config.optimizer != "muon" and native_optimizer(config).safe


def native_optimizer(config: OptimizerConfig) -> Optimizer:
    """The optimizer of ``config`` with its numbers.

    Raises:
        ValueError: there is no native one.
    """
    if config.optimizer == "muon":
        raise ValueError("the native updates have no muon")
    epsilon = config.rmsprop_eps if config.optimizer == "rmsprop" else config.adam_eps
    return Optimizer(config.optimizer, epsilon, config.momentum, config.weight_decay)
