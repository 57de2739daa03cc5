"""A `penstock.policies.Network` as a torch function of its flat vector. Owns no parameters: weights are views."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from penstock.policies import Conv2d, Dueling, Flatten, Linear, Network

__all__ = ["Forward", "Outputs"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "elu": functional.elu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "sigmoid": torch.sigmoid,
}


class Outputs(NamedTuple):
    """What a network gives: the last layer's output ``[n, k]`` and its free vectors by name."""

    output: Tensor
    free: dict[str, Tensor]


class Forward:
    """``(flat vector, x) -> Outputs``; the layout of the vector is worked out once.

    Args:
        network: its layers.
        input_scale: what ``x`` is multiplied by, which the first layer's weights do.
    """

    def __init__(self, network: Network, input_scale: float = 1.0) -> None:
        slices = list(network.slices())
        self._sizes = [torch.Size(part.shape).numel() for part in slices]
        self._shapes = [part.shape for part in slices]
        self._free = [part.name for part in slices if part.name in {name for name, _, _ in network.free}]
        self._layers = network.layers
        weighted = [index for index, layer in enumerate(network.layers) if isinstance(layer, Linear | Conv2d)]
        self._last = weighted[-1] if weighted else None
        self._input_scale = input_scale

    def __call__(self, flat: Tensor, x: Tensor) -> Outputs:
        """Run all layers on ``x`` ``[n, ...]``, in its dtype; the last with weights in that of ``flat``."""
        # One split: its backward is one concatenation, where a slice each would be a zero-filled vector each.
        parts = [part.view(shape) for part, shape in zip(torch.split(flat, self._sizes), self._shapes, strict=True)]
        if self._input_scale != 1.0:
            parts[0] = parts[0] * self._input_scale
        position = 0
        for index, layer in enumerate(self._layers):
            if isinstance(layer, Linear | Conv2d):
                x = x.to(flat.dtype) if index == self._last else x
                weight, bias = parts[position].to(x.dtype), parts[position + 1].to(x.dtype)
                position += 2
                if isinstance(layer, Linear):
                    x = torch.addmm(bias, x, weight)
                else:
                    x = functional.conv2d(x, weight, bias, stride=layer.stride)
            elif isinstance(layer, Flatten):
                x = x.flatten(1)
            elif isinstance(layer, Dueling):
                x = duel(layer, x)
            else:
                x = ACTIVATIONS[layer.name](x)
        return Outputs(x, dict(zip(self._free, parts[position:], strict=True)))


def duel(layer: Dueling, x: Tensor) -> Tensor:
    """``v + a - mean(a)`` for ``x`` ``[m, (1 + n) * atoms]``: ``[m, n * atoms]``."""
    parts = x.reshape(-1, 1 + layer.n, layer.atoms)
    value, advantage = parts[:, :1], parts[:, 1:]
    return (value + advantage - advantage.mean(1, keepdim=True)).flatten(1)
