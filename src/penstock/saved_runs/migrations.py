"""Brings the settings and arrays of older run folders and checkpoints to the present format. Reads no file."""

from collections.abc import Mapping

import numpy as np

from penstock.config.sources import Setting
from penstock.types import Arrays

__all__ = ["migrated", "migrated_settings"]


def migrated_settings(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings of an older run in the form that is allowed today.

    Older versions ignored a range of atoms without atoms. Now it is refused, so it is removed here.
    """
    without_atoms = "atoms" in settings and settings["atoms"].value == 1
    return {
        name: setting
        for name, setting in settings.items()
        if not (without_atoms and name in {"value_min", "value_max"})
    }


def migrated(arrays: Arrays, found: int) -> Arrays:
    """The arrays of a checkpoint of format ``found`` in the present format.

    - Format 2 added the best evaluation and the number of evaluations since. Format 1 begins to count them now.
    - Format 3 added the collected and dropped rows of each lane. Older formats store the number of learned rows, but
      not per lane: here they are split evenly.
    """
    if found < 2:
        arrays = {"best_evaluation": np.array(-np.inf), "since_best": np.array(0, np.int64), **arrays}
    if found < 3 and {"steps", "lane_rollout"} <= arrays.keys():
        lanes, steps = len(arrays["lane_rollout"]), int(arrays["steps"])
        collected = np.full(lanes, steps // lanes, np.int64)
        collected[0] += steps % lanes
        none = np.zeros(lanes, np.int64)
        arrays = {"lane_collected": collected, "lane_spoilt": none, "stale": np.array(0, np.int64), **arrays}
    return arrays
