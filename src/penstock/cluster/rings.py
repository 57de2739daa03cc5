"""The shards of a table on hosts: which slots each host has, and how it takes new ones. Knows no cluster.

Home has the whole table. A host has the rings of the shards whose learners run there, and gets their new slots with
each goal. After each meeting of the learners it gets all slots anew, as home has them. Many slots travel in parts.
A host whose learners hand gradients on has all rings, and gets new slots as soon as home has them. Where rows are
ranked, it also gets the priorities that learners of all hosts have given to rows.
`penstock.cluster.resident` is about shards whose rows home does not keep.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from penstock.cluster.fetched import Fetched, RolloutName
from penstock.cluster.parcels import packed, unpack
from penstock.memory.table import Table
from penstock.replay.sum_tree import SumTrees
from penstock.saved_runs.shard_marks import ShardName
from penstock.types import Array, Arrays

__all__ = [
    "PART_BYTES",
    "FoundShard",
    "HostedShards",
    "News",
    "RingRanks",
    "RingSlot",
    "RowRanks",
    "put_ranks",
    "ring_ranks",
    "take_news",
]

PART_BYTES = 16 << 20
"""About how many bytes of slots, or of priorities, travel at once. The host answers other calls between two parts."""


class RingSlot(NamedTuple):
    """A slot of a ring, on its way to a host."""

    writer: int
    sequence: int
    parcel: Array
    priorities: Array
    """Of its rows, as home has them; empty if rows are not ranked."""
    fetched: RolloutName | None = None
    """The rollout in it, if the host has fetched its observations. They are not in the parcel then."""


class RingRanks(NamedTuple):
    """The priorities of slots that the host has."""

    writer: int
    sequence: int
    """Of the first slot."""
    priorities: Array
    """float64 ``[slots, rows]``, as home has them."""


class RowRanks(NamedTuple):
    """The priorities that a learner has given to the rows of a minibatch, as `SumTrees.update` takes them."""

    rows: Array
    stamps: Array
    priorities: Array


class News(NamedTuple):
    """What a host has to change before it shows a goal to its learners."""

    begins: dict[int, int]
    """Writer -> the sequence at which its ring begins anew."""
    slots: list[RingSlot]
    largest: Array
    """The largest priority of each shard; empty unless rings begin anew, or all priorities come anew."""
    whole: bool
    """False if more has to come before the goal may be shown."""
    ranks: tuple[RingRanks, ...] = ()
    ranked: tuple[RowRanks, ...] = ()
    """What learners have ranked, in the order in which home has heard of it. Their slots are here, or come along."""


class FoundShard(NamedTuple):
    """The rows of a shard that a resumed run has found on a host."""

    first: int
    """For each of its writers: the oldest sequence."""
    end: int
    """For each of its writers: the sequence at which it goes on."""
    ranks: tuple[RingRanks, ...]
    """The priorities of these slots; empty if rows are not ranked."""
    largest: float
    """The largest priority of the shard."""
    file: ShardName
    """Where they were found."""


class HostedShards:
    """The shards of one host, as home knows them.

    Args:
        table: of home.
        trees: the priorities of its rows; ``None``: rows are not ranked.
        shards: number of shards.
    """

    def __init__(self, table: Table, trees: SumTrees | None, shards: int) -> None:
        self._table = table
        self._trees = trees
        self._share = table.writers // shards
        self._meeting = -1
        self._sent: dict[int, int] = {}
        """Writer -> the sequence below which the host has its slots."""
        self._served = -1
        """The last writer of which slots were sent."""

    def arrived(self) -> None:
        """The host has all that was sent."""

    def rest(self, shards: Sequence[int], taken: Sequence[int]) -> Iterator[News]:
        """All that the host lacks of the slots below ``taken``, without a new meeting of the learners."""
        whole = False
        while not whole:
            news = self.news(shards, taken, self._meeting)
            whole = news.whole
            yield news

    def let_go(self, taken: Sequence[int]) -> None:
        """Give up what only the host has to keep: nothing, since home has the whole table.

        Args:
            taken: for each writer, the sequence below which all slots are accounted for by a commit.
        """

    def lose(self) -> int:
        """The host is given up. Returns the number of rows that are lost with it."""
        return 0

    def news(self, shards: Sequence[int], taken: Sequence[int], meeting: int) -> News:
        """The next slots below ``taken`` that the host lacks, about ``PART_BYTES``. They count as sent from now on.

        If a writer overwrites a slot while it is copied, this slot and all before it are left out. On the host, the
        writer's ring then begins anew after them.
        """
        if meeting != self._meeting:
            self._meeting = meeting
            self._meet()
        begins: dict[int, int] = {}
        slots: list[RingSlot] = []
        left, whole = PART_BYTES, True
        for writer in self._in_turn(shards):
            end = int(taken[writer])
            first, sent = end - self._table.held(writer, end), self._sent.get(writer)
            begin = first if sent is None else max(first, sent)
            if left <= 0 and begin < end:
                # Beginning a ring anew empties it, so that waits until its slots can come along.
                whole = False
                continue
            found = []
            for slot in self._slots(writer, begin, end):
                if left <= 0:
                    whole = False
                    break
                left -= slot.parcel.nbytes
                self._served = writer
                found.append(slot)
            sequence = begin + len(found)
            # The writer may have overwritten slots while they were copied. From its oldest slot on, copies are whole.
            begin = min(max(begin, self._table.oldest(writer)), sequence)
            if begin != sent:
                begins[writer] = begin
            slots += [slot for slot in found if slot.sequence >= begin]
            self._sent[writer] = sequence
        largest = self._trees.largest() if begins and self._trees is not None else np.zeros(0)
        return News(begins, slots, largest, whole)

    def _meet(self) -> None:
        """Let all slots be sent again, because the learners have met anew.

        The priorities on the host may come from a turn that was given up.
        """
        self._sent = {}

    def _in_turn(self, shards: Sequence[int]) -> list[int]:
        """The writers of these shards, beginning behind the one that was served last: so none is left out for ever."""
        writers = [shard * self._share + number for shard in shards for number in range(self._share)]
        first = sum(writer <= self._served for writer in writers)
        return writers[first:] + writers[:first]

    def _slots(self, writer: int, first: int, end: int) -> Iterator[RingSlot]:
        size = self._table.arrays["valid"][0].size
        for sequence in range(first, end):
            index = self._table.index(writer, sequence)
            rows = np.arange(index * size, (index + 1) * size)
            priorities = np.zeros(0) if self._trees is None else self._trees.read(rows)
            parcel, fetched = self._packed(writer, sequence, self._table.slot(index))
            yield RingSlot(writer, sequence, parcel, priorities, fetched)

    def _packed(self, writer: int, sequence: int, slot: Arrays) -> tuple[Array, RolloutName | None]:  # noqa: ARG002
        """The parcel of a slot, and the rollout in it if the host has fetched its observations."""
        return packed(slot), None


def take_news(table: Table, trees: SumTrees | None, news: News, held: Fetched) -> None:
    """Write the news of home into the rings of a host.

    Args:
        table: of the host.
        trees: the priorities of its rows; ``None``: rows are not ranked.
        news: of home.
        held: the observations that the host has fetched.
    """
    for writer, sequence in news.begins.items():
        table.begin(writer, sequence, sequence)
    size = table.arrays["valid"][0].size
    if news.begins and trees is not None:
        share = table.slots * size
        for writer, sequence in news.begins.items():
            # Nothing that was there before is sampled by its priority.
            trees.set(writer * share, sequence, np.zeros(share))
    for writer, sequence, parcel, priorities, fetched in news.slots:
        index = table.claim(writer, sequence)
        if fetched is None:
            unpack(parcel, table.slot(index))
        else:
            held.fill(writer, fetched, parcel, table.slot(index))
        if trees is not None:
            trees.set(index * size, sequence, priorities)
        table.push(writer, sequence)
    if trees is not None:
        put_ranks(table, trees, news.ranks)
        for ranked in news.ranked:
            # A row that was overwritten since has another stamp, and keeps its priority.
            trees.update(*ranked)
        if len(news.largest):
            trees.put_largest(news.largest)


def ring_ranks(table: Table, trees: SumTrees, writer: int, begin: int, end: int) -> RingRanks:
    """The priorities of a writer's slots from ``begin`` on, below ``end``, up to the last place of its ring."""
    size = table.arrays["valid"][0].size
    index = table.index(writer, begin)
    count = min(end - begin, (writer + 1) * table.slots - index)
    rows = np.arange(index * size, (index + count) * size)
    return RingRanks(writer, begin, trees.read(rows).reshape(count, size))


def put_ranks(table: Table, trees: SumTrees, found: Iterable[RingRanks]) -> None:
    """Give the rows of these slots their priorities. Nobody else may change them meanwhile."""
    size = table.arrays["valid"][0].size
    for ranks in found:
        for sequence, priorities in enumerate(ranks.priorities, ranks.sequence):
            trees.set(table.index(ranks.writer, sequence) * size, sequence, priorities)
