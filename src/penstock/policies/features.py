"""The vector features of stored rows in NumPy, for running statistics.

`penstock.torch_networks.encoding` computes the same in torch.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.policies import Encoding
from penstock.types import Array

__all__ = ["features_of"]


def features_of(encoding: Sequence[Encoding], rows: Mapping[str, Array], steps: int) -> Array:
    """The vector fields of the first ``steps`` rows of a rollout as float32 features: ``[steps, B, features]``."""
    parts = []
    for part in filter(lambda part: part.is_vector, encoding):
        values = rows[part.field][:steps]
        if part.kind == "one_hot":
            numbers = np.arange(part.start, part.start + part.size)
            parts.append((values[..., None] == numbers).astype(np.float32))
        elif part.kind == "binary":
            parts.append(((values[..., None] - part.start) >> np.arange(part.size) & 1).astype(np.float32))
        else:
            parts.append(values.reshape(*values.shape[:2], -1).astype(np.float32))
    return np.concatenate(parts, axis=2)
