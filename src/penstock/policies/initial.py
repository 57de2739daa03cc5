"""The initial values of layers, by the name of an initialisation. Needs torch for a user's own module only."""

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np

from penstock.policies.layers import (
    GRU,
    LSTM,
    Attention,
    Conv2d,
    Embedding,
    Layer,
    LayerNorm,
    Linear,
    OwnModule,
    Residual,
    parts_of,
)
from penstock.registry import load
from penstock.types import Array

__all__ = ["InitName", "initial_arrays"]

InitName: TypeAlias = Literal["orthogonal", "xavier", "he", "torch"]
"""Names of initialisations, for weights with ``fan_in`` inputs and ``fan_out`` outputs and a layer's gain.

- ``orthogonal``: orthonormal rows or columns, times the gain (Saxe et al. 2014, https://arxiv.org/abs/1312.6120);
- ``xavier``: uniform up to ``min(gain, 1) sqrt(6 / (fan_in + fan_out))`` (Glorot and Bengio 2010, equation 16);
- ``he``: normal with the deviation ``gain / sqrt(fan_in)``; hidden layers have the gain ``sqrt(2)`` of He et al. 2015,
  https://arxiv.org/abs/1502.01852;
- ``torch``: uniform up to ``1 / sqrt(fan_in)``, as layers of torch.nn begin; without the gain.

Biases begin at 0, those of an LSTM's forget gate at 1. With ``torch``, the biases of linear layers and convolutions
begin as their weights do.
"""


def initial_arrays(layers: Sequence[Layer], init: InitName, generator: np.random.Generator) -> list[Array]:
    """The initial values of the arrays of `parts_of`, in order."""
    found: list[Array] = []
    for layer in layers:
        if isinstance(layer, Residual):
            found += initial_arrays(layer.layers, init, generator)
        else:
            found += _of_layer(layer, init, generator)
    return found


def _of_layer(layer: Layer, init: InitName, generator: np.random.Generator) -> list[Array]:
    shapes = [shape for _, shape, _ in parts_of([layer])]
    if isinstance(layer, LSTM | GRU):
        return _of_cell(layer, init, generator)
    if isinstance(layer, Linear | Conv2d):
        weight, bias = shapes
        fans = _fans(weight, convolution=isinstance(layer, Conv2d))
        return [_WEIGHTS[init](weight, *fans, layer.gain, generator), _bias(bias, fans[0], init, generator)]
    if isinstance(layer, Attention):
        fans = layer.width, layer.width
        parts = [_WEIGHTS[init]((layer.width, layer.width), *fans, 1.0, generator) for _ in range(4)]
        return [np.concatenate(parts[:3], axis=1), np.zeros(3 * layer.width), parts[3], np.zeros(layer.width)]
    if isinstance(layer, Embedding):
        return [generator.standard_normal(shapes[0])]
    if isinstance(layer, LayerNorm):
        return [np.ones(layer.size), np.zeros(layer.size)]
    if isinstance(layer, OwnModule):
        found: list[Array] = load("penstock.torch_networks.own:initial")(layer, int(generator.integers(2**31)))
        return found
    return []


def _of_cell(layer: LSTM | GRU, init: InitName, generator: np.random.Generator) -> list[Array]:
    """Each gate has weights of its own; the bias of an LSTM's forget gate is 1, the others are 0."""
    gates = 4 if isinstance(layer, LSTM) else 3
    weights = [
        np.concatenate(
            [_WEIGHTS[init]((rows, layer.size), rows, layer.size, 1.0, generator) for _ in range(gates)], axis=1
        )
        for rows in (layer.inputs, layer.size)
    ]
    biases = [np.zeros(shape) for name, shape, _ in parts_of([layer]) if name.endswith("bias")]
    if isinstance(layer, LSTM):
        biases[0][layer.size : 2 * layer.size] = 1.0
    return [*weights, *biases]


def _fans(weight: tuple[int, ...], *, convolution: bool) -> tuple[int, int]:
    """Inputs and outputs of one element of a layer's output: ``[in, out]``, or ``[out, in, k, k]`` of a convolution."""
    if convolution:
        return math.prod(weight[1:]), weight[0] * math.prod(weight[2:])
    return weight[0], weight[1]


def _bias(shape: tuple[int, ...], fan_in: int, init: InitName, generator: np.random.Generator) -> Array:
    if init != "torch":
        return np.zeros(shape)
    return generator.uniform(-1.0, 1.0, shape) / math.sqrt(fan_in)


def _orthogonal(
    shape: tuple[int, ...], fan_in: int, fan_out: int, gain: float, generator: np.random.Generator
) -> Array:
    """A matrix with orthonormal rows or columns; a convolution counts as ``[out, in * k * k]``."""
    del fan_in, fan_out
    rows, columns = shape[0], int(np.prod(shape[1:]))
    tall = generator.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))
    return (q if rows >= columns else q.T).reshape(shape) * gain


def _xavier(shape: tuple[int, ...], fan_in: int, fan_out: int, gain: float, generator: np.random.Generator) -> Array:
    bound = min(gain, 1.0) * math.sqrt(6.0 / (fan_in + fan_out))
    return generator.uniform(-bound, bound, shape)


def _he(shape: tuple[int, ...], fan_in: int, fan_out: int, gain: float, generator: np.random.Generator) -> Array:
    del fan_out
    return generator.standard_normal(shape) * gain / math.sqrt(fan_in)


def _torch(shape: tuple[int, ...], fan_in: int, fan_out: int, gain: float, generator: np.random.Generator) -> Array:
    del fan_out, gain
    return generator.uniform(-1.0, 1.0, shape) / math.sqrt(fan_in)


_WEIGHTS: dict[InitName, Callable[[tuple[int, ...], int, int, float, np.random.Generator], Array]] = {
    "orthogonal": _orthogonal,
    "xavier": _xavier,
    "he": _he,
    "torch": _torch,
}
