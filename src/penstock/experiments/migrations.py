"""What older formats of a checkpoint lack, and what stands for it. Reads no file."""

import numpy as np

from penstock.types import Arrays

__all__ = ["migrated"]


def migrated(arrays: Arrays, found: int) -> Arrays:
    """The arrays of a checkpoint of format ``found`` as the present format has them.

    Format 2 added what the evaluations came to; a run of format 1 counts them anew.
    """
    if found < 2:
        return {"best_evaluation": np.array(-np.inf), "since_best": np.array(0, np.int64), **arrays}
    return arrays
