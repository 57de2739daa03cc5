"""How observation fields enter networks, as plain data. Encodes nothing itself."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

__all__ = ["ACTION", "VECTOR", "Encoding", "columns_of", "width_of"]

VECTOR = "vector"
"""Name of the concatenated vector fields among the encoded inputs of a network."""
ACTION = "action"
"""Name of an action among the encoded inputs of a critic of state and action."""


class Encoding(NamedTuple):
    """How one observation field enters a network.

    Vector fields, which are concatenated in order and which running statistics may normalise:

    - ``flat``: cast to float32 and flattened.
    - ``one_hot``: a Discrete of ``size`` values from ``start``.
    - ``binary``: the ``size`` lowest bits of a Discrete, counted from ``start``, the lowest bit first.

    Other fields, each of which is the only input of its branch:

    - ``image``: ``[H, W, C]`` or ``[C, H, W]`` (``channels_first``) uint8, to ``[C, H, W]`` float32 in [0, 1].
    - ``spatial``: a grid of whole numbers ``[H, W]`` or ``[H, W, C]``, to one plane for each of ``values`` values from
      ``start`` and each C: ``[C * values, H, W]``, where plane ``c * values + v`` is 1 where channel c holds v.
    - ``embedding``: a Discrete of ``size`` values from ``start`` as a number from 0, for an `Embedding`.
    - ``set``: ``[entities, features]`` float32. A row of zeros is padding, unless the branch names a mask.
    - ``mask``: ``[entities]``: which rows of a set are there; not 0 is there.
    - ``raw``: the field as it is, for a user's own module; floating numbers as float32.
    """

    field: str
    kind: Literal["flat", "one_hot", "binary", "image", "spatial", "embedding", "set", "mask", "raw"]
    size: int
    """Number of features of a vector field; elements of another one; values of an ``embedding``."""
    start: int = 0
    channels_first: bool = False
    shape: tuple[int, ...] = ()
    """Shape of the field, for ``spatial``, ``set``, ``mask`` and ``raw``."""
    values: int = 0
    """Values of a cell, for ``spatial``."""
    dtype: str = ""
    """NumPy name of the dtype, for ``raw``."""

    @property
    def is_vector(self) -> bool:
        """True for a field that is concatenated with others."""
        return self.kind in {"flat", "one_hot", "binary"}


def width_of(encoding: Sequence[Encoding]) -> int:
    """Width of the concatenated vector fields."""
    return sum(part.size for part in encoding if part.is_vector)


def columns_of(encoding: Sequence[Encoding], fields: Sequence[str]) -> list[tuple[int, int]]:
    """The columns of the named vector fields as ranges (first, last + 1); neighbours are merged."""
    places: dict[str, tuple[int, int]] = {}
    first = 0
    for part in encoding:
        if part.is_vector:
            places[part.field] = (first, first + part.size)
            first += part.size
    found: list[tuple[int, int]] = []
    for low, high in (places[name] for name in fields):
        if found and found[-1][1] == low:
            found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return found
