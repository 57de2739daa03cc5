"""A table of demonstrations, and minibatches that hold some of them. Learns nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.errors import CheckpointError
from penstock.experiments.checkpoints import load_table
from penstock.memory.table import Table
from penstock.replay.contents import restore
from penstock.replay.mixture import Mixture
from penstock.replay.sampler import RowSampler, Sampler
from penstock.types import Arrays, ArraySpec

__all__ = ["Beside", "DemonstrationSettings", "demonstrated"]

OF_NOBODY = -1
"""The stamp of a row that does not lie in the run's own table: no slot there has it, so its rank is never changed."""


@dataclass(frozen=True)
class DemonstrationSettings:
    """What is drawn beside a run's own rows."""

    checkpoint: Path
    """Its table."""
    specs: tuple[ArraySpec, ...]
    """Of a slot of that table, with all its lanes."""
    share: float
    """Of each minibatch."""


class Beside:
    """Fills the front of each minibatch with a run's own rows, the rest with demonstrations.

    Args:
        own: draws the run's rows.
        demonstrated: draws the others, each as likely as another.
        share: of the others, in [0, 1].
    """

    def __init__(self, own: RowSampler, demonstrated: RowSampler, share: float) -> None:
        self._mixture = Mixture([own, demonstrated], [1.0 - share, share])

    def sample(self, key: tuple[int, int], out: Arrays, before: Sequence[int] | None = None, beta: float = 0.0) -> None:
        """As `penstock.replay.sampler.Sampler.sample`; ``index`` and ``stamp`` are of the run's own rows alone."""
        end, _ = self._mixture.sample(key, out, [before, None], beta)
        out["stamp"][end:] = OF_NOBODY
        # The other table may have more rows than the run's own, whose ranks know none of them.
        out["index"][end:] = 0


def demonstrated(settings: DemonstrationSettings, sampler: Callable[[Table], Sampler]) -> Sampler:
    """What draws the rows of a run's table, which is copied into this process.

    Args:
        settings: where they lie.
        sampler: makes what draws from a table, as from the run's own but without ranks.

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
