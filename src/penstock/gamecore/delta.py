"""Delta encoding: what changed between two bodies. Lossless for any bytes. Knows no sessions and no frames."""

from penstock.errors import PenstockError
from penstock.gamecore import _native

__all__ = ["DeltaError", "decode", "encode"]


class DeltaError(PenstockError):
    """A delta is malformed, does not fit its base, or has a result that is too large."""


def encode(base: bytes, body: bytes) -> bytes | None:
    """The delta that makes ``body`` from ``base``; ``None``: it would not be smaller than ``body`` itself."""
    return _native.encode(base, body)


def decode(base: bytes, delta: bytes, limit: int) -> bytes:
    """The body that a delta makes from its base.

    Args:
        base: the same bytes that the delta was made with.
        delta: of `encode`. It may come from anybody.
        limit: bytes that the body may have. No memory is taken before the whole delta has been checked.

    Raises:
        DeltaError: it is no delta against this base, or its body is too large.
    """
    body = _native.decode(base, delta, limit)
    if body is None:
        raise DeltaError(f"the delta of {len(delta)} bytes does not fit its base, or gives more than {limit} bytes")
    return body
