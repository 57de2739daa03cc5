"""Networks as lists of layers over one flat vector each. Computes only the initial values of parameters."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from penstock.types import Array, ArraySpec

__all__ = ["Activation", "Conv2d", "Dueling", "Flatten", "Layer", "Linear", "Network", "ParameterSlice"]


@dataclass(frozen=True)
class Linear:
    """``y = x W + b``; ``W`` is ``[inputs, outputs]``. ``gain`` scales its orthogonal initial value."""

    inputs: int
    outputs: int
    gain: float


@dataclass(frozen=True)
class Conv2d:
    """A convolution without padding over ``[C, H, W]``; weights ``[out_channels, in_channels, kernel, kernel]``."""

    in_channels: int
    out_channels: int
    kernel: int
    stride: int
    gain: float


@dataclass(frozen=True)
class Activation:
    """An elementwise function."""

    name: Literal["tanh", "relu", "elu", "silu", "gelu", "sigmoid"]


@dataclass(frozen=True)
class Flatten:
    """``[n, C, H, W]`` to ``[n, C * H * W]``, in C order."""


@dataclass(frozen=True)
class Dueling:
    """``[m, (1 + n) * atoms]`` to action values ``[m, n * atoms]``, both action-major: ``q = v + a - mean(a)``.

    The first ``atoms`` inputs are the state's value v. The others are the advantages a of all actions. The mean is over
    actions, for each atom. Source: Wang et al. 2016, https://arxiv.org/abs/1511.06581, equation 9.
    """

    n: int
    atoms: int = 1


Layer: TypeAlias = Linear | Conv2d | Activation | Flatten | Dueling


class ParameterSlice(NamedTuple):
    """The place of one array in its network's flat vector."""

    name: str
    offset: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Network:
    """Layers over one flat float32 vector. It holds ``W`` and ``b`` of each layer in order, then the free vectors.

    ``free`` lists vectors that belong to no layer, such as a Gaussian head's ``log_std``: (name, size, initial value).
    """

    name: str
    layers: tuple[Layer, ...]
    free: tuple[tuple[str, int, float], ...] = ()

    def slices(self) -> Iterator[ParameterSlice]:
        """Every array of the flat vector, in order: ``"0.weight"``, ``"0.bias"``, ..., then the free vectors."""
        offset = 0
        for index, layer in enumerate(self.layers):
            if isinstance(layer, Linear):
                weight: tuple[int, ...] = (layer.inputs, layer.outputs)
                outputs = layer.outputs
            elif isinstance(layer, Conv2d):
                weight = (layer.out_channels, layer.in_channels, layer.kernel, layer.kernel)
                outputs = layer.out_channels
            else:
                continue
            yield ParameterSlice(f"{index}.weight", offset, weight)
            offset += int(np.prod(weight))
            yield ParameterSlice(f"{index}.bias", offset, (outputs,))
            offset += outputs
        for name, size, _ in self.free:
            yield ParameterSlice(name, offset, (size,))
            offset += size

    @property
    def num_parameters(self) -> int:
        """Length of the flat vector."""
        return sum(int(np.prod(part.shape)) for part in self.slices())

    @property
    def spec(self) -> ArraySpec:
        """The flat vector as an array spec."""
        return ArraySpec(self.name, (self.num_parameters,), "float32")

    def initial(self, generator: np.random.Generator) -> Array:
        """Orthogonal weights scaled by each layer's gain, biases zero, free vectors at their initial value.

        Returns:
            float32 ``[num_parameters]``. Source: Saxe et al. 2014, https://arxiv.org/abs/1312.6120.
        """
        flat = np.zeros(self.num_parameters, np.float32)
        gains = [layer.gain for layer in self.layers if isinstance(layer, Linear | Conv2d)]
        weights = [part for part in self.slices() if part.name.endswith(".weight")]
        for part, gain in zip(weights, gains, strict=True):
            values = _orthogonal(part.shape, generator) * gain
            flat[part.offset : part.offset + values.size] = values.ravel()
        starts = {name: value for name, _, value in self.free}
        for part in self.slices():
            if part.name in starts:
                flat[part.offset : part.offset + part.shape[0]] = starts[part.name]
        return flat


def _orthogonal(shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """A matrix with orthonormal rows or columns; a convolution counts as ``[out, in * k * k]``."""
    rows, columns = shape[0], int(np.prod(shape[1:]))
    tall = generator.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))
    return (q if rows >= columns else q.T).reshape(shape)
