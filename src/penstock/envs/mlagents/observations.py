"""Observations of ML-Agents as arrays. Three dimensions are a picture, which a policy sees as bytes."""

import io
import struct
import zlib
from typing import Any

import numpy as np

from penstock.envs.fields import one_line
from penstock.envs.mlagents.messages import PNG
from penstock.errors import BadDataError
from penstock.types import Array

__all__ = ["read_observation"]

_DAMAGED = (OSError, ValueError, SyntaxError, struct.error, zlib.error)
"""What Pillow raises for a damaged PNG, and NumPy for another number of numbers."""


def read_observation(given: Any, name: str, shape: tuple[int, ...]) -> Array:
    """One part of an agent's observation.

    Args:
        given: ``ObservationProto``.
        name: for error texts.
        shape: of its space.

    Returns:
        Of three dimensions: uint8, from 0 to 255; of others: float32.

    Raises:
        BadDataError: it does not fit its space, or is a picture with other numbers than 0 to 1.
    """
    if tuple(given.shape) != shape:
        raise BadDataError(f"{name} of an agent has shape {list(given.shape)} instead of {list(shape)}")
    try:
        if given.compression_type == PNG:
            return _picture(given.compressed_data, shape)
        numbers = np.array(given.float_data.data, np.float32).reshape(shape)
    except _DAMAGED as error:
        raise BadDataError(f"{name} of an agent cannot be read: {one_line(error, 200)}") from None
    if len(shape) != 3:
        return numbers
    if not ((numbers >= 0) & (numbers <= 1)).all():
        raise BadDataError(f"{name} of an agent has three dimensions, as pictures have, but numbers beyond 0 to 1")
    return np.rint(255 * numbers).astype(np.uint8)


def _picture(data: bytes, shape: tuple[int, ...]) -> Array:
    """A picture in PNG. Older games have the channels last, newer ones first. See `_DAMAGED` for its errors."""
    from PIL import Image  # noqa: PLC0415 - only some games have pictures

    try:
        image = Image.open(io.BytesIO(data), formats=["PNG"])
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from None
    with image:
        # Checked before the picture is unpacked, because a few bytes may hold a picture of any size.
        if image.size[::-1] not in (shape[1:], shape[:2]):
            raise ValueError(f"a picture of {image.width} x {image.height} pixels")
        pixels = np.asarray(image.convert("RGB"))
    first = shape[1:] == pixels.shape[:2]
    if (shape[0] if first else shape[-1]) == 1:
        pixels = np.rint(pixels.mean(axis=2, keepdims=True)).astype(np.uint8)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1) if first else pixels).reshape(shape)
