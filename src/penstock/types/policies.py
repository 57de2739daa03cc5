"""A policy as something that computes actions, and what it is asked."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from penstock.types.arrays import Array

__all__ = ["BackendSpec", "PolicyBackend", "Question", "Wanted"]


@dataclass(frozen=True)
class BackendSpec:
    """How to make a policy backend, as plain data: ``load(build)(*arguments)``."""

    build: str
    """``module:attribute``."""
    arguments: tuple[Any, ...]


class Wanted(IntEnum):
    """The outputs that a question to a policy asks for."""

    ROW = 0
    """All outputs of ``act`` for row ``row``, its ``policy_version``, and the actions in the environment's units."""
    VALUE = 1
    """``value`` of row ``row``."""
    FINAL_VALUE = 2
    """``final_value`` of the first ``finals`` last observations."""


class Question(NamedTuple):
    """A question of one asker about one slot of the stream that it writes. It travels as plain numbers."""

    asker: int
    """Index among the askers of the answering node."""
    wanted: int
    """One of `Wanted`."""
    refresh: bool
    """Answer this and all later questions with the latest published parameters."""
    again: bool
    """The asker asks again within this rollout, as soon as its environments have stepped."""
    slot: int
    row: int
    finals: int
    step: int
    """Number of the lanes' step. It is part of the noise's key."""
    first_lane: int


class PolicyBackend(Protocol):
    """Runs ``act`` for the published parameters: the native kernel, ONNX Runtime or torch."""

    def load(self, published: Mapping[str, Array]) -> None:
        """Copy new parameters and statistics. The caller may reuse the arrays afterwards."""
        ...

    def act(self, inputs: Mapping[str, Array], out: Mapping[str, Array]) -> None:
        """Write the outputs of ``act`` for n lanes into ``out``.

        Args:
            inputs: name -> ``[n, ...]``: the observation fields; ``noise`` float32, as the policy's ``NoiseSpec``
                describes it; ``explore`` float32 ``[n]``, 0 is greedy. A policy with memory also takes its carry by
                name, and ``first`` bool ``[n]``: the carry of such a lane counts as zero.
            out: name -> ``[n, ...]``, for each wanted output (``action``, ``log_prob``, ``value``, ``q``), and for the
                carry that the next answer begins with. A carry may be the same array in ``inputs`` and ``out``.
        """
        ...
