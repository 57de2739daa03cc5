"""The critics of algorithms with a table, as plain data: perceptrons of what an actor sees and of an action.

Each hidden layer is linear, dropout, layer norm, activation, in the order of DroQ (Hiraoka et al. 2022,
https://arxiv.org/abs/2110.02034). Without ``critic_dropout`` and layer norm it is linear, activation.

Imports no torch.
"""

from dataclasses import replace

from penstock.algorithms.off_policy.spec import ContinuousConfig
from penstock.errors import ConfigError
from penstock.policies import Activation, Branch, Dropout, Layer, LayerNorm, Linear, Network, PolicyGraph
from penstock.policies.encoding import ACTION
from penstock.policies.stacks import ROOT_TWO

__all__ = ["critic_network", "critic_of_features", "memory_network"]


def critic_network(graph: PolicyGraph, config: ContinuousConfig, outputs: int = 1) -> Network:
    """A network of what the actor sees, and of an action beside it: a perceptron behind the actor's branches.

    Raises:
        ConfigError: ``critic_layer_norm`` is given, and ``layer_norm`` normalises the critics already.
    """
    size = graph.head.noise.shape[0]
    inputs = size + graph.features
    branches: tuple[Branch, ...] = ()
    if graph.actor.branches:
        branches = (*graph.actor.branches, Branch((ACTION,), (), size))
        inputs = sum(branch.features for branch in branches)
    return Network("critic", _perceptron(inputs, config, outputs), branches=branches, init=config.init)


def memory_network(graph: PolicyGraph) -> Network:
    """A network of what the actor sees, up to its memory: the actor without its last layer."""
    return replace(graph.actor, name="memory", layers=graph.actor.layers[:-1])


def critic_of_features(graph: PolicyGraph, config: ContinuousConfig) -> Network:
    """A perceptron of what a `memory_network` remembers, and of an action beside it. Raises as `critic_network`."""
    last = graph.actor.layers[-1]
    if not isinstance(last, Linear):
        raise TypeError(f"the actor ends in {last}, not in a Linear")
    inputs = last.inputs + graph.head.noise.shape[0]
    return Network("critic", _perceptron(inputs, config, 1), init=config.init)


def _perceptron(inputs: int, config: ContinuousConfig, outputs: int) -> tuple[Layer, ...]:
    if config.layer_norm and config.critic_layer_norm:
        raise ConfigError("--critic_layer_norm has no effect: --layer_norm normalises the critics already")
    layers: list[Layer] = []
    for width in config.hidden_sizes:
        layers.append(Linear(inputs, width, ROOT_TWO))
        if config.critic_dropout:
            layers.append(Dropout(width, config.critic_dropout))
        if config.layer_norm or config.critic_layer_norm:
            layers.append(LayerNorm(width))
        layers.append(Activation(config.activation))
        inputs = width
    return (*layers, Linear(inputs, outputs, 1.0))
