"""Policies as plain data, how they explore, and how they act. Imports no torch.

A policy graph holds an encoding of observations, networks and a head. A network is a list of layers over one flat
vector. The native kernel runs the graph, the ONNX model is written from it, and the torch modules are built from it: so
all three mean the same. Computes only the initial values of parameters.
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
