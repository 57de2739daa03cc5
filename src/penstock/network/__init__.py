"""A policy as plain data: networks as lists of layers over one flat vector each, an encoding of observations, a head.

It is what the native kernel runs, what the ONNX graph is written from and what the torch modules are built from, so all
of them mean the same. Holds no mathematics beyond the initial values of parameters.
"""

from penstock.network.graph import Encoding, PolicyGraph
from penstock.network.heads import Categorical, Deterministic, EpsilonGreedy, Gaussian, Head, SquashedGaussian
from penstock.network.layers import Activation, Conv2d, Dueling, Flatten, Layer, Linear, Network, ParameterSlice

__all__ = [
    "Activation",
    "Categorical",
    "Conv2d",
    "Deterministic",
    "Dueling",
    "Encoding",
    "EpsilonGreedy",
    "Flatten",
    "Gaussian",
    "Head",
    "Layer",
    "Linear",
    "Network",
    "ParameterSlice",
    "PolicyGraph",
    "SquashedGaussian",
]
