"""One step of the optimizer that was chosen, for one vector of a state. Its mathematics: `penstock.ops.optimizers`."""

import math

import torch
from torch import Tensor

from penstock.algorithm import Tensors
from penstock.algorithms.optimizer.spec import STEPS, Layout, OptimizerConfig, counts_steps
from penstock.ops.optimizers import Adam, adam, decayed, muon, rmsprop, sgd
from penstock.policies.network import ParameterSlice

__all__ = ["next_count", "optimizer_step"]


def next_count(config: OptimizerConfig, state: Tensors, name: str = STEPS) -> dict[str, Tensor]:
    """The count of steps ``name`` after one more; empty if the optimizer keeps none."""
    return {name: state[name] + 1} if counts_steps(config) else {}


def optimizer_step(  # noqa: PLR0917 - as the mathematics reads
    config: OptimizerConfig,
    state: Tensors,
    name: str,
    gradient: Tensor,
    lr: Tensor | float,
    count: dict[str, Tensor],
    layout: Layout,
) -> dict[str, Tensor]:
    """The vector ``name`` after one step down the gradient, and its moments.

    Args:
        config: says which optimizer.
        state: the vector and its moments, ``[n]`` each.
        name: of the vector.
        gradient: ``[n]``.
        lr: learning rate.
        count: the count of steps with this one, as `next_count` gives it.
        layout: what the numbers of the vector are.
    """
    at = state[name]
    match config.optimizer:
        case "sgd":
            at, m = sgd(at, gradient, state[f"sgd_m.{name}"], lr, config.momentum)
            return {name: at, f"sgd_m.{name}": m}
        case "rmsprop":
            at, v = rmsprop(at, gradient, state[f"rmsprop_v.{name}"], lr, config.rmsprop_eps)
            return {name: at, f"rmsprop_v.{name}": v}
        case "adam" | "adamw" | "muon":
            if config.optimizer != "adam":
                at = decayed(at, layout.weights, lr * config.weight_decay)
            (step,) = count.values()
            moments = Adam(at, state[f"adam_m.{name}"], state[f"adam_v.{name}"])
            after, m, v = adam(moments, gradient, step, lr, config.adam_eps)
            found = {name: after, f"adam_m.{name}": m, f"adam_v.{name}": v}
            if config.optimizer != "muon":
                return found
            last = state[f"muon_m.{name}"]
            stepped = [_muon_at(layout, place, (at, gradient, last), lr, config.momentum) for place in layout.matrices]
            found[name] = _with_matrices(layout, after, [matrices for matrices, _ in stepped])
            return found | {f"muon_m.{name}": _with_matrices(layout, last, [sums for _, sums in stepped])}


def _muon_at(
    layout: Layout, place: ParameterSlice, vectors: tuple[Tensor, Tensor, Tensor], lr: Tensor | float, momentum: float
) -> tuple[Tensor, Tensor]:
    """One step of Muon for one matrix of each network. ``vectors``: parameters, gradient, sums of gradients."""
    at, gradient, last = (_matrices(layout, place, vector) for vector in vectors)
    return muon(at, gradient, last, lr, momentum)


def _matrices(layout: Layout, place: ParameterSlice, vector: Tensor) -> Tensor:
    """One matrix of each network: ``[networks, rows, columns]``."""
    end = place.offset + math.prod(place.shape)
    return vector.view(layout.networks, -1)[:, place.offset : end].reshape(-1, *place.shape)


def _with_matrices(layout: Layout, vector: Tensor, matrices: list[Tensor]) -> Tensor:
    """The vector with these matrices in their places."""
    networks, pieces, end = vector.view(layout.networks, -1), [], 0
    for place, values in zip(layout.matrices, matrices, strict=True):
        pieces += [networks[:, end : place.offset], values.flatten(1)]
        end = place.offset + math.prod(place.shape)
    return torch.cat([*pieces, networks[:, end:]], 1).flatten()
