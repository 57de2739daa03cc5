"""A node's ports over the shared segment of its run: structures, with the owner and the bells filled in."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from time import monotonic_ns

from penstock.errors import FencedError
from penstock.memory.board import Board as BoardMemory
from penstock.memory.counters import Cell, Counters
from penstock.memory.doorbell import Doorbells
from penstock.memory.rounds import Rounds as RoundsMemory
from penstock.memory.stream import Stream as StreamMemory
from penstock.memory.table import Table as TableMemory
from penstock.node import (
    ActionLogPort,
    Balance,
    BoardReader,
    BoardWriter,
    PolicyPort,
    QuestionPort,
    RecordPort,
    StreamReader,
    StreamWriter,
)
from penstock.program.graph import Ask, Board, LocalAnswer, RemoteAnswer, Stream, Table
from penstock.replay.priorities import enter
from penstock.replay.sum_tree import SumTree
from penstock.scheduler.asking import AnsweringEnd, AskingEnd
from penstock.scheduler.ledger import Ledger, ledger
from penstock.scheduler.trace import NodeTrace, NoTrace
from penstock.scheduler.wiring import SUPERVISOR, Wiring, node_class
from penstock.types import Array, Arrays

__all__ = ["NodePorts"]


class _StreamEnd:
    """One node's end of a stream: the structure, this node's incarnation, the other end's bells."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        memory: StreamMemory,
        owner: int,
        former: tuple[int, ...],
        bells: Doorbells,
        ring: tuple[int, ...],
        handed_on: Cell,
    ) -> None:
        self._memory = memory
        self._owner = owner
        self._former = former
        self._handed_on = handed_on
        self._bells = bells
        self._ring = ring
        self.slots = memory.slots
        self.arrays = memory.arrays
        self.slot = memory.slot
        self.free = memory.free
        self.ready = memory.ready
        self.sequence = memory.sequence
        self.written = memory.written

    def claim(self, sequence: int) -> int | None:
        return self._memory.claim(self._owner, sequence)

    def push(self, index: int) -> None:
        self._memory.push(index, self._owner)
        self._handed_on.add()
        self._wake()

    def take(self) -> int | None:
        return self._memory.take(self._owner)

    def release(self, index: int) -> None:
        self._memory.release(index, self._owner)
        self._handed_on.add()
        self._wake()

    def release_consumed(self, sequences: Sequence[int]) -> int:
        freed = self._memory.release_consumed(self._owner, sequences)
        self._wake()
        return freed

    def returned(self) -> list[int]:
        return self._memory.returned(self._former)

    def _wake(self) -> None:
        for bell in self._ring:
            self._bells.ring(bell)


class _TableEnd:
    """One writer's end of a table: a stream writer like any other, whose slots nobody has to give back."""

    def __init__(
        self,
        memory: TableMemory,
        tree: SumTree | None,
        edge: Table,
        node: str,
        *,
        counters: Counters,
        wake: Callable[[], None],
    ) -> None:
        self._memory = memory
        self._tree = tree
        self._ranking = edge.ranking
        self._writer = edge.writers.index(node)
        self._writers = len(edge.writers)
        self._limiter = edge.limiter
        self._collected = [counters.cell(name, "collected") for name in edge.writers]
        self._paid = [counters.cell(name, "paid") for name in edge.readers]
        self._handed_on = counters.cell(node, "handed_on")
        self._wake = wake
        self.slots = memory.slots
        self.slot = memory.slot

    def free(self) -> int:
        """1, or 0 while gradient steps have to be done first."""
        inserted = sum(cell.get() for cell in self._collected)
        return int(self._limiter.may_insert(inserted, max(cell.get() for cell in self._paid)))

    def claim(self, sequence: int) -> int | None:
        """The next slot of the writer's ring, whatever the sequence: a ring has no gaps, where rollouts are skipped."""
        del sequence
        if self.free() == 0:
            return None
        return self._memory.claim(self._writer, self._memory.written(self._writer))

    def push(self, index: int) -> None:
        sequence = self._memory.written(self._writer)
        if self._memory.index(self._writer, sequence) != index:
            raise FencedError(f"slot {index} is not the one that this writer fills")
        if self._tree is not None and self._ranking is not None:
            # Before the push: a writer that dies in between leaves priorities of rows that cannot be read yet.
            enter(self._tree, self._ranking, self._memory.slot(index), index, sequence)
        self._memory.push(self._writer, sequence)
        self._handed_on.add()
        self._wake()

    def written(self) -> dict[int, int]:
        """Sequence -> slot of the last one that was pushed: what is behind it is in it."""
        last = self._memory.written(self._writer) - 1
        if last < 0:
            return {}
        return {last * self._writers + self._writer: self._memory.index(self._writer, last)}


