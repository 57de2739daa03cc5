"""Loads a table of demonstrations, and puts some of its rows into each minibatch. Learns nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.errors import CheckpointError
from penstock.memory.table import Table
from penstock.replay.contents import restore
from penstock.replay.mixture import Mixture
from penstock.replay.sampler import RowSampler
from penstock.saved_runs.checkpoints import load_table
from penstock.types import Arrays, ArraySpec

__all__ = ["DemonstrationSettings", "WithDemonstrations", "demonstrated"]

OF_NOBODY = -1
"""The stamp of a demonstration. No slot of the run's own table has it, so no priority is ever changed through it."""


@dataclass(frozen=True)
class DemonstrationSettings:
    """Which demonstrations are sampled, and how many."""

    checkpoint: Path
    """The checkpoint that holds the table."""
    specs: tuple[ArraySpec, ...]
    """The arrays of a slot of that table, with all its lanes."""
    share: float
    """Their share of each minibatch, in [0, 1]."""


class WithDemonstrations:
    """Fills the front of each minibatch with the run's own rows, and the rest with demonstrations.

    Args:
        own: samples the run's rows.
        demonstrated: samples demonstrations, all equally likely.
        share: of the demonstrations, in [0, 1].
    """

    def __init__(self, own: RowSampler, demonstrated: RowSampler, share: float) -> None:
        self._mixture = Mixture([own, demonstrated], [1.0 - share, share])

    def sample(self, key: tuple[int, int], out: Arrays, before: Sequence[int] | None = None, beta: float = 0.0) -> None:
        """As `penstock.replay.sampler.Sampler.sample`; ``index`` and ``stamp`` are set for own rows only.

        The importance of demonstrations is the mean of that of the own rows.
        """
        end, _ = self._mixture.sample(key, out, [before, None], beta)
        out["stamp"][end:] = OF_NOBODY
        # An index into the larger table of demonstrations could lie outside the run's own tree of priorities.
        out["index"][end:] = 0
        if "importance" in out and end > 0:
            # The importance of own rows is at most 1. With 1, demonstrations would weigh more than their share.
            out["importance"][end:] = out["importance"][:end].mean()


def demonstrated(settings: DemonstrationSettings, sampler: Callable[[Table], RowSampler]) -> RowSampler:
    """Copy the table of demonstrations into this process. Returns its sampler.

    Args:
        settings: where the table is.
        sampler: makes a sampler without priorities.

    Raises:
        CheckpointError: the checkpoint is damaged, or its table does not fit this run.
    """
    held = load_table(settings.checkpoint)
    if held is None:
        raise CheckpointError(f"checkpoint {settings.checkpoint} keeps no replay table")
    slots = len(held["valid"]) + 1
    nbytes = Table.required(settings.specs, 1, slots)
    # A table begins at a multiple of 64.
    memory = np.zeros(nbytes + 64, np.uint8)
    table = Table(memory[-memory.ctypes.data % 64 :][:nbytes], settings.specs, 1, slots)
    try:
        restore(table, held)
    except ValueError as error:
        raise CheckpointError(f"the table of checkpoint {settings.checkpoint} does not fit this run: {error}") from None
    return sampler(table)
