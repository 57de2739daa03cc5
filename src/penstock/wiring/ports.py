"""A node's ports over the shared segment of its run: structures, with the owner and the bells filled in."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from time import monotonic_ns
from typing import TypeVar

from penstock.memory.counters import Counters
from penstock.memory.table import Table as TableMemory
from penstock.nodes.contract import Balance
from penstock.nodes.ports import (
    ActionLogPort,
    BoardReader,
    BoardWriter,
    PolicyPort,
    QuestionPort,
    RecordPort,
    RoundsPort,
    StreamReader,
    StreamWriter,
)
from penstock.program.graph import Ask, Board, LocalAnswer, ProcessGroup, RemoteAnswer, Stream, Table
from penstock.registry import load
from penstock.replay.sum_tree import SumTrees
from penstock.types import Arrays
from penstock.wiring.asking import AnsweringEnd, AskingEnd
from penstock.wiring.edges import SUPERVISOR, Wiring, node_class
from penstock.wiring.ends import BoardEnd, StreamEnd, TableEnd
from penstock.wiring.ledger import Ledger, ledger
from penstock.wiring.trace import NodeTrace, NoTrace

__all__ = ["NodePorts"]

Shared = TypeVar("Shared")
PROCESS_GROUP = "penstock.gradient_exchange.process_group:build"
"""It imports torch, so it is loaded where a learner needs it."""


class NodePorts:
    """Implements `penstock.nodes.contract.Ports` for one node in one process."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        wiring: Wiring,
        name: str,
        group: str,
        life: int,
        former: tuple[int, ...] = (),
        trace: NodeTrace | None = None,
        edges: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.name = name
        self._edges = dict(edges)
        self.life = life
        self.former = former
        self._wiring = wiring
        self._group = group
        self._trace = NoTrace() if trace is None else trace
        self._counters: Counters = wiring.counters
        self._busy_until_ns = 0
        self._busy_ns = self._counters.cell(name, "busy_ns")
        self._idle_ns = self._counters.cell(name, "idle_ns")
        self._accounted_ns = monotonic_ns()

    def _edge(self, role: str) -> str:
        """The name of the edge that plays a role for this node."""
        return self._edges.get(role, role)

    def stream_writer(self, role: str) -> StreamWriter:
        """The writing end of a stream, or of this node's ring of a table."""
        edge = self._edge(role)
        table = self._wiring.edge(edge)
        if isinstance(table, Table):
            wake = self._waker(table.readers)
            memory = self._wiring.table_memory(edge)
            trees = self._wiring.trees(edge)
            return TableEnd(memory, trees, table, self.name, counters=self._counters, wake=wake)
        stream = self._stream(edge)
        return self._stream_end(stream, (*stream.readers, *stream.woken))

    def stream_reader(self, role: str) -> StreamReader:
        """The reading end of a stream."""
        stream = self._stream(self._edge(role))
        return self._stream_end(stream, stream.writers)

    def table(self, role: str) -> TableMemory:
        """A table, to be looked at."""
        return self._wiring.table_memory(self._edge(role))

    def priorities(self, role: str) -> SumTrees | None:
        """The priorities of a table's rows; ``None`` if they are not ranked."""
        return self._wiring.trees(self._edge(role))

    def _stream(self, name: str) -> Stream:
        edge = self._wiring.edge(name)
        if not isinstance(edge, Stream):
            raise TypeError(f"edge {name} is no stream")
        return edge

    def _stream_end(self, edge: Stream, others: tuple[str, ...]) -> StreamEnd:
        memory = self._wiring.stream(edge.name)
        handed_on = self._counters.cell(self.name, "handed_on")
        return StreamEnd(memory, self.life, handed_on=handed_on, wake=self._waker(others))

    def board_writer(self, role: str) -> BoardWriter:
        """The writing end of a board."""
        return self._board_end(self._edge(role))

    def board_reader(self, role: str) -> BoardReader:
        """A reading end of a board."""
        return self._board_end(self._edge(role))

    def _board_end(self, name: str) -> BoardEnd:
        edge = self._wiring.edge(name)
        if not isinstance(edge, Board):
            raise TypeError(f"edge {name} is no board")
        return BoardEnd(self._wiring.board(name), self._waker(edge.readers), edge.max_lag)

    def policy(self, role: str, first_lane: int, lanes: int) -> PolicyPort:
        """The asking end of an ask edge: a policy in this process, or the way to the node that answers."""
        ask = self._ask(self._edge(role))
        board = self._board_end(ask.board)
        match ask.answer:
            case LocalAnswer(kind, settings):
                policy: PolicyPort = node_class(kind)(settings, board, first_lane, lanes)
                return policy
            case RemoteAnswer(nodes, streams):
                questions = self._wiring.questions(ask)
                asker = ask.askers.index(self.name)
                first = asker % len(nodes)
                return AskingEnd(
                    [questions.slot(self.name, node, self.life) for node in nodes],
                    self._arrays(streams[asker]),
                    board,
                    first_lane=first_lane,
                    choose=lambda: questions.shortest(first),
                    wakes=[self._bell_of(node) for node in nodes],
                )

    def questions(self, role: str) -> QuestionPort:
        """The answering end of an ask edge."""
        ask = self._ask(self._edge(role))
        if not isinstance(ask.answer, RemoteAnswer):
            raise TypeError(f"the askers of {ask.name} answer themselves")
        questions = self._wiring.questions(ask)
        slots = [questions.slot(asker, self.name, self.life) for asker in ask.askers]
        wakes = [self._bell_of(asker) for asker in ask.askers]
        count = self._counters.cell(self.name, "handed_on").add
        arrays = {stream: self._arrays(stream) for stream in dict.fromkeys(ask.answer.streams)}
        return AnsweringEnd(slots, [arrays[stream] for stream in ask.answer.streams], wakes, count)

    def _ask(self, name: str) -> Ask:
        edge = self._wiring.edge(name)
        if not isinstance(edge, Ask):
            raise TypeError(f"edge {name} is no ask")
        return edge

    def _arrays(self, stream: str) -> Arrays:
        """The arrays of all slots of a stream or a table, to read or write in place. Claims and takes no slot."""
        if isinstance(self._wiring.edge(stream), Table):
            return self._wiring.table_memory(stream).arrays
        return self._wiring.stream(stream).arrays

    def _bell_of(self, node: str) -> Callable[[], None]:
        """Rings the bell of a node's process, unless it is this one: its loop polls before it sleeps."""
        return self._waker((node,))

    def _waker(self, nodes: tuple[str, ...]) -> Callable[[], None]:
        ring, bells = self._wiring.bells_of(nodes, but=self._group), self._wiring.bells

        def wake() -> None:
            for bell in ring:
                bells.ring(bell)

        return wake

    def record(self, role: str) -> RecordPort:
        """This node's end of a record. Its owner reads it in place; other nodes copy it."""
        return self._wiring.record(self._edge(role))

    def shared_object(self, role: str, make: Callable[[], Shared]) -> Shared:
        """The object that the nodes of this edge share in this process. The first one makes it."""
        shared: Shared = self._wiring.shared_object(self._edge(role), make)
        return shared

    def rounds(self, role: str) -> RoundsPort:
        """This node's end of rounds: in shared memory, or over torch.distributed."""
        name = self._edge(role)
        edge = self._wiring.edge(name)
        if isinstance(edge, ProcessGroup):
            found: RoundsPort = load(PROCESS_GROUP)(self, edge)
            return found
        return self._wiring.rounds(name, self.name)

    def shared(self, role: str) -> Arrays:
        """Arrays that several nodes change in place, without locks."""
        return self._wiring.shared(self._edge(role))

    def action_log(self, role: str) -> ActionLogPort:
        """The action log of one node's lanes."""
        return self._wiring.action_log(self._edge(role))

    @contextmanager
    def busy(self, name: str, limit_s: float) -> Iterator[None]:
        """Work that cannot be cut: the supervisor counts the node as alive until the limit."""
        # Restore this node's own last limit, not the counter's: the counter may still hold the start-up limit, which
        # ends with the first announced work.
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
        return self._wiring.all_counters()

    def balance(self) -> Balance | None:
        """What became of every row; ``None`` if no record counts them."""
        return None if self._ledger is None else self._ledger.balance()

    @cached_property
    def _ledger(self) -> Ledger | None:
        return ledger(self._wiring)

    def stopping(self) -> bool:
        """True once the run has been asked to end."""
        return self._counters.get(SUPERVISOR, "stopping") != 0

    def interrupted(self) -> bool:
        """True once an interrupt has asked the run to end."""
        return self._counters.get(SUPERVISOR, "interrupted") != 0

    def checkpoints_wanted(self) -> int:
        """Number of requests for a checkpoint so far. Those that settings make due do not count."""
        return self._counters.get(SUPERVISOR, "checkpoints_wanted")

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
        """Note a turn of the node. Between its last turn and this one it was idle."""
        self._busy_ns.add(end_ns - begin_ns)
        self._idle_ns.add(begin_ns - self._accounted_ns)
        self._accounted_ns = end_ns
        self._trace.stepped(begin_ns, end_ns)

    def idle(self, until_ns: int) -> None:
        """The node has been idle since its last turn: nothing to do, or other nodes of its process had theirs."""
        self._idle_ns.add(until_ns - self._accounted_ns)
        self._accounted_ns = until_ns