class _BoardEnd:
    """One node's end of a board."""

    def __init__(self, memory: BoardMemory, bells: Doorbells, ring: tuple[int, ...]) -> None:
        self._memory = memory
        self._bells = bells
        self._ring = ring
        self.version = memory.version
        self.read = memory.read

    def publish(self, arrays: Mapping[str, Array], version: int) -> None:
        self._memory.publish(arrays, version)
        for bell in self._ring:
            self._bells.ring(bell)


class NodePorts:
    """Implements ``node.Ports`` for one node in one process."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        wiring: Wiring,
        name: str,
        group: str,
        incarnation: int,
        former: tuple[int, ...] = (),
        trace: NodeTrace | None = None,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.former = former
        self._wiring = wiring
        self._group = group
        self._trace = NoTrace() if trace is None else trace
        self._counters: Counters = wiring.counters
        self._busy_until_ns = 0
        self._busy_ns = self._counters.cell(name, "busy_ns")
        self._idle_ns = self._counters.cell(name, "idle_ns")
        self._accounted_ns = monotonic_ns()

    def stream_writer(self, edge: str) -> StreamWriter:
        """The writing end of a stream, or of this node's ring of a table."""
        table = self._wiring.edge(edge)
        if isinstance(table, Table):
            wake = self._waker(table.readers)
            memory = self._wiring.table_memory(edge)
            tree = self._wiring.tree(edge)
            return _TableEnd(memory, tree, table, self.name, counters=self._counters, wake=wake)
        stream = self._stream(edge)
        return self._stream_end(stream, stream.readers)

    def stream_reader(self, edge: str) -> StreamReader:
        """The reading end of a stream."""
        stream = self._stream(edge)
        return self._stream_end(stream, stream.writers)

    def table(self, edge: str) -> TableMemory:
        """A table, to be looked at."""
        return self._wiring.table_memory(edge)

    def priorities(self, edge: str) -> Array | None:
        """The bytes of the tree that ranks a table's rows; ``None`` if they are not ranked."""
        return self._wiring.tree_bytes(edge)

    def _stream(self, name: str) -> Stream:
        edge = self._wiring.edge(name)
        if not isinstance(edge, Stream):
            raise TypeError(f"edge {name} is no stream")
        return edge

    def _stream_end(self, edge: Stream, others: tuple[str, ...]) -> _StreamEnd:
        memory = StreamMemory(self._wiring.bytes_of(edge.name), edge.arrays, edge.slots)
        ring = self._wiring.bells_of(others, but=self._group)
        handed_on = self._counters.cell(self.name, "handed_on")
        return _StreamEnd(memory, self.incarnation, self.former, self._wiring.bells, ring, handed_on)

    def board_writer(self, edge: str) -> BoardWriter:
        """The writing end of a board."""
        return self._board_end(edge)

    def board_reader(self, edge: str) -> BoardReader:
        """A reading end of a board."""
        return self._board_end(edge)

    def _board_end(self, name: str) -> _BoardEnd:
        edge = self._wiring.edge(name)
        if not isinstance(edge, Board):
            raise TypeError(f"edge {name} is no board")
        return _BoardEnd(
            self._wiring.board(name), self._wiring.bells, self._wiring.bells_of(edge.readers, but=self._group)
        )

    def policy(self, edge: str, first_lane: int, lanes: int) -> PolicyPort:
        """The asking end of an ask edge: a policy in this process, or the way to the node that answers."""
        ask = self._ask(edge)
        bound = self._wiring.edge(ask.board)
        max_lag = bound.max_lag if isinstance(bound, Board) else None
        board = self.board_reader(ask.board)
        match ask.answer:
            case LocalAnswer(kind, settings):
                policy: PolicyPort = node_class(kind)(settings, board, max_lag, first_lane, lanes)
                return policy
            case RemoteAnswer(nodes, stream, _):
                slot = self._wiring.questions(ask).slot(self.name, self.incarnation)
                answerer = next(node for node in nodes if self.name in ask.answered_by(node))
                wake = self._bell_of(answerer)
                arrays = self._arrays(stream)
                return AskingEnd(slot, arrays, board, max_lag=max_lag, first_lane=first_lane, wake=wake)

    def questions(self, edge: str) -> QuestionPort:
        """The answering end of an ask edge, for this node's share of the askers."""
        ask = self._ask(edge)
        if not isinstance(ask.answer, RemoteAnswer):
            raise TypeError(f"the askers of {edge} answer themselves")
        questions, askers = self._wiring.questions(ask), ask.answered_by(self.name)
        slots = [questions.slot(asker, self.incarnation) for asker in askers]
        wakes = [self._bell_of(asker) for asker in askers]
        count = self._counters.cell(self.name, "handed_on").add
        return AnsweringEnd(slots, self._arrays(ask.answer.stream), wakes, count)

    def _ask(self, name: str) -> Ask:
        edge = self._wiring.edge(name)
        if not isinstance(edge, Ask):
            raise TypeError(f"edge {name} is no ask")
        return edge

    def _arrays(self, stream: str) -> Arrays:
        """All slots of a stream, for one who neither claims nor takes them."""
        if isinstance(self._wiring.edge(stream), Table):
            return self._wiring.table_memory(stream).arrays
        edge = self._stream(stream)
        return StreamMemory(self._wiring.bytes_of(stream), edge.arrays, edge.slots).arrays

    def _bell_of(self, node: str) -> Callable[[], None]:
        """Rings the bell of a node's process, unless it is this one: its loop polls before it sleeps."""
        return self._waker((node,))

    def _waker(self, nodes: tuple[str, ...]) -> Callable[[], None]:
        ring, bells = self._wiring.bells_of(nodes, but=self._group), self._wiring.bells

        def wake() -> None:
            for bell in ring:
                bells.ring(bell)

        return wake

    def record(self, edge: str) -> RecordPort:
        """The owner's end of a record."""
        return self._wiring.record(edge)

    def rounds(self, edge: str) -> RoundsMemory:
        """This node's end of rounds."""
        return self._wiring.rounds(edge, self.name)

    def action_log(self, edge: str) -> ActionLogPort:
        """The action log of one node's lanes."""
        return self._wiring.action_log(edge)

    @contextmanager
    def busy(self, name: str, limit_s: float) -> Iterator[None]:
        """Work that cannot be cut: the supervisor counts the node as alive until the limit."""
        # Not what stands in the counter: the time that a process has for its start ends with its first such work.
        before, self._busy_until_ns = self._busy_until_ns, monotonic_ns() + int(limit_s * 1e9)
        self._counters.set(self.name, "busy_until_ns", self._busy_until_ns)
        try:
            with self.span(name):
                yield
        finally:
            self.beat()
            self._busy_until_ns = before
            self._counters.set(self.name, "busy_until_ns", before)

    def span(self, name: str) -> AbstractContextManager[None]:
        """What the node does inside the ``with`` block, by its name in the run's trace."""
        return self._trace.span(name)

    def sign(self) -> memoryview:
        """An int64 whose changes count as signs of life."""
        return self._counters.view(self.name, "sign")

    def count(self, counter: str, amount: int = 1) -> None:
        """Add to one of this node's counters."""
        self._counters.add(self.name, counter, amount)

    def note(self, counter: str, value: int) -> None:
        """Set one of this node's counters."""
        self._counters.set(self.name, counter, value)

    def counters(self) -> dict[str, dict[str, int]]:
        """The counters of every node."""
        return self._wiring.table()

    def balance(self) -> Balance | None:
        """What became of every transition."""
        return None if self._ledger is None else self._ledger.balance()

    @cached_property
    def _ledger(self) -> Ledger | None:
        return ledger(self._wiring)

    def stopping(self) -> bool:
        """True once the run has been asked to end."""
        return self._counters.get(SUPERVISOR, "stopping") != 0

    def finished(self) -> None:
        """This node has nothing left to do, ever."""
        self._counters.set(self.name, "finished", 1)
        self._wiring.bells.ring(0)

    def begin(self) -> None:
        """All nodes of this process are open: from here on the node's loop goes round."""
        self.beat()
        self._counters.set(self.name, "busy_until_ns", 0)
        self._accounted_ns = monotonic_ns()

    def beat(self) -> None:
        """The node's loop goes round."""
        self._counters.set(self.name, "heartbeat_ns", monotonic_ns())

    def worked(self, begin_ns: int, end_ns: int) -> None:
        """The node was at work for so long, and idle since its last turn."""
        self._busy_ns.add(end_ns - begin_ns)
        self._idle_ns.add(begin_ns - self._accounted_ns)
        self._accounted_ns = end_ns
        self._trace.stepped(begin_ns, end_ns)

    def idle(self, until_ns: int) -> None:
        """The node has been idle since its last turn: nothing to do, or other nodes of its process had theirs."""
        self._idle_ns.add(until_ns - self._accounted_ns)
        self._accounted_ns = until_ns
