"""The steps of SAC's actor and its temperature, with and without a memory. Knows no networks."""

from collections.abc import Mapping

from torch import Tensor

from penstock.algorithm import Tensors
from penstock.algorithms.off_policy.learn import step_vector
from penstock.algorithms.optimizer.spec import Layout
from penstock.algorithms.sac.spec import EntropyConfig

__all__ = ["actor_update", "temperature_gradient"]


def temperature_gradient(config: EntropyConfig, entropy: Tensor, size: int) -> dict[str, Tensor]:
    """The gradient of ``J(alpha)`` in the temperature's logarithm; empty if the temperature is fixed.

    Args:
        config: says which.
        entropy: of the policy, a scalar.
        size: elements of an action.
    """
    if config.temperature != "auto":
        return {}
    wanted = -float(size) if config.target_entropy == "auto" else config.target_entropy
    return {"log_alpha": (entropy - wanted).reshape(1)}


def actor_update(layouts: Mapping[str, Layout], config: EntropyConfig, state: Tensors, gradients: Tensors) -> Tensors:
    """One step for the actor; with a learned temperature, one for its logarithm as well."""
    changed = step_vector(layouts, config, state, "actor", gradients["actor"], config.lr)
    if "log_alpha" in gradients:
        changed |= step_vector(layouts, config, state, "log_alpha", gradients["log_alpha"], config.temperature_lr)
    return changed
