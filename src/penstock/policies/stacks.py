"""Stacks of layers by name: MLP, Nature network, IMPALA's ResNet, transformer. Chooses no hyper-parameters."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from penstock.policies.layers import (
    Activation,
    Attention,
    Conv2d,
    Dropout,
    Flatten,
    Layer,
    LayerNorm,
    Linear,
    MaxPool,
    MeanPool,
    Residual,
)

__all__ = [
    "NATURE_SIDE",
    "RESNET_SIDE",
    "ROOT_TWO",
    "ActivationName",
    "Stack",
    "hidden",
    "mlp",
    "nature",
    "resnet",
    "transformer",
]

ActivationName: TypeAlias = Literal["tanh", "relu", "elu", "silu", "gelu", "sigmoid"]

ROOT_TWO = 2.0**0.5
NATURE_FEATURES = 512
"""Width of the Nature network's last hidden layer."""
NATURE_SIDE = 36
"""The Nature network's three convolutions need at least 36 pixels a side."""
RESNET_FEATURES = 256
"""Width of the last hidden layer of IMPALA's ResNet."""
RESIDUAL_GAIN, SECTION_GAIN = 0.2, 1.2
"""Gains of convolutions of the ResNet whose output meets no activation. With 1 and sqrt(2) its features began with a
deviation of 2 to 4, and a tanh behind them began saturated."""
RESNET_SIDE = 3
"""The ResNet's first convolution covers 3 pixels a side."""


class Stack(NamedTuple):
    """Layers, and the width of what comes out."""

    layers: tuple[Layer, ...]
    features: int


def hidden(
    inputs: int, sizes: Sequence[int], activation: ActivationName, *, layer_norm: bool = False, dropout: float = 0.0
) -> Stack:
    """Linear layers with an activation each; before it a layer norm and behind it dropout, if asked for."""
    layers: list[Layer] = []
    for width in sizes:
        norm, drop = [LayerNorm(width)] if layer_norm else [], [Dropout(width, dropout)] if dropout else []
        layers += [Linear(inputs, width, ROOT_TWO), *norm, Activation(activation), *drop]
        inputs = width
    return Stack(tuple(layers), inputs)


def mlp(
    inputs: int,
    hidden_sizes: Sequence[int],
    outputs: int,
    activation: ActivationName,
    gain: float,
    *,
    layer_norm: bool = False,
) -> tuple[Layer, ...]:
    """Hidden layers with an activation each, then a linear layer whose initial weights are scaled by ``gain``."""
    below = hidden(inputs, hidden_sizes, activation, layer_norm=layer_norm)
    return (*below.layers, Linear(below.features, outputs, gain))


def nature(channels: int, height: int, width: int, *, layer_norm: bool = False) -> Stack:
    """Three convolutions and a layer of 512. Source: Mnih et al. 2015, https://doi.org/10.1038/nature14236."""
    layers: list[Layer] = []
    for filters, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
        layers += [Conv2d(channels, filters, kernel, stride, ROOT_TWO), Activation("relu")]
        channels, height, width = filters, (height - kernel) // stride + 1, (width - kernel) // stride + 1
    last = hidden(channels * height * width, (NATURE_FEATURES,), "relu", layer_norm=layer_norm)
    return Stack((*layers, Flatten(), *last.layers), last.features)


def resnet(channels: int, height: int, width: int, *, layer_norm: bool = False) -> Stack:
    """Three sections of 16, 32 and 32 filters, each with a max pool and two residual blocks; then a layer of 256.

    Source: Espeholt et al. 2018, https://arxiv.org/abs/1802.01561, figure 3, right.
    """
    layers: list[Layer] = []
    for filters in (16, 32, 32):
        block = Residual(
            (
                Activation("relu"),
                Conv2d(filters, filters, 3, 1, ROOT_TWO, 1),
                Activation("relu"),
                Conv2d(filters, filters, 3, 1, RESIDUAL_GAIN, 1),
            )
        )
        layers += [Conv2d(channels, filters, 3, 1, SECTION_GAIN, 1), MaxPool(3, 2, 1), block, block]
        channels, height, width = filters, (height - 1) // 2 + 1, (width - 1) // 2 + 1
    last = hidden(channels * height * width, (RESNET_FEATURES,), "relu", layer_norm=layer_norm)
    return Stack((*layers, Activation("relu"), Flatten(), *last.layers), last.features)


def transformer(inputs: int, width: int, heads: int, layers: int) -> Stack:
    """A linear layer for each entity of a set, encoder layers, and the mean over the entities.

    Each encoder layer adds attention, then an MLP of ``4 width``, both behind a layer norm.
    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762; for the norm's place Xiong et al. 2020,
    https://arxiv.org/abs/2002.04745.
    """
    block = (
        Residual((LayerNorm(width), Attention(width, heads))),
        Residual((LayerNorm(width), *mlp(width, (4 * width,), width, "gelu", 1.0))),
    )
    return Stack((Linear(inputs, width, 1.0), *(block * layers), LayerNorm(width), MeanPool()), width)
