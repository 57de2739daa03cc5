"""A policy as one value of plain data: encoding of observations, networks, head, normalisation."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.policies.encoding import Encoding, width_of
from penstock.policies.heads import Categorical, Composed, EpsilonGreedy, Gaussian, Head
from penstock.policies.layers import Linear
from penstock.policies.network import Network
from penstock.types import ArraySpec, NoiseSpec

__all__ = ["PolicyGraph", "ValueHead"]

_Choosing = Categorical | Composed | EpsilonGreedy
"""Heads that may have choices, and so a mask."""


class ValueHead(NamedTuple):
    """The last layer of a policy's value: ``v = x . vector[weight] + vector[bias]``."""

    network: str
    weight: slice
    """Of the network's flat vector."""
    bias: int


@dataclass(frozen=True)
class PolicyGraph:
    """``act`` as data, a `PolicySpec`: an actor, a head, and a critic if the policy gives values.

    Published arrays: each network's flat vector by its name; with ``normalize_obs`` also ``obs_mean`` and ``obs_var``
    (float64 ``[features]``) and ``obs_count`` (int64 ``[]``); with ``normalize_value`` also ``value_mean``,
    ``value_var`` (float64 ``[]``) and ``value_count`` (int64 ``[]``).

    With ``normalize_obs`` the encoded vector fields become ``clip((x - mean) / sqrt(var + 1e-8), -10, 10)``; with
    ``normalize_value`` the critic's output ``v`` becomes ``v * sqrt(var + 1e-8) + mean``.
    """

    encoding: tuple[Encoding, ...]
    actor: Network
    critic: Network | None
    """``None``: the actor's last output is the value, or there is no value (``gives_value`` is false)."""
    head: Head
    normalize_obs: bool = False
    normalize_value: bool = False
    gives_value: bool = True
    """False: ``act`` gives no ``value``. There is no critic, and the head takes all outputs of the actor.

    So it is for heads that cannot give one, and for a policy in production whose critic sees other fields."""
    mask: str | None = None
    """The observation field that is the action mask: uint8 ``[choices]``. Only the head reads it; no network does."""

    def __post_init__(self) -> None:
        """Refuse a graph that no backend can run."""
        if self.mask is not None and not (isinstance(self.head, _Choosing) and self.head.choices):
            raise ValueError(f"a policy with the head {type(self.head).__name__} has no choices to mask")
        if self.gives_value and not isinstance(self.head, Gaussian | Categorical | Composed):
            raise ValueError(f"a policy with the head {type(self.head).__name__} cannot give a value")
        if not self.gives_value and (self.critic is not None or self.normalize_value):
            raise ValueError("a policy that gives no value has neither a critic nor statistics of values")
        if self.normalize_obs and not self.features:
            raise ValueError("running statistics normalise flat and one-hot fields, and there are none")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Outputs of ``act``: ``action``, and ``log_prob`` and ``value`` ``[n]`` or ``q`` ``[n, actions]``."""
        return ("action", *self.head.gives, *(("value",) if self.gives_value else ()))

    @property
    def fields(self) -> tuple[str, ...]:
        """The observation fields that the policy takes, the action mask last."""
        return (*(part.field for part in self.encoding), *(() if self.mask is None else (self.mask,)))

    @property
    def mask_size(self) -> int:
        """Number of choices in the action mask; 0 without one."""
        if self.mask is None or not isinstance(self.head, _Choosing):
            return 0
        return sum(self.head.choices)

    @property
    def carry(self) -> tuple[ArraySpec, ...]:
        """The arrays of one lane that recurrent layers hand on, by network and layer; empty without such layers."""
        return tuple(spec for network in self.networks for spec in network.carry)

    @property
    def dropout(self) -> tuple[ArraySpec, ...]:
        """The uniform noise of one row that learning takes, where networks have dropout."""
        return tuple(spec for network in self.networks for spec in network.dropout)

    @property
    def noise(self) -> NoiseSpec:
        """The noise input of one lane, which is the head's."""
        return self.head.noise

    @property
    def networks(self) -> tuple[Network, ...]:
        """The networks, actor first."""
        return (self.actor,) if self.critic is None else (self.actor, self.critic)

    @property
    def features(self) -> int:
        """Width of the concatenated vector fields."""
        return width_of(self.encoding)

    def value_head(self) -> ValueHead | None:
        """Where the last layer of the value is; ``None`` in a module of the user's own, whose layers are not known.

        Raises:
            ValueError: the policy gives no value.
        """
        if not self.gives_value:
            raise ValueError("this policy gives no value")
        network = self.critic or self.actor
        last = len(network.layers) - 1
        layer = network.layers[last]
        if not isinstance(layer, Linear):
            return None
        offset = {part.name: part.offset for part in network.slices()}
        column = layer.outputs - 1
        weight = offset[f"{last}.weight"] + column
        return ValueHead(
            network.name,
            slice(weight, weight + layer.inputs * layer.outputs, layer.outputs),
            offset[f"{last}.bias"] + column,
        )

    def published(self) -> tuple[ArraySpec, ...]:
        """Specs of the published record: parameters, then statistics."""
        return (*(network.spec for network in self.networks), *self.statistics())

    def statistics(self) -> tuple[ArraySpec, ...]:
        """Specs of the running statistics; empty if nothing is normalised."""
        specs: list[ArraySpec] = []
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
