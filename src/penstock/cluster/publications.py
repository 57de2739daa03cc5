"""What home publishes for hosts: the boards that their nodes read, each publication as one object of the cluster.

A version that is published again counts as a publication of its own: what it settles may have changed.
The rollouts of a batch go with the first version that names it. New slots of the shards of a table go with a goal.
Where the rows of a shard stay on its host alone, home gives their memory back. Knows no thread and no clock.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.cluster.crossing import carried, sampled, viewed
from penstock.cluster.fetched import RolloutName
from penstock.cluster.machines import Machine
from penstock.cluster.messages import Publication
from penstock.cluster.objects import as_object, put_again
from penstock.cluster.observation_fields import observation_fields
from penstock.cluster.parcels import packed
from penstock.cluster.ray_errors import NO_ROOM
from penstock.cluster.resident import ResidentShards
from penstock.cluster.rings import PART_BYTES, FoundShard, HostedShards, News, RowRanks
from penstock.errors import PenstockError
from penstock.memory.board import Board as BoardMemory
from penstock.memory.record import Record as RecordMemory
from penstock.memory.stream import Stream as StreamMemory
from penstock.nodes.learner.handed_on_epochs import NOTHING_WANTED
from penstock.program.graph import Board, Program, Record, Table
from penstock.types import Array, Arrays
from penstock.wiring.edges import Wiring

__all__ = ["Loss", "Publications"]

GOALS = "goals"
"""The board whose field ``slots`` says into which slots of a stream its readers look."""
NO_BATCH = -1


class _Latest(NamedTuple):
    """The latest publication of a board, as an object of the cluster."""

    number: int
    version: int
    object: Any
    arrays: Arrays
    batch: int
    """The number of the batch that it names, or ``NO_BATCH``."""


class _BatchRollouts(NamedTuple):
    """The rollouts of a batch, as an object of the cluster."""

    batch: int
    """The number of the batch."""
    object: Any


class Loss(NamedTuple):
    """What a host that is given up takes with it."""

    rows: int
    """Rows of the table."""
    no_room: bool
    """Whether the object store had no room for new objects. Then Ray may ask the lost machine for its copies."""


class Publications:
    """Which publication of which board each host has, and which is under way.

    Args:
        program: of home.
        wiring: of home.
        give_back: gives a part of home's memory back to the system, as `penstock.memory.segment.Segment.give_back`.

    Attributes:
        no_room: whether the last call of `due` found no room for a publication in the object store. It is still due.
    """

    def __init__(self, program: Program, wiring: Wiring, give_back: Callable[[Array], object]) -> None:
        self.no_room = False
        self._boards = {edge.name: (edge, wiring.board(edge.name)) for edge in carried(program)}
        self._viewed: StreamMemory | None = None
        """The stream into whose slots learners on hosts look; ``None``: they look into none."""
        stream = viewed(program)
        if stream is not None:
            self._viewed = wiring.stream(stream.name)
        self._table, self._wiring, self._give_back = sampled(program), wiring, give_back
        self._observations = observation_fields(program)
        self._record = _record_of(program, wiring) if self._table is not None and self._table.resident else None
        """What the learners have committed; ``None`` if all rows stay at home."""
        self._committed, self._taken = -1, list[int]()
        """The number of the last record that was read, and its ``taken``."""
        self._hosted: dict[Machine, HostedShards] = {}
        self._fed: set[Machine] = set()
        """Hosts to which slots are under way that belong to no goal."""
        self._ranked: dict[Machine, list[RowRanks]] = {}
        """Host -> priorities that learners have given to rows, and that it has not heard of."""
        self._latest: dict[str, _Latest] = {}
        """Board -> its latest publication that was read."""
        self._sent: dict[tuple[Machine, str], int] = {}
        """Host and board -> the number of the publication that was sent last."""
        self._under_way: dict[tuple[Machine, str], int] = {}
        """Host and board -> the number of the publication that the host has not got yet."""
        self._named_rollouts: _BatchRollouts | None = None
        """Those of the latest batch that a version has named."""
        self._batch_sent: dict[Machine, int] = {}
        """Host -> the number of the batch whose rollouts it was sent last."""

    def due(self, placed: Mapping[str, Machine]) -> Iterator[tuple[Machine, str, Any, Any]]:
        """The publications to send now, as (host, board, publication, rollouts). Each counts as sent from now on.

        - ``publication``: an object of Ray; a `Publication` if it is for this host only.
        - ``rollouts``: an object of Ray with the rollouts of the batch that the publication names. ``None`` if the host
          needs none.
        - Only one publication of a board at a time is on its way to a host. When it has arrived, the latest one is
          sent. Publications between the two are left out.

        Args:
            placed: node -> the host that runs it.
        """
        self.no_room = False
        for name, (edge, board) in self._boards.items():
            hosts = {placed[reader] for reader in edge.readers if reader in placed}
            try:
                latest = self._read(edge, board) if hosts else None
            except NO_ROOM:
                self.no_room = True
                continue
            for host in hosts:
                key = host, name
                if latest is None or key in self._under_way or self._sent.get(key) == latest.number:
                    continue
                self._under_way[key] = latest.number
                news = None if self._table is None or name != GOALS else self._news(host, latest, placed, self._table)
                if news is None or news.whole:
                    self._sent[key] = latest.number
                if news is None:
                    yield host, name, latest.object, self._rollouts_for(host, latest)
                else:
                    # No object: only this host gets it, and its slots count as sent from now on.
                    yield host, name, Publication(latest.number, latest.version, packed(latest.arrays), news), None

    def _rollouts_for(self, host: Machine, latest: _Latest) -> Any:  # noqa: ANN401 - Ray's own type
        """The rollouts of the batch that a version names; ``None`` if it names none, or if the host has them."""
        if self._named_rollouts is None or latest.batch in {NO_BATCH, self._batch_sent.get(host)}:
            return None
        self._batch_sent[host] = latest.batch
        return self._named_rollouts.object

    def _news(self, host: Machine, latest: _Latest, placed: Mapping[str, Machine], table: Table) -> News:
        """What this host lacks of the shards whose learners it runs, before it may show this goal."""
        shards = [number for number, reader in enumerate(table.readers) if placed.get(reader) is host]
        return self._hosted_on(host, table).news(shards, latest.arrays["taken"].tolist(), int(latest.arrays["meeting"]))

    def _hosted_on(self, host: Machine, table: Table) -> HostedShards:
        if host not in self._hosted:
            self._hosted[host] = self._resident(table) if table.resident else self._copied(table)
        return self._hosted[host]

    def _copied(self, table: Table) -> HostedShards:
        return HostedShards(self._wiring.table_memory(table.name), self._wiring.trees(table.name), table.shards)

    def _resident(self, table: Table) -> ResidentShards:
        memory, trees = self._wiring.table_memory(table.name), self._wiring.trees(table.name)
        return ResidentShards(memory, trees, table.shards, self._give_back, self._observations)

    def fetched(self, host: Machine, node: str, name: RolloutName) -> None:
        """Note that a host has fetched the observations of the rollout that an environment node has just pushed."""
        table = self._table
        hosted = None if table is None else self._hosted_on(host, table)
        if table is None or not isinstance(hosted, ResidentShards):
            raise PenstockError(f"the rows of {node} stay on no host")
        hosted.fetched(table.writers.index(node), name)

    def remember(self, host: Machine, found: Mapping[int, FoundShard]) -> None:
        """Note which rows a resumed run has found on a host. Call this once for each host, before anything is due.

        Args:
            host: the host.
            found: shard -> its rows.
        """
        if self._table is None:
            raise PenstockError("no learner of this run samples a table on a host")
        self._hosted[host] = resident = self._resident(self._table)
        for shard, rows in found.items():
            resident.remember(shard, rows)

    def rest(self, host: Machine, shards: Sequence[int], taken: Sequence[int]) -> Iterator[News]:
        """All that a host lacks of the slots of these shards below ``taken``."""
        if self._table is None:
            raise PenstockError("no learner of this run samples a table on a host")
        yield from self._hosted_on(host, self._table).rest(shards, taken)

    def feeds(self, placed: Mapping[str, Machine]) -> Iterator[tuple[Machine, News]]:
        """For each host with learners that follow no goals: the slots of the table that it lacks, or a part of them.

        With them go the priorities that learners have given to rows. All count as sent from now on.

        Args:
            placed: these learners -> the host that runs them.
        """
        table = self._table
        if table is None:
            return
        memory = self._wiring.table_memory(table.name)
        for host in set(placed.values()) - self._fed:
            written = [memory.written(writer) for writer in range(memory.writers)]
            news = self._hosted_on(host, table).news(range(table.shards), written, 0)
            # The host takes these after the slots. A slot that is copied later has them already.
            news = news._replace(ranked=self._next_ranked(host))
            if news.slots or news.begins or news.ranked:
                self._fed.add(host)
                yield host, news

    def _next_ranked(self, host: Machine) -> tuple[RowRanks, ...]:
        """The next priorities that a host is to hear of, as many as travel at once."""
        waiting, count, left = self._ranked.get(host, []), 0, PART_BYTES
        while left > 0 and count < len(waiting):
            left -= sum(array.nbytes for array in waiting[count])
            count += 1
        found = tuple(waiting[:count])
        del waiting[:count]
        return found

    def ranked(self, found: Sequence[RowRanks]) -> None:
        """Note priorities that learners on hosts have given to rows, and that home has. They are sent to all hosts.

        They are sent to the learner's own host, too. Race:

        1. Two learners on two hosts rank the same row at the same time.
        2. Home hears of the two priorities one after the other.
        3. All hosts get them in this order. So the priority that home has heard of last counts everywhere.
        """
        for host in self._hosted:
            self._ranked.setdefault(host, []).extend(found)

    def fed(self, host: Machine) -> None:
        """A host has the slots that were sent."""
        self._fed.discard(host)

    def arrived(self, host: Machine, board: str, number: int) -> None:
        """A host has published what was sent, or a part of it.

        Args:
            host: the host.
            board: its name.
            number: of the publication.
        """
        if self._under_way.get((host, board)) != number:
            # After a loss it was sent twice, and the host had it before.
            return
        del self._under_way[host, board]
        if board == GOALS and host in self._hosted:
            self._hosted[host].arrived()

    def let_go(self) -> None:
        """Give the memory of rows back that stay on their hosts, and that are accounted for by a commit."""
        if self._record is None:
            return
        if self._record.number() != self._committed:
            # Race: the keeper may commit meanwhile. Then the next call finds the record.
            committed = self._record.copy(("taken",))
            if committed is None:
                return
            self._committed, self._taken = committed.number, committed.arrays["taken"].tolist()
        if self._taken:
            for hosted in self._hosted.values():
                hosted.let_go(self._taken)

    def lose(self, host: Machine) -> Loss:
        """A host is given up."""
        hosted = self._hosted.pop(host, None)
        self._fed.discard(host)
        self._ranked.pop(host, None)
        room = self._put_again(host)
        self._send_again(host)
        self._under_way = {key: number for key, number in self._under_way.items() if key[0] is not host}
        self._sent = {key: number for key, number in self._sent.items() if key[0] is not host}
        self._batch_sent.pop(host, None)
        return Loss(0 if hosted is None else hosted.lose(), no_room=not room)

    def _put_again(self, host: Machine) -> bool:
        """Make new objects of publications and rollouts that the lost host may have copies of. False: there is no room.

        Other hosts may still fetch them. Ray might ask the lost machine for its copies, and would wait 10 s and more
        each time.
        """
        room = True
        for name, latest in list(self._latest.items()):
            if self._sent.get((host, name)) == latest.number and self._is_shared(name):
                anew = put_again(latest.object)
                room = room and anew is not None
                self._latest[name] = latest if anew is None else latest._replace(object=anew)
        if self._named_rollouts is not None and self._batch_sent.get(host) == self._named_rollouts.batch:
            anew = put_again(self._named_rollouts.object)
            room = room and anew is not None
            self._named_rollouts = self._named_rollouts if anew is None else self._named_rollouts._replace(object=anew)
        return room

    def _send_again(self, lost: Machine) -> None:
        """Let publications that are under way to other hosts be due again: Ray may be asking the lost machine for them.

        So a host may get a publication twice. It leaves out one that comes after a newer one.
        """
        for key in [key for key in self._under_way if key[0] is not lost]:
            host, name = key
            if (lost, name) in self._sent and self._is_shared(name):
                del self._under_way[key]
                self._sent.pop(key, None)
                # Only boards that name batches bring rollouts. For another board, the note on the rollouts of this host
                # stays: `_put_again` needs it if this host is lost later.
                if _names_batches(self._latest[name].arrays):
                    self._batch_sent.pop(host, None)

    def _is_shared(self, name: str) -> bool:
        """Whether all hosts get the same object of a board. Goals of a table come with the slots that a host lacks."""
        return self._table is None or name != GOALS

    def _read(self, edge: Board, board: BoardMemory) -> _Latest | None:
        """The latest publication of a board, with its objects. One that finds no room counts as not read yet.

        Raises:
            NO_ROOM: one of these errors; the object store has no room for an object.
        """
        latest = self._latest.get(edge.name)
        # Race: the board may be published between this look and the read. Then the next call reads it again.
        number = board.publication()
        if number == 0:
            return None
        if latest is None or number != latest.number:
            arrays: Arrays = {spec.name: np.empty(spec.shape, spec.dtype) for spec in edge.arrays}
            version = board.read(arrays)
            # One object a publication. Each machine fetches it once.
            published = as_object(Publication(number, version, packed(arrays)))
            before = NO_BATCH if latest is None else latest.batch
            latest = _Latest(number, version, published, arrays, _batch_of(version, arrays))
            if latest.batch not in {NO_BATCH, before} and self._viewed is not None:
                # They stay in their slots until all learners have learned from them.
                rollouts = self._viewed
                content = as_object({slot: packed(rollouts.slot(slot)) for slot in arrays["slots"].tolist()})
                self._named_rollouts = _BatchRollouts(latest.batch, content)
            self._latest[edge.name] = latest
        return latest


def _record_of(program: Program, wiring: Wiring) -> RecordMemory:
    """The record of the learner that says which slots of the table were noted."""
    records = (edge for edge in program.edges if isinstance(edge, Record))
    return wiring.record(next(edge.name for edge in records if any(spec.name == "taken" for spec in edge.arrays)))


def _names_batches(arrays: Arrays) -> bool:
    """Whether versions of a board name the rollouts of a batch."""
    return "slots" in arrays


def _batch_of(version: int, arrays: Arrays) -> int:
    """The number of the batch that a version of a board names: the first version that has named it."""
    if not _names_batches(arrays) or int(arrays.get("done", version)) == NOTHING_WANTED:
        return NO_BATCH
    return int(arrays.get("begun", version))
