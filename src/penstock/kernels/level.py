"""The instruction-set level of the native maths. Bits are promised for each level, so a manifest records it."""

from penstock.kernels import _native

__all__ = ["instruction_set", "levels"]


def levels() -> tuple[str, ...]:
    """Levels that this processor supports, slowest first: ``baseline``, then ``avx2`` and ``avx512`` if it has them."""
    return tuple(_native.levels())


def instruction_set() -> str:
    """The level that kernels use by default: the fastest."""
    return levels()[-1]
