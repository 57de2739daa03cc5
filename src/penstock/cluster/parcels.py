"""A slot or a published record as one array of bytes, to be carried to another machine. Knows no cluster."""

from collections.abc import Mapping

import numpy as np

from penstock.types import Array, Arrays

__all__ = ["packed", "unpack"]

_COUNTS = {"final_count": "final", "episode_count": "episode", "sent": "values"}
"""Field with a number -> the first word of the fields that are filled so far from the front."""


def packed(arrays: Mapping[str, Array]) -> Array:
    """All arrays behind each other, uint8 ``[n]``.

    Side areas of a rollout, and encoded gradients, are carried as far as they are filled.
    """
    return np.concatenate([_bytes(part) for part in _parts(arrays, _counts(arrays))])


def unpack(parcel: Array, into: Arrays) -> None:
    """Write what `packed` made into arrays of the same names, shapes and types.

    Raises:
        ValueError: the parcel has another size than these arrays.
    """
    at = 0
    for name in _COUNTS:
        if name in into:
            at = _filled(into[name], parcel, at)
    for part in _parts({name: array for name, array in into.items() if name not in _COUNTS}, _counts(into)):
        at = _filled(part, parcel, at)
    if at != len(parcel):
        raise ValueError(f"a parcel of {len(parcel)} bytes for arrays of {at}")


def _filled(part: Array, parcel: Array, at: int) -> int:
    """Fill one array from the parcel's bytes from ``at`` on. Returns where the next one begins."""
    end = at + part.nbytes
    if end > len(parcel):
        raise ValueError(f"a parcel of {len(parcel)} bytes for arrays of at least {end}")
    # A copy, because the bytes of a parcel may begin anywhere.
    np.copyto(part, parcel[at:end].copy().view(part.dtype).reshape(part.shape))
    return end


def _counts(arrays: Mapping[str, Array]) -> dict[str, int]:
    return {word: int(arrays[name]) for name, word in _COUNTS.items() if name in arrays}


def _parts(arrays: Mapping[str, Array], counts: Mapping[str, int]) -> list[Array]:
    """The arrays: numbers of entries first, then the others, cut to their filled part."""
    first = [arrays[name] for name in _COUNTS if name in arrays]
    return first + [_cut(name, array, counts) for name, array in arrays.items() if name not in _COUNTS]


def _cut(name: str, array: Array, counts: Mapping[str, int]) -> Array:
    # ``final.image``, ``final_t``, ``episode_return``; ``shaped_return`` has an entry for each episode.
    word = name.replace(".", "_").partition("_")[0].replace("shaped", "episode")
    count = counts.get(word)
    return array if count is None or not array.ndim else array[:count]


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
