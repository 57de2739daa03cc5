"""The layers of networks as plain data, and the arrays that each of them holds. Computes nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from penstock.policies.encoding import ACTION

__all__ = [
    "GRU",
    "LSTM",
    "Activation",
    "Attention",
    "Conv2d",
    "Dropout",
    "Dueling",
    "Embedding",
    "Flatten",
    "Layer",
    "LayerNorm",
    "Linear",
    "MaxPool",
    "MeanPool",
    "OwnModule",
    "Residual",
    "parts_of",
]

LAYER_NORM_EPSILON = 1e-5


@dataclass(frozen=True)
class Linear:
    """``y = x W + b`` over the last axis; ``W`` is ``[inputs, outputs]``. ``gain`` scales its initial value."""

    inputs: int
    outputs: int
    gain: float


@dataclass(frozen=True)
class Conv2d:
    """A convolution over ``[C, H, W]``; weights ``[out_channels, in_channels, kernel, kernel]``."""

    in_channels: int
    out_channels: int
    kernel: int
    stride: int
    gain: float
    padding: int = 0
    """Zeros around the image, on each side."""


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


@dataclass(frozen=True)
class LSTM:
    """A long short-term memory cell over ``[n, inputs]``. Its carry is ``h`` and ``c``, ``[n, size]`` each.

    ``i, f, g, o = x W + h U + b``, with ``W`` ``[inputs, 4 size]`` and ``U`` ``[size, 4 size]``;
    ``c' = sigmoid(f) c + sigmoid(i) tanh(g)``, ``h' = sigmoid(o) tanh(c')``; the output is ``h'``. The forget gate's
    bias begins at 1. Source: Hochreiter and Schmidhuber 1997, https://doi.org/10.1162/neco.1997.9.8.1735; Jozefowicz et
    al. 2015 for the bias, https://proceedings.mlr.press/v37/jozefowicz15.html.
    """

    inputs: int
    size: int
    carried: ClassVar[tuple[str, ...]] = ("h", "c")


@dataclass(frozen=True)
class GRU:
    """A gated recurrent unit over ``[n, inputs]``. Its carry is ``h`` ``[n, size]``.

    ``x W + b`` and ``h U + d`` each hold three parts r, z, n of ``size``; ``r = sigmoid(x_r + h_r)``,
    ``z = sigmoid(x_z + h_z)``, ``n = tanh(x_n + r h_n)``, ``h' = (1 - z) n + z h``; the output is ``h'``.
    Source: Cho et al. 2014, https://arxiv.org/abs/1406.1078, with the reset gate behind the product as in cuDNN.
    """

    inputs: int
    size: int
    carried: ClassVar[tuple[str, ...]] = ("h",)


@dataclass(frozen=True)
class MaxPool:
    """The largest value of each square of ``kernel`` pixels a side, for ``[n, C, H, W]``; padded by -inf."""

    kernel: int
    stride: int
    padding: int


@dataclass(frozen=True)
class LayerNorm:
    """``(x - mean) / sqrt(var + 1e-5) * weight + bias`` over the last axis, of ``size`` elements.

    Source: Ba et al. 2016, https://arxiv.org/abs/1607.06450.
    """

    size: int


@dataclass(frozen=True)
class Dropout:
    """``x / (1 - rate)`` where uniform noise is at least ``rate``, else 0; while acting it gives ``x``. ``[n, size]``.

    Source: Srivastava et al. 2014, https://jmlr.org/papers/v15/srivastava14a.html.
    """

    size: int
    rate: float


@dataclass(frozen=True)
class Embedding:
    """A number from 0 to ``values - 1`` ``[n]`` to its row of a table: ``[n, width]``. It begins standard normal."""

    values: int
    width: int


@dataclass(frozen=True)
class Attention:
    """Self-attention with ``heads`` heads over a set ``[n, entities, width]``. Padding is not seen.

    ``q, k, v = x W + b`` with ``W`` ``[width, 3 width]``; each head has ``width / heads`` neighbouring columns of each.
    ``softmax(q k^T / sqrt(width / heads)) v`` of all heads side by side, times ``[width, width]`` plus a bias.
    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.
    """

    width: int
    heads: int


@dataclass(frozen=True)
class MeanPool:
    """``[n, entities, width]`` to the mean of the entities that are there: ``[n, width]``; 0 if none is."""


@dataclass(frozen=True)
class Residual:
    """``x + layers(x)``. Source: He et al. 2016, https://arxiv.org/abs/1512.03385."""

    layers: "tuple[Layer, ...]"


@dataclass(frozen=True)
class OwnModule:
    """A user's own ``torch.nn.Module``, which takes the observation fields. It is the only layer of its network.

    Its outputs are ``[n, outputs]``; with a value, the value is the last column. The carry of lanes is ``memory``.
    A critic also takes an action ``[n, size]``.
    """

    reference: str
    """``module:attribute`` of ``make_policy(spaces, outputs)``."""
    outputs: int
    """Number of the head's outputs, or of a critic's, as ``make_policy`` is told."""
    gives_value: bool
    fields: tuple[str, ...]
    """The observation fields in order; of a critic also `ACTION`, the last."""
    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    """Name and shape of each parameter, in the module's order."""
    memory: tuple[tuple[str, int], ...]
    """Name and width of each array of the carry; empty without memory."""
    spaces: object
    """`penstock.types.Spaces`, as ``make_policy`` is told."""
    critic: str
    """``module:attribute`` of the critic that the module's class names; empty: it names none."""

    @property
    def takes_action(self) -> bool:
        """True for a critic."""
        return ACTION in self.fields


Layer: TypeAlias = (
    Linear
    | Conv2d
    | Activation
    | Flatten
    | Dueling
    | LSTM
    | GRU
    | MaxPool
    | LayerNorm
    | Dropout
    | Embedding
    | Attention
    | MeanPool
    | Residual
    | OwnModule
)


def parts_of(layers: "Sequence[Layer]", prefix: str = "") -> Iterator[tuple[str, tuple[int, ...], "Layer"]]:
    """Name, shape and layer of each array, in order: ``"0.weight"``, or ``"3.0.weight"`` inside a residual layer."""
    for index, layer in enumerate(layers):
        if isinstance(layer, Residual):
            yield from parts_of(layer.layers, f"{prefix}{index}.")
        else:
            yield from ((f"{prefix}{index}.{name}", shape, layer) for name, shape in _parts(layer))


def _parts(layer: Layer) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of each array of a layer that holds no other layers."""
    match layer:
        case Linear(inputs, outputs):
            yield from (("weight", (inputs, outputs)), ("bias", (outputs,)))
        case Conv2d(inputs, outputs, kernel):
            yield from (("weight", (outputs, inputs, kernel, kernel)), ("bias", (outputs,)))
        case LSTM(inputs, size):
            yield from (("weight", (inputs, 4 * size)), ("recurrent", (size, 4 * size)), ("bias", (4 * size,)))
        case GRU(inputs, size):
            yield from (("weight", (inputs, 3 * size)), ("recurrent", (size, 3 * size)))
            yield from (("bias", (3 * size,)), ("recurrent_bias", (3 * size,)))
        case LayerNorm(size):
            yield from (("weight", (size,)), ("bias", (size,)))
        case Embedding(values, width):
            yield ("weight", (values, width))
        case Attention(width):
            yield from (("weight", (width, 3 * width)), ("bias", (3 * width,)))
            yield from (("output", (width, width)), ("output_bias", (width,)))
        case OwnModule():
            yield from layer.parameters
