"""The layers of `penstock.policies.layers` as torch functions of their arrays."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from penstock.policies import (
    GRU,
    LSTM,
    Activation,
    Attention,
    Conv2d,
    Dropout,
    Dueling,
    Embedding,
    Flatten,
    Layer,
    LayerNorm,
    Linear,
    MaxPool,
    MeanPool,
    Residual,
)
from penstock.policies.layers import LAYER_NORM_EPSILON
from penstock.torch_networks.recurrent import Scan, gru, lstm

__all__ = ["Memory", "Pass"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "elu": functional.elu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "sigmoid": torch.sigmoid,
}
UNSEEN = -1e9
"""Score of an entity that is not there. It is finite: a set may be empty, and its mean is 0 then, not NaN.

In float16 the score is the smallest number that there is.
"""


class Memory(NamedTuple):
    """What recurrent layers need beside ``x``, for rows of m lanes over T steps."""

    first: Tensor
    """bool ``[m, T]``: an episode begins with this row. The rows of ``x`` are in the same order, ``[m * T, ...]``."""
    carry: Mapping[str, Tensor]
    """Name -> ``[m, size]``: the carry before the first row of each lane."""


class Pass:
    """One pass through the layers of a network, which take its arrays one after the other.

    Args:
        name: of the network; it names the carry.
        parts: the arrays in order.
        memory: needed by recurrent layers.
        noise: the noise of dropout in order, ``[n, size]`` each; empty: nothing is dropped.

    Attributes:
        carry: name -> ``[m, size]``: the carry behind the last row of each lane.
    """

    def __init__(self, name: str, parts: Sequence[Tensor], memory: Memory | None, noise: Sequence[Tensor] = ()) -> None:
        self.carry: dict[str, Tensor] = {}
        self._name = name
        self._parts: Iterator[Tensor] = iter(parts)
        self._memory = memory
        self._noise = iter(noise)

    def rest(self) -> list[Tensor]:
        """The arrays that no layer has taken."""
        return list(self._parts)

    def through(self, layers: Sequence[Layer], x: Tensor, *, mask: Tensor | None = None, first: int = 0) -> Tensor:
        """The output of ``layers`` in the dtype of ``x``. The first one has the number ``first`` in its network."""
        for index, layer in enumerate(layers, first):
            x = self._after(layer, x, mask, index)
        return x

    def _after(self, layer: Layer, x: Tensor, mask: Tensor | None, index: int) -> Tensor:
        match layer:
            case Linear():
                return _linear(x, *self._take(2, x.dtype))
            case Activation(name):
                return ACTIVATIONS[name](x)
            case Conv2d(stride=stride, padding=padding):
                weight, bias = self._take(2, x.dtype)
                return functional.conv2d(x, weight, bias, stride=stride, padding=padding)
            case Flatten():
                return x.flatten(1)
            case LSTM() | GRU():
                return self._remember(layer, x, index)
            case Dueling():
                return duel(layer, x)
            case Residual(layers):
                return x + self.through(layers, x, mask=mask)
            case MaxPool(kernel, stride, padding):
                return functional.max_pool2d(x, kernel, stride, padding)
            case LayerNorm(size):
                weight, bias = self._take(2, x.dtype)
                return functional.layer_norm(x, (size,), weight, bias, LAYER_NORM_EPSILON)
            case Dropout(_, rate):
                noise = next(self._noise, None)
                return x if noise is None else x * (noise >= rate).to(x.dtype) / (1.0 - rate)
            case Embedding():
                return functional.embedding(x, next(self._parts))
            case Attention() | MeanPool():
                return self._over_set(layer, x, mask)
        raise TypeError(f"torch does not run the layer {layer}")

    def _over_set(self, layer: Attention | MeanPool, x: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            raise ValueError(f"the layer {layer} is for a set of entities, and its input is none")
        return _mean(x, mask) if isinstance(layer, MeanPool) else _attend(layer, x, mask, self._take(4, x.dtype))

    def _take(self, count: int, dtype: torch.dtype) -> list[Tensor]:
        return [next(self._parts).to(dtype) for _ in range(count)]

    def _remember(self, layer: LSTM | GRU, x: Tensor, index: int) -> Tensor:
        """Outputs ``[m * T, size]`` of a recurrent layer. Keeps the state behind the last row of each lane."""
        if self._memory is None:
            raise ValueError(f"network {self._name} has a recurrent layer and needs its memory")
        first = self._memory.first
        names = [f"carry.{self._name}.{index}.{name}" for name in layer.carried]
        before = tuple(self._memory.carry[name].to(x.dtype) for name in names)
        weight, recurrent, *biases = self._take(3 if isinstance(layer, LSTM) else 4, x.dtype)
        projected = torch.addmm(biases[0], x, weight).view(*first.shape, -1).transpose(0, 1)
        if isinstance(layer, LSTM):
            found: Scan = lstm(projected, recurrent, first.t(), before)
        else:
            found = gru(projected, recurrent, biases[1], first.t(), before)
        self.carry.update(zip(names, found.state, strict=True))
        return found.output.transpose(0, 1).flatten(0, 1)


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.addmm(bias, x, weight) if x.dim() == 2 else x @ weight + bias


def _attend(layer: Attention, x: Tensor, mask: Tensor, parts: Sequence[Tensor]) -> Tensor:
    """`Attention` for ``x`` ``[n, entities, width]`` and ``mask`` ``[n, entities]``."""
    weight, bias, output, output_bias = parts
    n, entities, width = x.shape
    heads = (x @ weight + bias).view(n, entities, 3, layer.heads, width // layer.heads).permute(2, 0, 3, 1, 4)
    q, k, v = heads.unbind(0)
    scores = q @ k.transpose(2, 3) / math.sqrt(width // layer.heads)
    unseen = max(UNSEEN, torch.finfo(scores.dtype).min)
    share = torch.softmax(scores.masked_fill(~mask[:, None, None, :], unseen), 3)
    return (share @ v).transpose(1, 2).reshape(n, entities, width) @ output + output_bias


def _mean(x: Tensor, mask: Tensor) -> Tensor:
    """`MeanPool` for ``x`` ``[n, entities, width]`` and ``mask`` ``[n, entities]``."""
    weight = mask.to(x.dtype).unsqueeze(2)
    return (x * weight).sum(1) / weight.sum(1).clamp(min=1.0)


def duel(layer: Dueling, x: Tensor) -> Tensor:
    """``v + a - mean(a)`` for ``x`` ``[m, (1 + n) * atoms]``: ``[m, n * atoms]``."""
    parts = x.reshape(-1, 1 + layer.n, layer.atoms)
    value, advantage = parts[:, :1], parts[:, 1:]
    return (value + advantage - advantage.mean(1, keepdim=True)).flatten(1)
