"""Nodes and edges as plain data. A program knows no process and no torch: nodes are named by registry string.

Three kinds of edge carry data between nodes: a *stream* (slots that go from writer to reader and back), a *table*
(slots that are overwritten in order and read at random) and a *board* (latest value wins). Two more kinds belong to one
owner and are read by its successor: the *record* of a learner (what it committed) and the *action log* of the lanes
(what restores an episode).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from penstock.replay.limiter import RateLimiter
from penstock.replay.priorities import Ranking
from penstock.replay.table_file import Rings
from penstock.types import ArraySpec

__all__ = [
    "ActionLog",
    "Ask",
    "Board",
    "Edge",
    "LocalAnswer",
    "Minibatch",
    "NodeSpec",
    "Program",
    "Record",
    "RemoteAnswer",
    "Rounds",
    "Stream",
    "Table",
]


@dataclass(frozen=True)
class Minibatch:
    """The memory that a node learns in, beside what any process takes: at the least, for libraries add their own."""

    size: int
    """Rows, as the run was told."""
    nbytes: int
    """Of all that the node holds of a minibatch at once."""


@dataclass(frozen=True)
class NodeSpec:
    """A node: what it is, its settings (a frozen dataclass of plain data) and the placement group that runs it.

    ``kind`` is a name of the registry, or ``module:attribute``.
    Nodes of one group share a process. ``threads`` bounds the threads of numerical libraries there.
    """

    name: str
    kind: str
    settings: Any
    group: str
    threads: int = 1
    silence_limit_s: float = 60.0
    """Seconds without a sign of life after which the node counts as hung; announced long work is not silence."""
    niceness: int = 0
    """How far its process steps back for others where cores are short, as ``nice`` counts; the least of a group's."""
    core: int | None = None
    """Its process keeps to this one of the cores that it may use, counted round; ``None``: where the system puts it."""
    minibatch: Minibatch | None = None
    """What its process takes for minibatches, if it learns from some."""
    imports: tuple[str, ...] = ()
    """Modules that it needs and that take long: all processes that name the same have them imported once, where the
    system can. None of a user's."""


@dataclass(frozen=True)
class Stream:
    """Slots that go from a writer to a reader and back."""

    name: str
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    arrays: tuple[ArraySpec, ...]
    """The fields of one slot."""
    slots: int
    when_full: Literal["wait", "drop"]
    """What a writer does when no slot is free: wait (back-pressure), or drop its item and count it."""


@dataclass(frozen=True)
class Table:
    """Slots that their writers fill in order, over and over, and that readers look at in any order."""

    name: str
    writers: tuple[str, ...]
    """Each has a ring of its own."""
    readers: tuple[str, ...]
    arrays: tuple[ArraySpec, ...]
    """The fields of one slot."""
    slots: int
    """Of each writer."""
    limiter: RateLimiter
    """Writers wait where too few gradient steps are done for what there is: the counters ``collected`` and ``paid``."""
    ranking: Ranking | None = None
    """Rows are drawn by priorities, which a tree beside the table holds; ``None``: each is as likely."""
    file: Path | None = None
    """It lies in this file, with its tree, and outlives the run; ``None``: with the other edges, and goes with them."""

    @property
    def rings(self) -> Rings:
        """What it is made of."""
        return Rings(self.arrays, len(self.writers), self.slots, self.ranking is not None)


@dataclass(frozen=True)
class Board:
    """Latest value wins; a reader never waits for the writer."""

    name: str
    writer: str
    readers: tuple[str, ...]
    arrays: tuple[ArraySpec, ...]
    max_lag: int | None = None
    """How many versions a reader may be behind its own count of rollouts before it waits; ``None``: it never waits."""


@dataclass(frozen=True)
class LocalAnswer:
    """Each asker's own process answers, before ``ask`` returns."""

    kind: str
    """Registry string of what answers."""
    settings: Any


@dataclass(frozen=True)
class RemoteAnswer:
    """Nodes answer, in place: in the slots where the rows lie that they are asked about."""

    nodes: tuple[str, ...]
    """They share the askers out evenly."""
    stream: str
    """The stream or table with those slots; the askers write it."""
    action: ArraySpec
    """One asker's actions in the environment's own units, ``[lanes, ...]``."""
    stacks: tuple[ArraySpec, ...] = ()
    """Observations that one asker puts beside its question, ``[lanes, ...]``: rows keep one frame of them."""


