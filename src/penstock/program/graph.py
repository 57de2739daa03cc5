"""A program: the nodes of a run and the edges between them, as plain data. It knows no process and no torch.

Kinds of edge:

- A *stream* has slots that go from writer to reader and back.
- A *table* has slots that are overwritten in order and read at random.
- On a *board* the latest value wins.
- An *ask* edge carries questions to a policy, and its answers.
- In *rounds* several learners average arrays. A *process group* is rounds of learners on several machines.
- *Shared arrays* are changed in place by several nodes, without locks.
- A *record* holds what a learner has committed. Its successor reads it.
- A *shared object* is an object of Python that several nodes of one process use.
- An *action log* holds what restores the episodes of an environment node. Its successor reads it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
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
    "ProcessGroup",
    "Program",
    "Record",
    "RemoteAnswer",
    "Rounds",
    "SharedArrays",
    "SharedObject",
    "Stream",
    "Table",
    "asked_of_nodes",
    "ends",
    "file_of_table",
]


@dataclass(frozen=True)
class Minibatch:
    """The memory that a node needs at least for its minibatches: libraries need some of their own besides."""

    size: int
    """Rows of one minibatch, as configured."""
    nbytes: int
    """Bytes of everything that the node holds for one minibatch at a time."""


@dataclass(frozen=True)
class NodeSpec:
    """A node: its kind, its settings (a frozen dataclass of plain data) and the placement group that runs it.

    ``kind`` is a name of the registry, or ``module:attribute``. Nodes of one group share a process. ``threads`` limits
    the threads of numerical libraries there.
    """

    name: str
    kind: str
    settings: Any
    group: str
    threads: int = 1
    silence_limit_s: float = 60.0
    """Seconds without a sign of life after which the node counts as hung. Announced long work is not silence."""
    steps_envs: bool = False
    """It steps environments, and ``silence_limit_s`` is the limit of one step."""
    niceness: int = 0
    """Priority of its process, as ``nice`` counts: a higher number yields to others. A group uses its lowest number."""
    core: int | None = None
    """Index of the core for its process, among the cores that it may use, modulo their number. ``None``: any core."""
    gpu: int | None = None
    """Index of the GPU for its process, among those of its machine, modulo their number. ``None``: the first one. A
    device that names its own GPU, as ``cuda:1``, is not changed by it."""
    minibatch: Minibatch | None = None
    """Memory for minibatches, if the node learns from any."""
    imports: tuple[str, ...] = ()
    """Modules that it needs and that take long to import. On Linux, a template imports them once for all processes that
    name the same. Modules of a user are never among them."""
    edges: tuple[tuple[str, str], ...] = ()
    """``(role, name of an edge)``: a node asks for its ports by role (``rollouts``, ``policy``). A role that is missing
    here stands for the edge of that name. So a program may hold several policies, each with edges of its own."""


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
    viewers: tuple[str, ...] = ()
    """Nodes that read slots that are not freed yet. They take and free none."""
    woken: tuple[str, ...] = ()
    """The viewers whose bells ring when a slot is pushed. The reader wakes the others, or they share the writer's
    process."""


@dataclass(frozen=True)
class Table:
    """Slots that writers fill in order, over and over. Readers read them in any order."""

    name: str
    writers: tuple[str, ...]
    """Each writer has its own ring of slots."""
    readers: tuple[str, ...]
    arrays: tuple[ArraySpec, ...]
    """The fields of one slot."""
    slots: int
    """Number of slots of each writer."""
    limiter: RateLimiter
    """Makes writers wait while too few gradient steps are done. Compares the counters ``collected`` and ``paid``."""
    ranking: Ranking | None = None
    """Rows are sampled by priorities, which a sum tree holds. ``None``: all rows are equally likely."""
    file: Path | None = None
    """The table and its trees lie in this file, which outlives the run. ``None``: they lie in the run's segment."""
    shards: int = 1
    """Number of shards. They share the writers equally, in order. Each shard has priorities and a limit of its own."""
    resident: bool = False
    """The rows of a shard stay on the machine of its reader alone. ``False``: the launcher's machine has all rows."""

    @property
    def rings(self) -> Rings:
        """The arrays, rings and tree that the table consists of."""
        return Rings(self.arrays, len(self.writers), self.slots, self.ranking is not None, self.shards)


@dataclass(frozen=True)
class Board:
    """The latest value wins. A reader never waits for the writer to finish."""

    name: str
    writer: str
    readers: tuple[str, ...]
    arrays: tuple[ArraySpec, ...]
    max_lag: int | None = None
    """A reader waits if the latest version is more than this behind its own count of rollouts. ``None``: it never
    waits."""


@dataclass(frozen=True)
class LocalAnswer:
    """The asker's own process answers, before ``ask`` returns."""

    kind: str
    """Registry name of the class that answers."""
    settings: Any


@dataclass(frozen=True)
class RemoteAnswer:
    """Nodes answer in place: they write into the slots that hold the rows in question."""

    nodes: tuple[str, ...]
    """The answering nodes. Each rollout of an asker is answered by the one with the shortest queue at its beginning."""
    streams: tuple[str, ...]
    """For each asker, the name of the stream or table with these slots. The asker writes it."""
    action: ArraySpec
    """One asker's actions in the environment's own units, ``[lanes, ...]``."""
    stacks: tuple[ArraySpec, ...] = ()
    """Stacked observations that an asker sends with its question, ``[lanes, ...]``: rows hold only the newest frame."""
    carry: tuple[ArraySpec, ...] = ()
    """The carry of an asker's lanes, ``[lanes, ...]``."""


