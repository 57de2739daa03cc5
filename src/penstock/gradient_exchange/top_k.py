"""The numbers of a vector that are largest in size; all others count as 0.

Source: Aji and Heafield 2017, https://arxiv.org/abs/1704.05021; Stich et al. 2018, https://arxiv.org/abs/1809.07599,
which needs the error feedback of `penstock.gradient_exchange.feedback` to converge.
"""

import math

import numpy as np

from penstock.types import Array

__all__ = ["TopK", "build"]

PAIR = 8
"""Bytes of a place, int32, and of its number, float32."""


def build(argument: str) -> "TopK":
    """The compression that keeps this share of the numbers, as ``0.01``.

    Raises:
        ValueError: the share is no number above 0 and up to 0.5.
    """
    try:
        ratio = float(argument)
    except ValueError:
        raise ValueError(f"topk takes a share, as topk:0.05, not {argument or 'nothing'}") from None
    if not 0.0 < ratio <= 0.5:
        raise ValueError(
            f"topk keeps a share above 0 and up to 0.5, not {argument}: each number is sent with its place, so that a "
            "larger share takes more bytes than all numbers"
        )
    return TopK(ratio)


class TopK:
    """Keeps ``ceil(ratio n)`` numbers of a vector with n, each with its place.

    Args:
        ratio: the share.
    """

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio

    def nbytes(self, size: int) -> int:
        """As `penstock.gradient_exchange.contract.Compression.nbytes`."""
        return PAIR * self._count(size)

    def encode(self, vector: Array, into: Array) -> None:
        """As `penstock.gradient_exchange.contract.Compression.encode`."""
        count = self._count(len(vector))
        places = np.argpartition(np.abs(vector), len(vector) - count)[len(vector) - count :]
        # In order of place, so that equal vectors have equal bytes.
        places.sort()
        into[: 4 * count].view(np.int32)[:] = places
        into[4 * count :].view(np.float32)[:] = vector[places]

    def decode(self, encoded: Array, into: Array) -> None:
        """As `penstock.gradient_exchange.contract.Compression.decode`."""
        count = len(encoded) // PAIR
        into[:] = 0.0
        into[encoded[: 4 * count].view(np.int32)] = encoded[4 * count :].view(np.float32)

    def _count(self, size: int) -> int:
        return min(size, math.ceil(self._ratio * size))