@dataclass(frozen=True)
class Ask:
    """Nodes ask a policy for actions; ``answer`` is where the policy is placed."""

    name: str
    askers: tuple[str, ...]
    board: str
    """The board with the published record that answers."""
    answer: LocalAnswer | RemoteAnswer

    def answered_by(self, node: str) -> tuple[str, ...]:
        """The askers that ``node`` answers; none if the askers answer themselves."""
        if not isinstance(self.answer, RemoteAnswer):
            return ()
        nodes = self.answer.nodes
        return tuple(asker for index, asker in enumerate(self.askers) if nodes[index % len(nodes)] == node)


@dataclass(frozen=True)
class Record:
    """What a node has committed: two buffers, one flip. Its successor continues from there."""

    name: str
    owner: str
    arrays: tuple[ArraySpec, ...]
    readers: tuple[str, ...] = ()
    """Who looks there for its own place when it takes over from a dead life."""


@dataclass(frozen=True)
class ActionLog:
    """Per lane of one node, what restores its episode: number, actions since its reset, a hash of its observations."""

    name: str
    writer: str
    readers: tuple[str, ...]
    lanes: int
    fields: tuple[str, ...]
    """The observation fields to hash."""
    action: ArraySpec
    capacity: int


@dataclass(frozen=True)
class Rounds:
    """Nodes that meet in rounds: each brings arrays, all get the same mean. Who dies is waited for no more."""

    name: str
    members: tuple[str, ...]
    """The first round waits for all of them."""
    state: tuple[ArraySpec, ...]
    """What a node that comes later is told; what is brought is no larger than its float32 arrays."""


Edge: TypeAlias = Stream | Table | Board | Ask | Record | ActionLog | Rounds


@dataclass(frozen=True)
class Program:
    """A graph of nodes joined by edges."""

    nodes: tuple[NodeSpec, ...]
    edges: tuple[Edge, ...]
    ends_with: tuple[str, ...] = ()
    """The run is over once these nodes have nothing left to do."""
    trace: Path | None = None
    """The folder that is told what each node does when; ``None``: none is."""
    deaths: Path | None = None
    """The file that gets the tracebacks of processes that are started again."""
    max_restarts: int = 0
    """A process that dies is started again, so often without progress in between; 0: its death ends the run."""
    stall_limit_s: float = math.inf
    """A run that comes no further for so long ends."""

    def node(self, name: str) -> NodeSpec:
        """The node of that name.

        Raises:
            KeyError: there is none.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def with_node(self, node: NodeSpec) -> "Program":
        """This program with ``node`` in the place of the node of its name."""
        return replace(self, nodes=tuple(node if other.name == node.name else other for other in self.nodes))

    def edge(self, name: str) -> Edge:
        """The edge of that name.

        Raises:
            KeyError: there is none.
        """
        for edge in self.edges:
            if edge.name == name:
                return edge
        raise KeyError(name)

    @property
    def groups(self) -> tuple[str, ...]:
        """Placement groups in order of first appearance: one process each on the local runtime."""
        return tuple(dict.fromkeys(node.group for node in self.nodes))

    def members(self, group: str) -> tuple[NodeSpec, ...]:
        """The nodes of a group, in order."""
        return tuple(node for node in self.nodes if node.group == group)


def ends(edge: Edge) -> Iterator[str]:
    """Names of all nodes that an edge joins."""
    match edge:
        case Stream() | Table():
            yield from edge.writers
            yield from edge.readers
        case Board() | ActionLog():
            yield edge.writer
            yield from edge.readers
        case Ask():
            yield from edge.askers
            if isinstance(edge.answer, RemoteAnswer):
                yield from edge.answer.nodes
        case Record():
            yield edge.owner
            yield from edge.readers
        case Rounds():
            yield from edge.members


def file_of_table(program: Program) -> tuple[Path, Rings] | None:
    """The file that a program's table lies in, and what is in it; ``None`` if none does."""
    for edge in program.edges:
        if isinstance(edge, Table) and edge.file is not None:
            return edge.file, edge.rings
    return None
