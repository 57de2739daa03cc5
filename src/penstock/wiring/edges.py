"""Lays a program's edges out in one shared segment.

Every process of a run computes the same layout from the same edges. So only a file descriptor is passed on.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.memory.action_log import ActionLog as ActionLogMemory
from penstock.memory.board import Board as BoardMemory
from penstock.memory.counters import Counters
from penstock.memory.doorbell import Doorbells
from penstock.memory.layout import Layout
from penstock.memory.record import Record as RecordMemory
from penstock.memory.rounds import Rounds as RoundsMemory
from penstock.memory.stream import Stream as StreamMemory
from penstock.memory.table import Table as TableMemory
from penstock.program.graph import (
    ActionLog,
    Ask,
    Board,
    Edge,
    NodeSpec,
    ProcessGroup,
    Program,
    Record,
    Rounds,
    SharedArrays,
    SharedObject,
    Stream,
    Table,
)
from penstock.registry import NODES, load
from penstock.replay.sum_tree import SumTrees
from penstock.replay.table_file import mapped
from penstock.types import Array, Arrays
from penstock.wiring.questions import Questions

__all__ = ["COUNTERS", "SUPERVISOR", "Placement", "Wiring", "node_class", "placement"]

SUPERVISOR = "supervisor"
"""The line of counters that the supervisor writes. Bell 0 wakes the supervisor."""
VITALS = ("heartbeat_ns", "sign", "busy_until_ns", "busy_ns", "idle_ns", "finished", "stopping", "interrupted", "ended")
DEATHS = ("restarts", "ended_by", "cause", "detail_kept", "uptime_ms", "redone")
"""Written by the supervisor. How often a node was restarted; how its last life ended (``Exit.status``, ``Exit.cause``);
1 if the run folder keeps its traceback or stacks (``Exit.detail``); how long that life lasted; how many rows its lives
were learning from when they ended. Other lives learn from these rows again."""
FLOW = ("collected", "paid")
"""For the rate limiter of a table: rows that each environment node has collected, and rows whose gradient steps the
learner has done. These counters are set, not added to: so a death loses no row and counts none twice."""
COUNTERS = (
    *VITALS,
    *DEATHS,
    *FLOW,
    "begun",
    "handed_on",
    "lost",
    "skipped",
    "not_restored",
    "checkpoints",
    "checkpoints_wanted",
    "reports_dropped",
    "evaluations_dropped",
    "episodes_evaluated",
    "told_at_start",
)


@dataclass(frozen=True)
class Placement:
    """The part of a program that one process needs: its own nodes, all edges, and the group of every node."""

    group: str
    nodes: tuple[NodeSpec, ...]
    edges: tuple[Edge, ...]
    roster: tuple[tuple[str, str], ...]
    """Every node of the program and its group."""
    trace: Path | None = None
    """Folder for the trace of its nodes; ``None``: no trace is kept."""


def placement(program: Program, group: str) -> Placement:
    """The part of a program that one process runs."""
    roster = tuple((node.name, node.group) for node in program.nodes)
    return Placement(group, program.members(group), program.edges, roster, program.trace)


def node_class(kind: str) -> Any:  # noqa: ANN401 - a class, called with settings of its own type
    """The class of a node, from its name in the registry or a ``module:attribute``."""
    return load(kind if ":" in kind else NODES[kind])


class Wiring:
    """The structures of all edges over one segment."""

    def __init__(self, edges: Sequence[Edge], roster: Sequence[tuple[str, str]]) -> None:
        self._edges = {edge.name: edge for edge in edges}
        self._groups = list(dict.fromkeys(group for _, group in roster))
        self._group_of = dict(roster)
        self._lines = (SUPERVISOR, *self._group_of)
        self._offsets: dict[str, int] = {}
        self._shared: dict[str, Any] = {}
        self.nbytes = 0
        self._place("bells", Doorbells.required(1 + len(self._groups)))
        self._place("counters", Counters.required(self._lines, COUNTERS))
        for edge in edges:
            if isinstance(edge, Table) and edge.file is not None:
                continue
            self._place(f"edge {edge.name}", _required(edge))
            if isinstance(edge, Table) and edge.ranking is not None:
                self._place(f"priorities {edge.name}", SumTrees.required(edge.rings.rows, edge.shards))

    def _place(self, name: str, nbytes: int) -> None:
        self._offsets[name] = self.nbytes
        self.nbytes += -(-nbytes // 4096) * 4096

    def attach(self, memory: Array) -> None:
        """Make the structures over the segment's bytes (uint8 ``[nbytes]``). A new segment is all zeros.

        Raises:
            ResourceError: the file of a table is missing.
        """
        self._memory = memory
        self._files = {
            edge.name: mapped(edge.file, edge.rings)
            for edge in self._edges.values()
            if isinstance(edge, Table) and edge.file is not None
        }
        self._streams: dict[str, StreamMemory] = {}
        self.bells = Doorbells(memory[self._offsets["bells"] :], 1 + len(self._groups))
        self.counters = Counters(memory[self._offsets["counters"] :], self._lines, COUNTERS)

    def bytes_of(self, edge: str) -> Array:
        """The bytes of one edge's structure, which lies in the segment."""
        return self._memory[self._offsets[f"edge {edge}"] :]

    def edge(self, name: str) -> Edge:
        """The edge of that name."""
        return self._edges[name]

    def edges(self) -> Iterable[Edge]:
        """Every edge."""
        return self._edges.values()

    def streams(self) -> Iterator[tuple[Stream, StreamMemory]]:
        """Every stream with its structure. The caller owns no slot of it."""
        for edge in self._edges.values():
            if isinstance(edge, Stream):
                yield edge, self.stream(edge.name)

    def stream(self, name: str) -> StreamMemory:
        """The structure of a stream. The nodes of a process share it: its views of all slots take time and memory."""
        edge = self._edges[name]
        if not isinstance(edge, Stream):
            raise TypeError(f"edge {name} is no stream")
        if name not in self._streams:
            self._streams[name] = StreamMemory(self.bytes_of(name), edge.arrays, edge.slots)
        return self._streams[name]

    def table_memory(self, name: str) -> TableMemory:
        """The structure of a table."""
        edge = self._edges[name]
        if not isinstance(edge, Table):
            raise TypeError(f"edge {name} is no table")
        if name in self._files:
            return edge.rings.table(self._files[name])
        return TableMemory(self.bytes_of(name), edge.arrays, len(edge.writers), edge.slots)

    def trees(self, name: str) -> SumTrees | None:
        """The priorities of a table's rows; ``None`` if they have none."""
        edge = self._edges[name]
        if not isinstance(edge, Table):
            return None
        if name in self._files:
            return edge.rings.trees(self._files[name])
        at = self._offsets.get(f"priorities {name}")
        return None if at is None else SumTrees(self._memory[at:], edge.rings.rows, edge.shards)

    def all_trees(self) -> Iterator[SumTrees]:
        """The priorities of every table."""
        yield from filter(None, map(self.trees, self._edges))

    def record(self, name: str) -> RecordMemory:
        """The structure of a record."""
        edge = self._edges[name]
        if not isinstance(edge, Record):
            raise TypeError(f"edge {name} is no record")
        return RecordMemory(self.bytes_of(name), edge.arrays)

    def board(self, name: str) -> BoardMemory:
        """The structure of a board."""
        edge = self._edges[name]
        if not isinstance(edge, Board):
            raise TypeError(f"edge {name} is no board")
        return BoardMemory(self.bytes_of(name), edge.arrays, f"board {name}")

    def action_log(self, name: str) -> ActionLogMemory:
        """The structure of an action log."""
        edge = self._edges[name]
        if not isinstance(edge, ActionLog):
            raise TypeError(f"edge {name} is no action log")
        return ActionLogMemory(
            self.bytes_of(name), edge.lanes, edge.action, edge.fields, edge.capacity, snapshot_bytes=edge.snapshot_bytes
        )

    def rounds(self, name: str, member: str) -> RoundsMemory:
        """One member's end of rounds."""
        edge = self._edges[name]
        if not isinstance(edge, Rounds):
            raise TypeError(f"edge {name} is no rounds")
        return RoundsMemory(self.bytes_of(name), len(edge.members), edge.state, edge.members.index(member))

    def shared(self, name: str) -> Arrays:
        """The arrays that several nodes change in place."""
        edge = self._edges[name]
        if not isinstance(edge, SharedArrays):
            raise TypeError(f"edge {name} is no shared arrays")
        return Layout(edge.arrays).views(self.bytes_of(name))

    def shared_object(self, name: str, make: Callable[[], Any]) -> Any:  # noqa: ANN401 - what these nodes share
        """The object that the nodes of this edge share in this process. The first one makes it."""
        edge = self._edges[name]
        if not isinstance(edge, SharedObject):
            raise TypeError(f"edge {name} is no shared object")
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def questions(self, edge: Ask) -> Questions:
        """The structure of an ask edge that nodes answer."""
        return Questions(self.bytes_of(edge.name), edge)

    def want_checkpoint(self) -> None:
        """Ask for a checkpoint at the next commit. For one thread of the launcher."""
        self.counters.set(SUPERVISOR, "checkpoints_wanted", self.counters.get(SUPERVISOR, "checkpoints_wanted") + 1)

    def ended(self) -> bool:
        """True once the supervisor has asked all loops to end."""
        return self.counters.get(SUPERVISOR, "ended") != 0

    def all_counters(self) -> dict[str, dict[str, int]]:
        """The counters of every node: node -> counter -> value."""
        return {node: {name: self.counters.get(node, name) for name in COUNTERS} for node in self._group_of}

    def bell_of(self, group: str) -> int:
        """Index of a group's bell."""
        return 1 + self._groups.index(group)

    def bells_of(self, nodes: Sequence[str], but: str) -> tuple[int, ...]:
        """Bells of the groups of these nodes, without the group ``but``: its own loop polls before it sleeps."""
        groups = dict.fromkeys(self._group_of[node] for node in nodes)
        return tuple(self.bell_of(group) for group in groups if group != but)


def _required(edge: Edge) -> int:
    match edge:
        case Stream():
            return StreamMemory.required(edge.arrays, edge.slots)
        case Table():
            return TableMemory.required(edge.arrays, len(edge.writers), edge.slots)
        case Board():
            return BoardMemory.required(edge.arrays)
        case Record():
            return RecordMemory.required(edge.arrays)
        case Rounds():
            return RoundsMemory.required(len(edge.members), edge.state)
        case ActionLog():
            return ActionLogMemory.required(edge.lanes, edge.action, edge.capacity, edge.snapshot_bytes)
        case Ask():
            return Questions.required(edge)
        case SharedArrays():
            return Layout(edge.arrays).nbytes
        case SharedObject() | ProcessGroup():
            return 0
