"""THE contract of a compression: a vector as fewer bytes, and back. Knows no learner and no transport."""

from typing import Protocol

from penstock.types import Array

__all__ = ["Compression"]


class Compression(Protocol):
    """A vector of float32 as bytes. Loses a part of it; `penstock.gradient_exchange.feedback` gives that part back."""

    def nbytes(self, size: int) -> int:
        """Bytes of an encoded vector of ``size`` numbers."""
        ...

    def encode(self, vector: Array, into: Array) -> None:
        """Write ``vector``, float32 ``[n]``, into ``into``, uint8 ``[nbytes(n)]``."""
        ...

    def decode(self, encoded: Array, into: Array) -> None:
        """Write what ``encoded`` stands for into ``into``, float32 ``[n]``."""
        ...
