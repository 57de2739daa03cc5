"""Policies: as plain data, how they explore, and how one acts. No torch.

As data, a policy is networks as lists of layers over one flat vector each, an encoding of observations, and a head.

The native kernel runs it, the ONNX graph is written from it and the torch modules are built from it: so all of them
mean the same. Holds no mathematics beyond the initial values of parameters.
"""

from penstock.policies.graph import Encoding, PolicyGraph
from penstock.policies.heads import Categorical, Deterministic, EpsilonGreedy, Gaussian, Head, SquashedGaussian
from penstock.policies.layers import Activation, Conv2d, Dueling, Flatten, Layer, Linear, Network, ParameterSlice

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
