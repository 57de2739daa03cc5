"""The shards of a table whose rows lie on one host alone: home gives their memory back once the host has them.

Home keeps what identifies a slot, and the priorities of its rows. So it counts, ranks and limits as with a whole table.
Observations that the host has fetched itself are never at home (`penstock.cluster.fetches`). Home needs the rest of a
slot until three things have come true:

1. The host has the slot.
2. A commit accounts for it. A learner that takes over notes slots behind the last commit once more.
3. Its writer has pushed another one. The successor of a writer reads where its lanes go on in the last slot.

A host that is lost takes the rows with it that home has let go. Knows no cluster.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from penstock.cluster import rings
from penstock.cluster.fetched import RolloutName
from penstock.cluster.observation_fields import without
from penstock.cluster.parcels import packed
from penstock.cluster.rings import FoundShard, HostedShards, News, RingRanks, put_ranks, ring_ranks
from penstock.memory.table import Table
from penstock.memory.table_pages import TablePages
from penstock.replay.sum_tree import SumTrees
from penstock.types import Array, Arrays

__all__ = ["ResidentShards"]


class ResidentShards(HostedShards):
    """The shards of one host, as home knows them.

    Args:
        table: of home.
        trees: the priorities of its rows; ``None``: rows are not ranked.
        shards: number of shards.
        give_back: takes a part of the table's memory, as `penstock.memory.table_pages.TablePages` does.
        observations: the fields of a slot that are observations.
    """

    def __init__(
        self,
        table: Table,
        trees: SumTrees | None,
        shards: int,
        give_back: Callable[[Array], object],
        observations: Sequence[str],
    ) -> None:
        super().__init__(table, trees, shards)
        self._observations = observations
        self._fetched: dict[int, dict[int, RolloutName]] = {}
        """Writer -> sequence -> the rollout in this slot: the host has fetched its observations, and lacks the rest."""
        self._pages = TablePages(table, give_back)
        self._there: dict[int, int] = {}
        """Writer -> the sequence below which the host has said that it has the slots."""
        self._gone: dict[int, int] = {}
        """Writer -> the sequence below which only the host has the slots."""
        self._begun: dict[int, int] = {}
        """Writer -> the sequence at which its ring on the host began."""
        self._apart: dict[int, int] = {}
        """Writer -> the sequence below which home lacks observations."""
        self._unranked: dict[int, tuple[int, int]] = {}
        """Writer -> the slots on the host, from one sequence to below another, whose priorities have to come anew."""

    def remember(self, shard: int, found: FoundShard) -> None:
        """Note what a resumed run has found on this host. Call this before any other process uses the table."""
        table = self._table
        for writer in range(shard * self._share, (shard + 1) * self._share):
            table.begin(writer, found.end, found.first)
            # The successor of a writer finds in the last slot where its lanes go on, or in the learner's record if that
            # is newer. Home has no content of the found slots. With -1, the record counts as newer.
            table.arrays["rollout"][table.index(writer, found.end - 1)] = -1
            self._begun[writer] = found.first
            self._sent[writer] = self._there[writer] = self._gone[writer] = found.end
        if self._trees is not None:
            put_ranks(table, self._trees, found.ranks)
            self._trees.shard(shard).put_largest(found.largest)

    def fetched(self, writer: int, name: RolloutName) -> None:
        """Note that the host has the observations of the rollout in the last slot of a writer. Home lacks them."""
        sequence = self._table.written(writer) - 1
        self._fetched.setdefault(writer, {})[sequence] = name
        self._apart[writer] = sequence + 1

    def arrived(self) -> None:
        """As `HostedShards.arrived`."""
        self._there = dict(self._sent)

    def let_go(self, taken: Sequence[int]) -> None:
        """As `HostedShards.let_go`: the memory of slots that home needs no longer."""
        for writer, there in self._there.items():
            below = min(there, int(taken[writer]), self._table.written(writer) - 1)
            if below > self._gone.get(writer, 0):
                # First the mark: from here on the host alone has these slots.
                self._gone[writer] = below
                self._pages.let_go(writer, below)

    def lose(self) -> int:
        """As `HostedShards.lose`. Nobody samples the lost slots any more; the next host gets what home still has."""
        table, slots = self._table, 0
        for writer in self._gone.keys() | self._apart.keys():
            first, below = table.first(writer), max(self._gone.get(writer, 0), self._apart.get(writer, 0))
            if first >= below:
                continue
            slots += below - first
            table.forget(writer, below)
            self._unrank(writer, first, below)
        rows, lanes = map(int, table.arrays["valid"].shape[1:])
        return slots * (rows - 1) * lanes

    def _unrank(self, writer: int, first: int, below: int) -> None:
        """Give the rows of these slots priority 0, unless their writer has overwritten them."""
        if self._trees is None:
            return
        size = self._table.arrays["valid"][0].size
        shard, number = divmod(writer, self._share)
        sequences = np.arange(first, below)
        slots = number * self._table.slots + sequences % self._table.slots
        changed = (slots[:, None] * size + np.arange(size)).reshape(-1)
        self._trees.shard(shard).update(changed, np.repeat(sequences, size), np.zeros(len(changed)))

    def news(self, shards: Sequence[int], taken: Sequence[int], meeting: int) -> News:
        """As `HostedShards.news`. After a meeting the host gets the priorities of its slots, and not the slots."""
        found = super().news(shards, taken, meeting)
        self._begun |= found.begins
        for writer, names in self._fetched.items():
            sent = self._sent.get(writer, 0)
            self._fetched[writer] = {sequence: name for sequence, name in names.items() if sequence >= sent}
        if self._trees is None or not found.whole or not self._unranked:
            return found
        ranks = tuple(self._ranks(self._trees))
        return found._replace(ranks=ranks, largest=self._trees.largest(), whole=not self._unranked)

    def _packed(self, writer: int, sequence: int, slot: Arrays) -> tuple[Array, RolloutName | None]:
        """As `HostedShards._packed`. What the host has fetched is not read here: its memory was never touched."""
        name = self._fetched.get(writer, {}).get(sequence)
        return packed(slot if name is None else without(slot, self._observations)), name

    def _meet(self) -> None:
        self._unranked = {writer: (self._begun[writer], sent) for writer, sent in self._sent.items()}

    def _ranks(self, trees: SumTrees) -> Iterator[RingRanks]:
        """The next priorities that have to come anew, as many as travel at once."""
        table, left = self._table, rings.PART_BYTES
        size = table.arrays["valid"][0].size
        for writer, (begin, end) in list(self._unranked.items()):
            at = max(begin, table.first(writer))
            while left > 0 and at < end:
                most = max(1, left // (8 * size))
                found = ring_ranks(table, trees, writer, at, min(end, at + most))
                left -= found.priorities.nbytes
                # The writer may have overwritten slots while they were read. From its oldest slot on, the priorities
                # that were read are those of these slots.
                late = min(max(0, table.oldest(writer) - at), len(found.priorities))
                if late < len(found.priorities):
                    yield RingRanks(writer, at + late, found.priorities[late:])
                at += len(found.priorities)
            self._unranked[writer] = at, end
            if at >= end:
                del self._unranked[writer]
