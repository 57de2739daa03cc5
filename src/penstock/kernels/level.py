"""Which instruction-set level the native maths runs at. Bits are promised per level, so a manifest records it."""

from penstock.kernels import _native

__all__ = ["instruction_set", "levels"]


def levels() -> tuple[str, ...]:
    """Levels that this processor runs, slowest first: ``baseline``, then ``avx2`` and ``avx512`` where it has them."""
    return tuple(_native.levels())


def instruction_set() -> str:
    """The level that kernels pick by themselves."""
    return levels()[-1]
