"""What the branches of a network take of the encoded features. Holds no parameters."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.policies import Branch, Conv2d, Encoding, Layer, Linear, Network
from penstock.policies.encoding import ACTION, VECTOR, columns_of, width_of
from penstock.policies.layers import parts_of

__all__ = ["PIXEL", "Input", "Inputs"]

PIXEL = 1.0 / 255.0
"""Factor of a pixel from 0 to 255."""


class Input(NamedTuple):
    """The input of a branch, or of the layers of a network without branches."""

    x: Tensor
    """``[n, ...]``."""
    mask: Tensor | None
    """bool ``[n, entities]``: which entities of a set are there; ``None``: no set."""


class Inputs:
    """``features -> inputs`` of one network.

    Args:
        network: the network.
        encoding: encoding of the features; may be empty for a network without branches and without images.

    Attributes:
        scaled: places among the network's slices of the weights that are scaled by `PIXEL`. The pixels that they are
            multiplied with are then not scaled.
    """

    def __init__(self, network: Network, encoding: Sequence[Encoding]) -> None:
        self._encoding = encoding
        self._kinds = {part.field: part.kind for part in encoding}
        self._width = width_of(encoding)
        self._branches = network.branches
        self._own = network.own
        self.scaled: list[int] = []
        self._pixels: set[str] = set()
        place = 0
        for fields, layers in _entries(network, encoding):
            if any(self._kinds.get(name) == "image" for name in fields):
                if isinstance(layers[0], Linear | Conv2d):
                    self.scaled.append(place)
                else:
                    self._pixels.update(fields)
            place += len(list(parts_of(layers)))

    def __call__(self, features: Tensor | Mapping[str, Tensor]) -> list[Input]:
        """One input for each branch; for a user's own module, one for each field; else one for all layers."""
        if isinstance(features, Tensor):
            return [Input(features, None)]
        if self._own is not None:
            return [Input(features[name], None) for name in self._own.fields]
        if self._branches:
            return [self._of(branch, features) for branch in self._branches]
        values = [self._scaled(name, x) for name, x in features.items()]
        return [Input(values[0] if len(values) == 1 else torch.cat(values, 1), None)]

    def _of(self, branch: Branch, features: Mapping[str, Tensor]) -> Input:
        first = branch.fields[0]
        kind = self._kinds.get(first, "flat")
        if kind == "set":
            x = features[first]
            mask = features[branch.mask] if branch.mask else (x != 0).any(2)
            return Input(x, mask)
        if kind not in {"flat", "one_hot", "binary"} or first == ACTION:
            return Input(self._scaled(first, features[first]), None)
        vector = features[VECTOR]
        columns = columns_of(self._encoding, branch.fields)
        if columns == [(0, self._width)]:
            return Input(vector, None)
        parts = [vector[:, low:high] for low, high in columns]
        return Input(parts[0] if len(parts) == 1 else torch.cat(parts, 1), None)

    def _scaled(self, name: str, x: Tensor) -> Tensor:
        return x * PIXEL if name in self._pixels else x


def _entries(network: Network, encoding: Sequence[Encoding]) -> list[tuple[tuple[str, ...], tuple[Layer, ...]]]:
    """The fields and the layers that first see them."""
    if network.branches:
        return [(branch.fields, branch.layers) for branch in network.branches]
    return [(tuple(part.field for part in encoding), network.layers)]
