"""Rows: observations of one flat field in the default codec, read without the objects of Python between."""

from penstock.gamecore import _native

__all__ = ["read_row"]


def read_row(body: bytes, size: int) -> tuple[bytes, float | None] | None:
    """The observation of a body ``{"obs": [NUMBER, ...]}`` or ``{"obs": [NUMBER, ...], "reward": NUMBER}``.

    Args:
        body: JSON of a tick. It may come from anybody.
        size: numbers of an observation.

    Returns:
        Finite numbers of float32 in the machine's byte order, with the bits of a JSON reader's doubles that are rounded
        to float32; and the reward, which fits a float32, or ``None`` for it. ``None`` alone: the body says more, says
        something else, or is wrong; a JSON reader tells which.
    """
    return _native.read_row(body, size)
