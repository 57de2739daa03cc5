"""The native forward pass of a policy of linear and recurrent layers, alone or bound to fixed arrays.

Runs every head, and a dueling layer at the end. Does not run images, convolutions, or an activation that follows no
other layer. Knows no policy graph: `penstock.policies.native` decides which graphs it runs and makes their layouts.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from penstock.kernels import _native
from penstock.kernels.actions import bounds_of
from penstock.types import ActionSpace, Array, Box, Discrete

__all__ = ["BoundPolicy", "HeadLayout", "NetworkLayout", "PolicyKernel", "PolicyLayout"]

BoundPolicy = _native.BoundPolicy
"""A policy bound to fixed arrays: ``act(t, step)`` and ``value(t)``. See `PolicyKernel.bind`."""


class NetworkLayout(NamedTuple):
    """A network of linear and recurrent layers, each followed by an activation, in one flat vector."""

    name: str
    """Name of its flat vector among the published arrays."""
    layers: tuple[tuple[str, int, int, str], ...]
    """``(kind, inputs, outputs, activation)`` of each layer: ``linear``, ``lstm`` or ``gru``; an activation or
    ``none``."""


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
    carry: tuple[str, ...]
    """Names of the arrays that recurrent layers hand on: the actor's, then the critic's, in the order of the layers."""
    mask: str | None = None
    """The observation field that says which actions are allowed. Only for heads that choose one of some actions."""


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
            layout.mask is not None,
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

    def act(self, inputs: Mapping[str, Array], out: Mapping[str, Array]) -> None:
        """Write the outputs of ``act`` for n lanes into ``out``.

        Args:
            inputs: name -> ``[n, ...]``: the observation fields, each row contiguous, numbers of any type; ``noise``
                ``[n, k]`` float32, as described by the head's ``noise``; ``explore`` ``[n]`` float32, 0 is greedy. With
                a carry also its arrays ``[n, size]`` float32, and ``first`` ``[n]`` bool: the carry of such a lane
                counts as zero. With a mask also this field ``[n, actions]``, bool, uint8 or int8, not zero where an
                action is allowed; of a row without such actions, ``action`` is 0, and ``log_prob`` is that of a choice
                among all of them.
            out: any of the policy's outputs: ``action`` (float32 policy units, or int64 from 0), the others float32.
                Also all of the next carry, or nothing of it. Its arrays may be those of ``inputs``.
        """
        layout, carry = self._layout, self._layout.carry
        self._policy.act(
            [inputs[field] for field in layout.fields],
            inputs["first"] if carry else None,
            # An empty comprehension costs a call of its own.
            [inputs[name] for name in carry] if carry else (),
            [out[name] for name in carry if name in out] if carry else (),
            inputs[layout.mask] if layout.mask is not None else None,
            inputs["noise"],
            inputs["explore"],
            out.get("action"),
            out.get("log_prob"),
            out.get("value"),
            out.get("q"),
        )

    def judge(self, rows: Mapping[str, Array], log_prob: Array, value: Array) -> None:
        """Write what the policy thinks of n rows with given actions.

        Args:
            rows: the observation fields ``[n, ...]`` as in `act`, and ``action``: float32 ``[n, k]``, or int64 ``[n]``.
            log_prob: float32 ``[n]``, written: of the action. It means nothing where the head has no such action.
            value: float32 ``[n]``, written: of the observation.

        Raises:
            ValueError: arrays that do not fit; or the policy gives no value, or has a memory or a mask.
        """
        self._policy.judge([rows[field] for field in self._layout.fields], rows["action"], log_prob, value)

    def bind(
        self,
        given: Mapping[str, Array],
        out: Mapping[str, Array],
        *,
        seed: int = 0,
        lanes: Array | None = None,
        explore: Array | None = None,
        environment: Array | None = None,
        space: ActionSpace | None = None,
        carry: Mapping[str, Array] | None = None,
    ) -> BoundPolicy:
        """Check arrays once, for a loop that calls one row at a time.

        Args:
            given: observation field -> ``[rows, lanes, ...]``. With a carry also ``first`` ``[rows, lanes]`` bool: a
                lane begins such a row with a carry of zero. With a mask also this field ``[rows, lanes, actions]``.
            out: any of the policy's outputs: ``[rows, lanes, ...]``, as in `act`.
            seed: key of the noise, together with lane and step.
            lanes: ``[lanes]`` int64 global lane numbers; ``None`` if only values are wanted.
            explore: ``[lanes]`` float32, read at every call; ``None`` explores fully.
            environment: ``[lanes, ...]`` array that receives each action in the environment's own units and dtype, as
                `penstock.kernels.actions.to_environment` computes it; needs ``space``.
            space: the environment's action space.
            carry: name -> ``[lanes, size]`` float32: the carry of each lane, which every ``act`` reads and updates in
                place. ``None`` for a policy without one.

        Returns:
            ``act(t, step)`` reads the observations of row t, generates noise for (seed, lane, step), and writes ``out``
            at row t, ``environment`` and ``carry``. ``value(t)`` writes only ``value`` at row t. Both raise
            ``IndexError`` for a row outside the arrays. They keep the arrays alive, and use the parameters that `load`
            took last.

        Raises:
            ValueError: arrays that do not fit the policy or each other.
        """
        layout, carried = self._layout, carry or {}
        if set(carried) != set(layout.carry):
            raise ValueError(f"the policy's carry is {sorted(layout.carry)}; the given one holds {sorted(carried)}")
        if environment is not None and space is None:
            raise ValueError("an environment array needs the environment's action space")
        low, high = np.zeros(0), np.zeros(0)
        if isinstance(space, Box) and (space.bounded or space.partly_bounded):
            low, high = bounds_of(space)
        start = space.start if isinstance(space, Discrete) else 0
        return self._policy.bind(
            [given[field] for field in layout.fields],
            given["first"] if layout.carry else None,
            [carried[name] for name in layout.carry],
            given[layout.mask] if layout.mask is not None else None,
            out.get("action"),
            out.get("log_prob"),
            out.get("value"),
            out.get("q"),
            environment,
            lanes,
            explore,
            isinstance(space, Box) and space.bounded,
            low.tolist(),
            high.tolist(),
            start,
            seed,
        )
