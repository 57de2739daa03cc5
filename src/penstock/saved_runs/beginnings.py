"""Writes the first state of a run that begins with the policy of another run: its nodes take it as a resume would."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.saved_runs.checkpoints import save_checkpoint
from penstock.saved_runs.run_folder import RunFolder
from penstock.types import Arrays

__all__ = ["save_beginning"]


def save_beginning(folder: RunFolder, state: Arrays, facts: Mapping[str, Any]) -> None:
    """Write a first state. No resume finds it: it has no counters and no lanes.

    Args:
        folder: of the run.
        state: all arrays of the state.
        facts: of the run, for its manifest.

    Raises:
        CheckpointError: it could not be written.
    """
    save_checkpoint(folder.beginning, {**state, "update": np.zeros((), np.int64)}, {**facts, "update": 0, "steps": 0})
