"""What older run folders and checkpoints lack, or hold that is refused now, and what stands for it. Reads no file."""

from collections.abc import Mapping

import numpy as np

from penstock.config.sources import Setting
from penstock.types import Arrays

__all__ = ["migrated", "migrated_settings"]


def migrated_settings(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings of a run as they may be given today.

    A range of atoms where there are no atoms was ignored once; now it is refused.
    """
    without_atoms = "atoms" in settings and settings["atoms"].value == 1
    return {
        name: setting
        for name, setting in settings.items()
        if not (without_atoms and name in {"value_min", "value_max"})
    }


def migrated(arrays: Arrays, found: int) -> Arrays:
    """The arrays of a checkpoint of format ``found`` as the present format has them.

    Format 2 added what the evaluations came to; a run of format 1 counts them anew. Format 3 added what each lane gave
    and what was dropped of it; before, only what was learned is known, and of that not by which lane.
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
