"""Policies as plain data, how they explore, and how they act. Imports no torch.

A policy graph holds an encoding of observations, networks and a head. A network is a list of layers over one flat
vector. The native kernel runs the graph, the ONNX model is written from it, and the torch modules are built from it: so
all three mean the same. Computes only the initial values of parameters.
"""

from penstock.policies.encoding import Encoding
from penstock.policies.graph import PolicyGraph
from penstock.policies.heads import (
    Categorical,
    Composed,
    Deterministic,
    EpsilonGreedy,
    Gaussian,
    Head,
    SquashedGaussian,
)
from penstock.policies.layers import (
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
    OwnModule,
    Residual,
)
from penstock.policies.network import Branch, Network, ParameterSlice

__all__ = [
    "GRU",
    "LSTM",
    "Activation",
    "Attention",
    "Branch",
    "Categorical",
    "Composed",
    "Conv2d",
    "Deterministic",
    "Dropout",
    "Dueling",
    "Embedding",
    "Encoding",
    "EpsilonGreedy",
    "Flatten",
    "Gaussian",
    "Head",
    "Layer",
    "LayerNorm",
    "Linear",
    "MaxPool",
    "MeanPool",
    "Network",
    "OwnModule",
    "ParameterSlice",
    "PolicyGraph",
    "Residual",
    "SquashedGaussian",
]
