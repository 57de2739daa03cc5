"""A policy as one value of plain data: encoding of observations, networks, head, normalisation."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from penstock.policies.heads import Categorical, Gaussian, Head
from penstock.policies.layers import Network
from penstock.types import ArraySpec

__all__ = ["Encoding", "PolicyGraph"]


class Encoding(NamedTuple):
    """How one observation field enters the network.

    ``flat``: cast to float32 and flattened. ``one_hot``: a Discrete of ``size`` values from ``start``.
    ``image``: ``[H, W, C]`` or ``[C, H, W]`` (``channels_first``) uint8, to ``[C, H, W]`` float32 in [0, 1].
    Flat and one-hot fields are concatenated in order. An image must be the only field.
    """

    field: str
    kind: Literal["flat", "one_hot", "image"]
    size: int
    """Number of features: elements for ``flat`` and ``image``, values for ``one_hot``."""
    start: int = 0
    channels_first: bool = False


@dataclass(frozen=True)
class PolicyGraph:
    """``act`` as data: an actor, a head, and a critic if the policy gives values.

    Published arrays: each network's flat vector by its name; with ``normalize_obs`` also ``obs_mean`` and ``obs_var``
    (float64 ``[features]``) and ``obs_count`` (int64 ``[]``); with ``normalize_value`` also ``value_mean``,
    ``value_var`` (float64 ``[]``) and ``value_count`` (int64 ``[]``).

    With ``normalize_obs`` the encoded features become ``clip((x - mean) / sqrt(var + 1e-8), -10, 10)``; with
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
    """False: ``act`` gives no ``value``. There is no critic, and the head takes all outputs of the actor."""

    def __post_init__(self) -> None:
        """Refuse a graph that no backend can run."""
        if self.gives_value != isinstance(self.head, Gaussian | Categorical):
            given = "a value" if self.gives_value else "no value"
            raise ValueError(f"a policy with the head {type(self.head).__name__} cannot give {given}")
        if not self.gives_value and (self.critic is not None or self.normalize_value):
            raise ValueError("a policy that gives no value has neither a critic nor statistics of values")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Outputs of ``act``: ``action``, and ``log_prob`` and ``value`` ``[n]`` or ``q`` ``[n, actions]``."""
        return ("action", *self.head.gives, *(("value",) if self.gives_value else ()))

    @property
    def networks(self) -> tuple[Network, ...]:
        """The networks, actor first."""
        return (self.actor,) if self.critic is None else (self.actor, self.critic)

    @property
    def sees_image(self) -> bool:
        """True if the observation is one image, for convolutions."""
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
