"""Rows: observations of one flat field in the default codec, read without the objects of Python between."""

from penstock.gamecore import _native

__all__ = ["read_row"]


def read_row(body: bytes, size: int) -> tuple[bytes, float | None] | None:
    """The observation of a body ``{"obs": [NUMBER, ...]}`` or ``{"obs": [NUMBER, ...], "reward": NUMBER}``.

    Args:
        body: JSON of a tick. It may come from anybody.
        size: numbers of an observation.

    Returns:
        1. The numbers as float32, finite, in the machine's byte order. They have the same bits as doubles of a JSON
           reader that are rounded to float32.
        2. The reward, which fits a float32; ``None``: the body holds none.

        ``None`` instead of the pair: the body says more, says something else, or is wrong. A JSON reader tells which.
    """
    return _native.read_row(body, size)
