"""The optimizer that was chosen, in the form that the native updates take. Imports no torch."""

from penstock.algorithms.optimizer.spec import OptimizerConfig
from penstock.kernels.optimizer import Optimizer

__all__ = ["native_optimizer", "steps_natively"]


def steps_natively(config: OptimizerConfig) -> bool:
    """Whether the native updates can take the epsilon of the optimizer of ``config``."""
    return native_optimizer(config).safe


def native_optimizer(config: OptimizerConfig) -> Optimizer:
    """The optimizer of ``config`` with its numbers."""
    epsilon = config.rmsprop_eps if config.optimizer == "rmsprop" else config.adam_eps
    return Optimizer(config.optimizer, epsilon, config.momentum, config.weight_decay)
