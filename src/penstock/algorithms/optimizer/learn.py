"""One step of the optimizer that was chosen, for one vector of a state. Its mathematics: `penstock.ops.optimizers`."""

from torch import Tensor

from penstock.algorithm import Tensors
from penstock.algorithms.optimizer.spec import STEPS, OptimizerConfig, counts_steps
from penstock.ops.optimizers import Adam, adam, decayed, rmsprop, sgd

__all__ = ["counted", "descended"]


def counted(config: OptimizerConfig, state: Tensors, name: str = STEPS) -> dict[str, Tensor]:
    """The count of steps ``name`` after one more; empty if the optimizer keeps none."""
    return {name: state[name] + 1} if counts_steps(config) else {}


def descended(  # noqa: PLR0917 - as the mathematics reads
    config: OptimizerConfig,
    state: Tensors,
    name: str,
    gradient: Tensor,
    lr: Tensor | float,
    count: dict[str, Tensor],
    weights: int,
) -> dict[str, Tensor]:
    """The vector ``name`` after one step down the gradient, and its moments.

    Args:
        config: says which optimizer.
        state: the vector and its moments, ``[n]`` each.
        name: of the vector.
        gradient: ``[n]``.
        lr: step size.
        count: the count of steps with this one, as `counted` gives it.
        weights: how many numbers at the front of the vector are weights of networks, which weight decay shrinks.
    """
    at = state[name]
    match config.optimizer:
        case "sgd":
            at, m = sgd(at, gradient, state[f"sgd_m.{name}"], lr, config.momentum)
            return {name: at, f"sgd_m.{name}": m}
        case "rmsprop":
            at, v = rmsprop(at, gradient, state[f"rmsprop_v.{name}"], lr, config.rmsprop_eps)
            return {name: at, f"rmsprop_v.{name}": v}
        case "adam" | "adamw":
            if config.optimizer == "adamw":
                at = decayed(at, weights, lr * config.weight_decay)
            (step,) = count.values()
            moments = Adam(at, state[f"adam_m.{name}"], state[f"adam_v.{name}"])
            at, m, v = adam(moments, gradient, step, lr, config.adam_eps)
            return {name: at, f"adam_m.{name}": m, f"adam_v.{name}": v}
