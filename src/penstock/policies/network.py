"""Networks: layers over one flat vector each, which may begin with branches. Holds no parameters."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.policies.initial import InitName, initial_arrays
from penstock.policies.layers import GRU, LSTM, Conv2d, Dropout, Layer, Linear, OwnModule, parts_of
from penstock.types import Array, ArraySpec

__all__ = ["Branch", "Network", "ParameterSlice"]


class ParameterSlice(NamedTuple):
    """The place of one array in its network's flat vector."""

    name: str
    offset: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Branch:
    """The layers that some encoded fields run through before the others join them."""

    fields: tuple[str, ...]
    """Vector fields, which are concatenated in this order; or one field of another kind; or `ACTION`."""
    layers: tuple[Layer, ...]
    features: int
    """Width of what comes out: ``[n, features]``."""
    mask: str = ""
    """Field that says which entities of a set are there. Empty: those that are not all zero."""

    @property
    def name(self) -> str:
        """Names the branch in its network."""
        return "+".join(self.fields)


@dataclass(frozen=True)
class Network:
    """Layers over one flat float32 vector. It holds the arrays of each layer in order, then the free vectors.

    Without branches, the layers take all encoded fields, concatenated in order. With branches, they take the outputs of
    the branches, concatenated in order; the arrays of the branches are the first ones of the vector.

    ``free`` lists vectors that belong to no layer, such as a Gaussian head's ``log_std``: (name, size, initial value).
    """

    name: str
    layers: tuple[Layer, ...]
    free: tuple[tuple[str, int, float], ...] = ()
    branches: tuple[Branch, ...] = ()
    init: InitName = "orthogonal"

    def slices(self) -> Iterator[ParameterSlice]:
        """Every array of the flat vector, in order: ``"0.weight"``, ``"0.bias"``, ..., then the free vectors.

        The arrays of a branch have its name before theirs: ``"obs.eye.0.weight"``.
        """
        offset = 0
        of_branches = (part for branch in self.branches for part in parts_of(branch.layers, f"{branch.name}."))
        of_layers = ((name, shape) for name, shape, _ in (*of_branches, *parts_of(self.layers)))
        for name, shape in (*of_layers, *((name, (size,)) for name, size, _ in self.free)):
            yield ParameterSlice(name, offset, shape)
            offset += math.prod(shape)

    @property
    def carry(self) -> tuple[ArraySpec, ...]:
        """The arrays of one lane that layers hand on: ``carry.<network>.<layer>.<array>``, float32."""
        return tuple(
            ArraySpec(f"carry.{self.name}.{index}.{name}", (size,), "float32")
            for index, layer in enumerate(self.layers)
            for name, size in _carried(layer)
        )

    @property
    def dropout(self) -> tuple[ArraySpec, ...]:
        """The uniform noise of one row that dropout takes while learning: ``dropout.<network>.<number>``."""
        layers = [layer for branch in self.branches for layer in branch.layers]
        sizes = [layer.size for layer in (*layers, *self.layers) if isinstance(layer, Dropout)]
        return tuple(
            ArraySpec(f"dropout.{self.name}.{number}", (size,), "float32") for number, size in enumerate(sizes)
        )

    @property
    def own(self) -> OwnModule | None:
        """The user's own module, if the network is one."""
        return next((layer for layer in self.layers if isinstance(layer, OwnModule)), None)

    @property
    def last(self) -> int:
        """Index of the last layer with weights. The number of layers if the network has none, or ends in a memory."""
        weighted = [index for index, layer in enumerate(self.layers) if isinstance(layer, Linear | Conv2d | LSTM | GRU)]
        ends_in_memory = not weighted or isinstance(self.layers[weighted[-1]], LSTM | GRU)
        return len(self.layers) if ends_in_memory else weighted[-1]

    @property
    def num_parameters(self) -> int:
        """Length of the flat vector."""
        return sum(math.prod(part.shape) for part in self.slices())

    @property
    def spec(self) -> ArraySpec:
        """The flat vector as an array spec."""
        return ArraySpec(self.name, (self.num_parameters,), "float32")

    def initial(self, generator: np.random.Generator) -> Array:
        """The initial values of all arrays, as ``init`` says; free vectors have theirs.

        Returns:
            float32 ``[num_parameters]``.
        """
        layers = [layer for branch in self.branches for layer in branch.layers]
        values = initial_arrays([*layers, *self.layers], self.init, generator)
        values += [np.full(size, value) for _, size, value in self.free]
        return np.concatenate([np.zeros(0), *(array.ravel() for array in values)]).astype(np.float32)


def _carried(layer: Layer) -> tuple[tuple[str, int], ...]:
    """Name and width of each array that a layer hands on."""
    if isinstance(layer, OwnModule):
        return layer.memory
    return tuple((name, layer.size) for name in layer.carried) if isinstance(layer, LSTM | GRU) else ()
