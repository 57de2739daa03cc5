"""What a host keeps of the shards of a replay table: slots that home has sent, and rows in files on its disk."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.cluster.crossing import sampled
from penstock.cluster.fetched import Fetched
from penstock.cluster.observation_fields import observation_fields
from penstock.cluster.rings import FoundShard, News, ring_ranks, take_news
from penstock.errors import PenstockError
from penstock.memory.table import Table as TableMemory
from penstock.program.graph import Program, Table
from penstock.replay.priorities import known_priorities
from penstock.replay.shard_file import ShardMark, find_file, keep_shard
from penstock.replay.sum_tree import SumTrees
from penstock.saved_runs.shard_marks import ShardName
from penstock.types import Array, Arrays
from penstock.wiring.edges import Wiring

__all__ = ["HostedTable"]

ARRIVAL_S = 20.0
"""Longest time until the slots of a checkpoint have come. The learners' last goal before it names them all."""
LOOK_S = 0.01


class HostedTable:
    """The shards whose learners may run on this host.

    Args:
        program: of the host. It may have no table.
        wiring: of the host.

    Attributes:
        fetched: the observations that this host has fetched, until goals name their slots.
    """

    def __init__(self, program: Program, wiring: Wiring) -> None:
        self._sampled = sampled(program)
        self._wiring = wiring
        self.fetched = Fetched(observation_fields(program))
        self._writing = asyncio.Lock()
        self._asked: dict[int, int] = {}
        """Shard -> how many of its files were asked for."""

    def take(self, news: News) -> bool:
        """Take new slots, or priorities. False if this host has no table."""
        if self._sampled is None:
            return False
        name = self._sampled.name
        take_news(self._wiring.table_memory(name), self._wiring.trees(name), news, self.fetched)
        return True

    def recover(self, node: str) -> None:
        """Make the sums of priorities exact again, if this node could change some: it was killed.

        That reads all priorities, and so makes their memory resident.
        """
        if self._sampled is None or node not in self._sampled.readers:
            return
        trees = self._wiring.trees(self._sampled.name)
        if trees is not None:
            trees.recover()

    def known_priorities(self, slot: Arrays) -> Array | None:
        """The first priorities of a rollout's rows, as far as they are known; ``None``: rows are not ranked."""
        ranking = None if self._sampled is None else self._sampled.ranking
        return None if ranking is None else known_priorities(ranking, slot)

    def find(self, shard: int, folder: str, names: Sequence[ShardName]) -> FoundShard | None:
        """Fill an empty shard of the table with the rows of the first of these files that fits; ``None``: none does.

        Args:
            shard: its number.
            folder: of the files on this machine.
            names: of the files.
        """
        edge, table, trees = self._table()
        own, tree = table.shard(shard, edge.shards), None if trees is None else trees.shard(shard)
        if (file := find_file(Path(folder), shard, own, tree, names)) is None:
            return None
        name, count = file
        end, ranks = own.written(0), []
        for writer in range(shard * own.writers, (shard + 1) * own.writers):
            begin = end - count
            while trees is not None and begin < end:
                ranks.append(ring_ranks(table, trees, writer, begin, end))
                begin += len(ranks[-1].priorities)
        return FoundShard(end - count, end, tuple(ranks), 0.0 if tree is None else tree.max_priority(), name)

    async def keep(self, shard: int, path: str, mark: ShardMark, rest: Sequence[News]) -> str:
        """Write the rows of a shard to a file. Returns why that failed; empty: it did not.

        The host answers other calls meanwhile. Files are written one after the other. Once a later file of the shard is
        asked for, this one is given up.

        Args:
            shard: its number.
            path: of the file on this machine.
            mark: the checkpoint to which it belongs.
            rest: slots that are not here yet, when the run has ended and no more goals come. Empty while the run goes
                on: then these slots come with a goal.
        """
        edge, table, trees = self._table()
        own, tree = table.shard(shard, edge.shards), None if trees is None else trees.shard(shard)
        number = self._asked[shard] = self._asked.get(shard, 0) + 1

        def over() -> bool:
            return self._asked[shard] != number

        try:
            async with self._writing:
                for news in rest:
                    take_news(table, trees, news, self.fetched)
                until = time.monotonic() + ARRIVAL_S
                while _lacks(own, mark) and time.monotonic() < until and not over():
                    await asyncio.sleep(LOOK_S)
                await asyncio.to_thread(keep_shard, Path(path), own, tree, mark, over)
        except (PenstockError, OSError, ValueError) as error:
            # ValueError: a call of home that was still under way has brought other slots.
            return str(error)
        return ""

    def _table(self) -> tuple[Table, TableMemory, SumTrees | None]:
        """The table that learners of this host sample, and the priorities of its rows."""
        edge = self._sampled
        if edge is None:
            raise PenstockError("no learner of this run samples a table on a host")
        return edge, self._wiring.table_memory(edge.name), self._wiring.trees(edge.name)


def _lacks(shard: TableMemory, mark: ShardMark) -> bool:
    """Whether slots of a checkpoint have not come yet."""
    return any(shard.written(writer) < end for writer, end in enumerate(mark.taken))
