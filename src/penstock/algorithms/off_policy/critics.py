"""Critics of observation and action as plain data: their layers, and how they see an observation.

They are MLPs of what an actor sees, through branches like the actor's, and of an action. Each hidden layer is
linear, dropout, layer norm, activation, in the order of DroQ (Hiraoka et al. 2022, https://arxiv.org/abs/2110.02034).
Without ``critic_dropout`` and layer norm it is linear, activation.

Beside a user's own module they are the critic that the module's class names. If it names none, they see observations as
``--model auto`` does, and have an LSTM if the module has a memory.

Imports no torch.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from penstock.algorithms.off_policy.spec import ContinuousConfig, body_of
from penstock.errors import ConfigError
from penstock.policies import (
    GRU,
    LSTM,
    Activation,
    Branch,
    Dropout,
    Encoding,
    Layer,
    LayerNorm,
    Linear,
    Network,
    OwnModule,
    PolicyGraph,
)
from penstock.policies.encoding import ACTION, width_of
from penstock.policies.network_settings import check_network_settings
from penstock.policies.stacks import ROOT_TWO
from penstock.policies.trunk import trunk_of
from penstock.registry import load
from penstock.types import Spaces

__all__ = ["check_actor_critic", "critic_encoding", "critic_network", "critic_of_features", "memory_network"]

_OF_CRITICS = ("hidden_sizes", "activation", "layer_norm", "init", "critic_layer_norm", "critic_dropout")
"""Settings that MLPs read."""


class _Sight(NamedTuple):
    """What of an observation reaches a critic's first layer."""

    encoding: tuple[Encoding, ...]
    branches: tuple[Branch, ...]


def check_actor_critic(graph: PolicyGraph, config: ContinuousConfig) -> None:
    """Check that the actor and its critics read every setting of networks that differs from its default.

    Raises:
        ConfigError: nothing reads a setting that was given; or an own module has a memory and a critic.
    """
    own, read = graph.actor.own, list(_OF_CRITICS)
    if own is not None and own.critic:
        if graph.carry:
            raise ConfigError(
                f"--model {config.model} has a carry, and its critic {own.critic} has none: critics must remember as "
                "well; leave critic out, then they are penstock's, with an LSTM of --memory_size"
            )
        read = []
    check_network_settings(graph, config, [*read, "memory_size"] if graph.carry else read)


def critic_network(graph: PolicyGraph, config: ContinuousConfig, outputs: int = 1) -> Network:
    """A network of an observation, and of an action beside it.

    Raises:
        ConfigError: ``critic_layer_norm`` is given, and ``layer_norm`` normalises the critics already; or the user's
            own critic cannot be learned with.
    """
    if graph.actor.own is not None and graph.actor.own.critic:
        own: OwnModule = load("penstock.torch_networks.own_trial:critic_described")(graph.actor.own, outputs)
        return Network("critic", (own,))
    encoding, branches = _sight(graph, config)
    size = graph.head.noise.shape[0]
    inputs = size + width_of(encoding)
    if branches:
        branches = (*branches, Branch((ACTION,), (), size))
        inputs = sum(branch.features for branch in branches)
    return Network("critic", _mlp_layers(inputs, config, outputs), branches=branches, init=config.init)


def critic_encoding(graph: PolicyGraph, config: ContinuousConfig) -> Sequence[Encoding]:
    """How the networks of `critic_network` and `memory_network` see an observation."""
    return _sight(graph, config).encoding


def _sight(graph: PolicyGraph, config: ContinuousConfig) -> _Sight:
    own = graph.actor.own
    if own is None or own.critic:
        return _Sight(graph.encoding, graph.actor.branches)
    trunk = trunk_of(cast("Spaces", own.spaces), replace(body_of(config), model="auto"))
    return _Sight(trunk.encoding, trunk.branches)


def memory_network(graph: PolicyGraph, config: ContinuousConfig) -> Network:
    """The memory of all critics: the actor without its last layer; beside an own module, an LSTM of observations."""
    own = graph.actor.own
    if own is None:
        return replace(graph.actor, name="memory", layers=graph.actor.layers[:-1])
    trunk = trunk_of(cast("Spaces", own.spaces), replace(body_of(config), model="lstm"))
    return Network("memory", trunk.layers, branches=trunk.branches, init=config.init)


def critic_of_features(graph: PolicyGraph, config: ContinuousConfig) -> Network:
    """An MLP of what a `memory_network` remembers, and of an action beside it. Raises as `critic_network`."""
    last = memory_network(graph, config).layers[-1]
    if not isinstance(last, LSTM | GRU):
        raise TypeError(f"the critics' memory ends in {last}, not in a recurrent layer")
    inputs = last.size + graph.head.noise.shape[0]
    return Network("critic", _mlp_layers(inputs, config, 1), init=config.init)


def _mlp_layers(inputs: int, config: ContinuousConfig, outputs: int) -> tuple[Layer, ...]:
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
