"""A policy as plain data: networks as lists of layers over one flat vector each, an encoding of observations, a head.

It is what the native kernel runs, what the ONNX graph is written from and what the torch modules are built from, so all
of them mean the same. Holds no mathematics beyond the initial values of parameters.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from penstock.types import Array, ArraySpec

__all__ = [
    "Activation",
    "Categorical",
    "Conv2d",
    "Encoding",
    "Flatten",
    "Gaussian",
    "Head",
    "Layer",
    "Linear",
    "Network",
    "ParameterSlice",
    "PolicyGraph",
]


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


Layer: TypeAlias = Linear | Conv2d | Activation | Flatten


class ParameterSlice(NamedTuple):
    """Where one array lives in its network's flat vector."""

    name: str
    offset: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Network:
    """Layers, and the flat float32 vector they live in: per layer ``W`` then ``b``, in order, then the free vectors.

    ``free`` holds vectors that belong to no layer, with their initial value (a Gaussian head's ``log_std``).
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


class Encoding(NamedTuple):
    """How one observation field enters the network.

    ``flat``: cast to float32 and flattened. ``one_hot``: a Discrete of ``size`` values from ``start``.
    ``image``: ``[H, W, C]`` or ``[C, H, W]`` (``channels_first``) uint8, to ``[C, H, W]`` float32 in [0, 1].
    Flat and one-hot fields are concatenated in order; an image stands alone.
    """

    field: str
    kind: Literal["flat", "one_hot", "image"]
    size: int
    """Number of features: elements for ``flat`` and ``image``, values for ``one_hot``."""
    start: int = 0
    channels_first: bool = False


@dataclass(frozen=True)
class Gaussian:
    """A diagonal Gaussian with a state-independent ``log_std`` (a free vector of the actor).

    A stored action is the sample itself. Where the action space is bounded, the environment receives
    ``low + (clip(sample, -1, 1) + 1) / 2 * (high - low)``; otherwise the sample.
    """

    size: int


@dataclass(frozen=True)
class Categorical:
    """Logits over ``n`` actions, sampled as ``argmax(logits + explore * gumbel)``; a stored action counts from 0."""

    n: int


Head: TypeAlias = Gaussian | Categorical


@dataclass(frozen=True)
class PolicyGraph:
    """``act`` of an actor-critic as data.

    Published arrays: each network's flat vector by its name; with ``normalize_obs`` also ``obs_mean`` and ``obs_var``
    (float64 ``[features]``) and ``obs_count`` (int64 ``[]``); with ``normalize_value`` also ``value_mean``,
    ``value_var`` (float64 ``[]``) and ``value_count`` (int64 ``[]``).

    Gaussian: ``action = mean + explore * exp(log_std) * noise``. With ``normalize_obs`` the encoded features become
    ``clip((x - mean) / sqrt(var + 1e-8), -10, 10)``; with ``normalize_value`` the critic's output ``v`` becomes
    ``v * sqrt(var + 1e-8) + mean``.
    """

    encoding: tuple[Encoding, ...]
    actor: Network
    critic: Network | None
    """``None``: one network with a shared trunk; the value is the actor network's last output."""
    head: Head
    normalize_obs: bool = False
    normalize_value: bool = False

    @property
    def networks(self) -> tuple[Network, ...]:
        """The networks, actor first."""
        return (self.actor,) if self.critic is None else (self.actor, self.critic)

    @property
    def sees_image(self) -> bool:
        """True if the observation is one image, which convolutions look at."""
        return self.encoding[0].kind == "image"

    @property
    def features(self) -> int:
        """Width of the encoded observation."""
        return sum(part.size for part in self.encoding)

    def published(self) -> tuple[ArraySpec, ...]:
        """Specs of the published record: parameters, then statistics."""
        specs = [network.spec for network in self.networks]
        if self.normalize_obs:
            specs += [
                ArraySpec("obs_mean", (self.features,), "float64"),
                ArraySpec("obs_var", (self.features,), "float64"),
                ArraySpec("obs_count", (), "int64"),
            ]
        if self.normalize_value:
            specs += [
                ArraySpec("value_mean", (), "float64"),
                ArraySpec("value_var", (), "float64"),
                ArraySpec("value_count", (), "int64"),
            ]
        return tuple(specs)
