"""THE contract of a policy as plain data: the named arrays that it takes and gives. Runs nothing, imports no torch."""

from typing import Protocol

from penstock.types import ArraySpec, NoiseSpec

__all__ = ["PolicySpec"]


class PolicySpec(Protocol):
    """Describes ``act`` by the names of its inputs and outputs. A frozen dataclass: it travels between processes.

    ``act`` takes ``fields``, ``noise`` and ``explore``; a policy with a carry also takes the carry and ``first``. It
    gives ``outputs``, and the carry that the lane's next answer begins with. All arrays are ``[n, ...]`` for n lanes.
    """

    @property
    def fields(self) -> tuple[str, ...]:
        """The observation fields that ``act`` takes, the action mask included."""
        ...

    @property
    def mask(self) -> str | None:
        """The field that is the action mask, uint8 ``[n, choices]``; ``None``: every choice is always possible."""
        ...

    @property
    def outputs(self) -> tuple[str, ...]:
        """``action``, and those of ``log_prob``, ``value`` and ``q`` that the policy gives."""
        ...

    @property
    def carry(self) -> tuple[ArraySpec, ...]:
        """The arrays of one lane that an answer hands on to the lane's next one; all zero where ``first`` is true.

        Their names begin with ``carry.``. Empty for a policy without memory.
        """
        ...

    @property
    def noise(self) -> NoiseSpec:
        """The noise input of one lane."""
        ...

    def published(self) -> tuple[ArraySpec, ...]:
        """The arrays that change while a run learns: parameters, then statistics."""
        ...
