"""Loads demonstrations into a table, and puts some of its rows into each minibatch. Learns nothing."""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from penstock.algorithm import DEMONSTRATED, HELD_OUT
from penstock.errors import BadDataError, CheckpointError
from penstock.memory.layout import aligned_zeros
from penstock.memory.table import Table
from penstock.replay.contents import restore
from penstock.replay.episodes import steps_of, table_of
from penstock.replay.mixture import Mixture
from penstock.replay.sampler import RowSampler
from penstock.saved_runs.checkpoints import load_table
from penstock.saved_runs.episodes import episode_number, is_held_out, list_episodes, read_episode
from penstock.types import Arrays, ArraySpec, Box, Discrete, Spaces

__all__ = [
    "DemonstrationSettings",
    "DemonstrationSource",
    "EpisodeDemonstrations",
    "TableDemonstrations",
    "WithDemonstrations",
]

OF_NOBODY = -1
"""The stamp of a demonstration. No slot of the run's own table has it, so no priority is ever changed through it."""


class DemonstrationSource(Protocol):
    """A source of demonstrations: the replay table of another run, or a folder of episodes."""

    def load(self) -> Table:
        """Copy the demonstrations into a new table in this process's own memory.

        Raises:
            BadDataError: an episode is damaged, or of other spaces, or there is no step.
            CheckpointError: the checkpoint is damaged, or its table does not fit this run.
        """
        ...


@dataclass(frozen=True)
class DemonstrationSettings:
    """Demonstrations that are sampled, and how many of them."""

    source: DemonstrationSource
    share: float
    """Their share of each minibatch, in [0, 1]."""
    held_out: bool = False
    """Nothing is learned from them."""


@dataclass(frozen=True)
class TableDemonstrations:
    """The replay table in another run's checkpoint."""

    checkpoint: Path
    specs: tuple[ArraySpec, ...]
    """The arrays of a slot of that table, with all its lanes."""

    def load(self) -> Table:
        """As `DemonstrationSource.load`."""
        held = load_table(self.checkpoint)
        if held is None:
            raise CheckpointError(f"checkpoint {self.checkpoint} keeps no replay table")
        slots = len(held["valid"]) + 1
        table = Table(aligned_zeros(Table.required(self.specs, 1, slots)), self.specs, 1, slots)
        try:
            restore(table, held)
        except ValueError as error:
            why = f"the table of checkpoint {self.checkpoint} does not fit this run: {error}"
            raise CheckpointError(why) from None
        return table


@dataclass(frozen=True)
class EpisodeDemonstrations:
    """The episodes of a folder that are learned from, or those that are held out."""

    folder: Path
    spaces: Spaces
    space: Box | Discrete
    """The action space of ``spaces``."""
    specs: tuple[ArraySpec, ...]
    """The arrays of a slot with one lane."""
    held_out: float = 0.0
    """Share of the episodes that is held out."""
    judging: bool = False
    """True: the episodes that are held out. False: all others."""

    def load(self) -> Table:
        """As `DemonstrationSource.load`."""
        episodes = []
        for path in list_episodes(self.folder):
            if is_held_out(episode_number(path), self.held_out) != self.judging:
                continue
            # A server that still keeps episodes removes the oldest ones.
            with contextlib.suppress(FileNotFoundError):
                episodes.append(read_episode(path, self.spaces))
        if not any(map(steps_of, episodes)):
            which = "its held-out episodes" if self.judging else "its episodes"
            raise BadDataError(f"--demonstrations {self.folder}: {which} have no step")
        return table_of(episodes, self.spaces, self.space, self.specs)


class WithDemonstrations:
    """Fills the front of each minibatch with the run's own rows, and the rest with demonstrations.

    Args:
        own: samples the run's rows.
        demonstrated: each samples the demonstrations of one source, all of these equally likely.
        shares: of a minibatch, one for each source; in [0, 1], also together.
        held_out: for each source, whether nothing is learned from it.
    """

    def __init__(
        self, own: RowSampler, demonstrated: Sequence[RowSampler], shares: Sequence[float], held_out: Sequence[bool]
    ) -> None:
        self._held_out = held_out
        # Shares that are 1 together may be a little more when they are rounded.
        self._mixture = Mixture([own, *demonstrated], [max(0.0, 1.0 - math.fsum(shares)), *shares])

    def sample(self, key: tuple[int, int], out: Arrays, before: Sequence[int] | None = None, beta: float = 0.0) -> None:
        """As `penstock.replay.sampler.Sampler.sample`; ``index`` and ``stamp`` are set for own rows only.

        The importance of demonstrations is the mean of that of the own rows.
        """
        rows = {name: values for name, values in out.items() if name not in {DEMONSTRATED, HELD_OUT}}
        ends = self._mixture.sample(key, rows, [before, *[None] * len(self._held_out)], beta)
        end = ends[0]
        if DEMONSTRATED in out:
            out[DEMONSTRATED][:end], out[DEMONSTRATED][end:] = 0.0, 1.0
        if HELD_OUT in out:
            out[HELD_OUT][:end] = 0.0
            for (begin, last), held_out in zip(pairwise(ends), self._held_out, strict=True):
                out[HELD_OUT][begin:last] = held_out
        out["stamp"][end:] = OF_NOBODY
        # An index into the larger table of demonstrations could lie outside the run's own tree of priorities.
        out["index"][end:] = 0
        if "importance" in out and end > 0:
            # The importance of own rows is at most 1. With 1, demonstrations would weigh more than their share.
            out["importance"][end:] = out["importance"][:end].mean()
