"""Eight bits a number: 256 levels between the smallest and the largest one.

    step = (max - min) / 255,   q = round((x - min) / step),   decoded: min + step q

There are 2^8 levels, so 2^8 - 1 steps between them. A vector whose numbers are all equal has step 0 and is kept
exactly. An error is at most half a step.
"""

import numpy as np

from penstock.types import Array

__all__ = ["Int8", "build"]

HEAD = 8
"""Bytes of the smallest number and of the step, float32 each."""
STEPS = 255


def build(argument: str) -> "Int8":
    """The compression; it takes no argument.

    Raises:
        ValueError: there is one.
    """
    if argument:
        raise ValueError("int8 takes no argument")
    return Int8()


class Int8:
    """Uniform quantisation of a whole vector to 8 bits."""

    def nbytes(self, size: int) -> int:
        """As `penstock.gradient_exchange.contract.Compression.nbytes`."""
        return HEAD + size

    def encode(self, vector: Array, into: Array) -> None:
        """As `penstock.gradient_exchange.contract.Compression.encode`."""
        lowest = vector.min() if vector.size else np.float32(0.0)
        step = (vector.max() - lowest) / np.float32(STEPS) if vector.size else np.float32(0.0)
        into[:HEAD].view(np.float32)[:] = lowest, step
        codes = np.zeros_like(vector) if step == 0.0 else (vector - lowest) / step
        into[HEAD:] = np.clip(np.rint(codes), 0, STEPS).astype(np.uint8)

    def decode(self, encoded: Array, into: Array) -> None:
        """As `penstock.gradient_exchange.contract.Compression.decode`."""
        lowest, step = encoded[:HEAD].view(np.float32)
        np.multiply(encoded[HEAD:], step, out=into)
        into += lowest