@dataclass(frozen=True)
class Ask:
    """Nodes ask a policy for actions. ``answer`` says where the policy runs."""

    name: str
    askers: tuple[str, ...]
    board: str
    """Name of the board with the policy's published record."""
    answer: LocalAnswer | RemoteAnswer


@dataclass(frozen=True)
class Record:
    """What a node has committed: two buffers, of which one is current. The node's next life continues from there."""

    name: str
    owner: str
    arrays: tuple[ArraySpec, ...]
    readers: tuple[str, ...] = ()
    """Nodes whose next lives find their own position there."""


@dataclass(frozen=True)
class ActionLog:
    """For each lane of a node, what restores its episode: number, actions, snapshots, a hash of the observations."""

    name: str
    writer: str
    readers: tuple[str, ...]
    lanes: int
    fields: tuple[str, ...]
    """The observation fields to hash."""
    action: ArraySpec
    capacity: int
    snapshot_bytes: int = 0
    """Bytes that a snapshot of a lane's environment may have. 0: the log keeps none."""


@dataclass(frozen=True)
class Rounds:
    """Rounds of several nodes: each brings arrays, all get the same mean. A round does not wait for dead members."""

    name: str
    members: tuple[str, ...]
    """The first round waits for all of them."""
    state: tuple[ArraySpec, ...]
    """The state that a newcomer gets. Arrays of a round have at most as many elements as its float32 arrays."""


@dataclass(frozen=True)
class ProcessGroup:
    """Rounds of nodes on several machines. If one of them is lost, all meet anew, with the state of the first one."""

    name: str
    members: tuple[str, ...]
    """They only meet when all of them are there. The first one, the keeper, admits the others."""
    state: tuple[ArraySpec, ...]
    """The state that each begins with. Arrays of a round have at most as many elements as its float32 arrays."""
    address: str
    """Address of the keeper's machine, as the others reach it."""
    board: str
    """Name of the board on which the keeper says where the others find it."""
    device: str = "cpu"
    """Device on which each member computes. NCCL joins GPUs; gloo joins CPUs, and members that share a GPU."""


@dataclass(frozen=True)
class SharedArrays:
    """Arrays that several nodes read and write in place, without locks. A reader may see half of a change."""

    name: str
    members: tuple[str, ...]
    arrays: tuple[ArraySpec, ...]


@dataclass(frozen=True)
class SharedObject:
    """Nodes of one placement group share an object in their process. Nothing of it is in shared memory."""

    name: str
    nodes: tuple[str, ...]


Edge: TypeAlias = (
    Stream | Table | Board | Ask | Record | ActionLog | Rounds | ProcessGroup | SharedArrays | SharedObject
)


@dataclass(frozen=True)
class Program:
    """A graph of nodes joined by edges."""

    nodes: tuple[NodeSpec, ...]
    edges: tuple[Edge, ...]
    ends_with: tuple[str, ...] = ()
    """The run ends once these nodes have finished."""
    # Files of the run.
    trace: Path | None = None
    """The folder for the spans of all nodes. ``None``: no spans are recorded."""
    folder: Path | None = None
    """The run folder: what processes log is added to its log. ``None``: it is kept nowhere."""
    deaths: Path | None = None
    """The file for tracebacks and stacks of processes that are started again."""
    # When the run gives up.
    max_restarts: int = 0
    """Most restarts of a process without progress in between. 0: its death ends the run."""
    stall_limit_s: float = math.inf
    """Seconds without progress after which a run ends."""
    # What a cluster has to know.
    address: str | None = None
    """The cluster that runs the program, for a runtime that needs one. ``None``: the runtime finds or starts one."""
    modules: tuple[str, ...] = ()
    """Top-level modules that the user has named. A cluster has to bring along those that are not installed."""
    demands: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Kind of node (``env``, ``learner``) -> resource -> amount that each such node asks the cluster for."""
    min_workers: int | None = None
    """Number of environment nodes that must have room for what they ask for; ``None``: all."""

    def node(self, name: str) -> NodeSpec:
        """The node with this name.

        Raises:
            KeyError: there is no such node.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def with_node(self, node: NodeSpec) -> "Program":
        """A copy of this program in which ``node`` replaces the node with the same name."""
        return replace(self, nodes=tuple(node if other.name == node.name else other for other in self.nodes))

    def edge(self, name: str) -> Edge:
        """The edge with this name.

        Raises:
            KeyError: there is no such edge.
        """
        for edge in self.edges:
            if edge.name == name:
                return edge
        raise KeyError(name)

    @property
    def groups(self) -> tuple[str, ...]:
        """Placement groups in order of first appearance. The local runtime starts one process for each."""
        return tuple(dict.fromkeys(node.group for node in self.nodes))

    def members(self, group: str) -> tuple[NodeSpec, ...]:
        """The nodes of a group, in order."""
        return tuple(node for node in self.nodes if node.group == group)


def ends(edge: Edge) -> Iterator[str]:
    """Names of all nodes that an edge joins."""
    match edge:
        case Stream():
            yield from edge.writers
            yield from edge.readers
            yield from edge.viewers
        case Table():
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
        case Rounds() | ProcessGroup() | SharedArrays():
            yield from edge.members
        case SharedObject():
            yield from edge.nodes


def asked_of_nodes(edges: Iterable[Edge]) -> tuple[Ask, ...]:
    """The ask edges that nodes answer."""
    return tuple(edge for edge in edges if isinstance(edge, Ask) and isinstance(edge.answer, RemoteAnswer))


def file_of_table(program: Program) -> tuple[Path, Rings] | None:
    """The file of a program's table, and the table's rings. ``None`` if no table lies in a file."""
    for edge in program.edges:
        if isinstance(edge, Table) and edge.file is not None:
            return edge.file, edge.rings
    return None
