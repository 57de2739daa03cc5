"""The native forward pass of a policy of linear layers and activations, alone or bound to fixed arrays.

Runs every head, and a dueling layer at the end. Does not run images, convolutions, or an activation that follows no
linear layer. Knows no policy graph: `penstock.policies.native` decides which graphs it runs and makes their layouts.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from penstock.kernels import _native
from penstock.kernels.actions import bounds_of
from penstock.types import Array, Box, Space

__all__ = ["BoundPolicy", "HeadLayout", "NetworkLayout", "PolicyKernel", "PolicyLayout"]

BoundPolicy = _native.BoundPolicy
"""A policy bound to fixed arrays: ``act(t, step)`` and ``value(t)``. See `PolicyKernel.bind`."""


class NetworkLayout(NamedTuple):
    """A network of linear layers, each followed by an activation, in one flat vector."""

    name: str
    """Name of its flat vector among the published arrays."""
    layers: tuple[tuple[int, int, str], ...]
    """``(inputs, outputs, activation)`` of each linear layer; the activation may be ``none``."""


class HeadLayout(NamedTuple):
    """A head in the form that the kernels take."""

    kind: str
    """Name of its class in `penstock.policies.heads`."""
    size: int
    """Number of elements of a continuous action, or of actions to choose from."""
    log_std: int
    """Offset of a Gaussian's ``log_std`` in the actor's flat vector."""
    atoms: int
    low: float
    """Lower bound of ``log_std``, or value of the first atom."""
    high: float
    """Upper bound of ``log_std``, or value of the last atom."""
    duel: bool
    """Whether the actor ends in a dueling layer."""


class PolicyLayout(NamedTuple):
    """A policy in the form that the kernels take: sizes and offsets. `penstock.policies.native` makes it."""

    fields: tuple[str, ...]
    """The observation fields, in the order in which they are concatenated."""
    encoding: tuple[tuple[bool, int, int], ...]
    """For each field: whether it becomes a one-hot vector, its number of features, its first value."""
    actor: NetworkLayout
    critic: NetworkLayout | None
    head: HeadLayout
    outputs: int
    """Number of the actor's outputs."""
    normalize_obs: bool
    normalize_value: bool


class PolicyKernel:
    """Runs ``act`` of one policy natively. One kernel serves one thread at a time.

    A row's outputs never depend on the number of rows in the call. Bits are promised for each instruction-set level.

    Args:
        layout: the policy's layout.
        level: instruction-set level, one of `levels`; ``None``: the fastest of this processor.
    """

    def __init__(self, layout: PolicyLayout, level: str | None = None) -> None:
        self._layout = layout
        self._policy = _native.Policy(
            layout.encoding,
            layout.actor.layers,
            layout.critic.layers if layout.critic is not None else (),
            layout.head,
            layout.normalize_obs,
            layout.normalize_value,
            level,
        )

    @property
    def level(self) -> str:
        """The instruction-set level that this kernel runs at."""
        return self._policy.level

    def load(self, published: Mapping[str, Array]) -> None:
        """Copy the parameters and statistics of a published record. The arrays may be reused afterwards."""
        layout = self._layout
        normalized = layout.normalize_value
        self._policy.load(
            published[layout.actor.name],
            published[layout.critic.name] if layout.critic is not None else None,
            published["obs_mean"] if layout.normalize_obs else None,
            published["obs_var"] if layout.normalize_obs else None,
            float(published["value_mean"]) if normalized else 0.0,
            float(published["value_var"]) if normalized else 1.0,
        )

    def act(self, obs: Mapping[str, Array], noise: Array, explore: Array, out: Mapping[str, Array]) -> None:
        """Write the outputs of ``act`` for n lanes into ``out``.

        Args:
            obs: field -> ``[n, ...]``, each row contiguous; numbers of any type.
            noise: ``[n, k]`` float32, as described by the head's ``noise``.
            explore: ``[n]`` float32; 0 is greedy.
            out: any of the policy's outputs: ``action`` (float32 policy units, or int64 from 0), the others float32.
        """
        self._policy.act(
            [obs[field] for field in self._layout.fields],
            noise,
            explore,
            out.get("action"),
            out.get("log_prob"),
            out.get("value"),
            out.get("q"),
        )

    def bind(
        self,
        obs: Mapping[str, Array],
        out: Mapping[str, Array],
        *,
        seed: int = 0,
        lanes: Array | None = None,
        explore: Array | None = None,
        environment: Array | None = None,
        space: Space | None = None,
    ) -> BoundPolicy:
        """Check arrays once, for a loop that calls one row at a time.

        Args:
            obs: field -> ``[rows, lanes, ...]``.
            out: any of the policy's outputs: ``[rows, lanes, ...]``, as in `act`.
            seed: key of the noise, together with lane and step.
            lanes: ``[lanes]`` int64 global lane numbers; ``None`` if only values are wanted.
            explore: ``[lanes]`` float32, read at every call; ``None`` explores fully.
            environment: ``[lanes, ...]`` array that receives each action in the environment's own units and dtype, as
                `penstock.kernels.actions.to_environment` computes it; needs ``space``.
            space: the environment's action space.

        Returns:
            ``act(t, step)`` reads the observations of row t, generates noise for (seed, lane, step), and writes ``out``
            at row t and ``environment``. ``value(t)`` writes only ``value`` at row t. Both raise ``IndexError`` for a
            row outside the arrays. They keep the arrays alive, and use the parameters that `load` took last.
        """
        if environment is not None and space is None:
            raise ValueError("an environment array needs the environment's action space")
        bounded = isinstance(space, Box) and space.bounded
        low, high = bounds_of(space) if isinstance(space, Box) and bounded else (np.zeros(0), np.zeros(0))
        start = 0 if space is None or isinstance(space, Box) else space.start
        return self._policy.bind(
            [obs[field] for field in self._layout.fields],
            out.get("action"),
            out.get("log_prob"),
            out.get("value"),
            out.get("q"),
            environment,
            lanes,
            explore,
            bounded,
            low.tolist(),
            high.tolist(),
            start,
            seed,
        )
