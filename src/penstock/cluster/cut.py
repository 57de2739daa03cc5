"""Cuts a program at the edges that cross machines: streams and tables of rollouts, boards, and rounds of learners.

- *Home* is the machine of the launcher. Its program is the whole program with one more node, the relay.
- A *host* is another machine. Its program has the nodes that may move, and a relay in place of all other nodes.

Policy nodes do not move. Each machine that runs environment nodes has policy nodes of its own, which answer these.

Nodes are the same on both: which machine runs one may change while the run goes on.
"""

from dataclasses import replace

from penstock.cluster.crossing import carried, in_lock_step
from penstock.cluster.movable import movable_envs, movable_nodes, nodes_of
from penstock.cluster.seats import answerers, names_on_hosts
from penstock.program.check import check
from penstock.program.graph import (
    ActionLog,
    Ask,
    Board,
    Edge,
    NodeSpec,
    ProcessGroup,
    Program,
    RemoteAnswer,
    Stream,
    Table,
)

__all__ = ["RELAY", "host_program", "one_slot_each", "own_stream", "with_relay"]

RELAY = "relay"
"""Name of the relay, and of its placement group."""
_RELAY = NodeSpec(RELAY, "penstock.cluster.relay:Relay", None, RELAY, silence_limit_s=120.0)
_AHEAD = 2
"""Slots of a node's stream on a host: the node fills one while the other travels home. Two kinds of node have only one
slot: nodes in lock step, and nodes that have only one slot at home."""


def with_relay(program: Program) -> Program:
    """The program of home. The relay's bell rings with publications, and with slots that come free.

    It has the policy nodes of all hosts, too. They answer nobody at home, and read a board that is carried to them.
    """
    boards, nodes = {board.name for board in carried(program)}, movable_nodes(program)
    hosted = names_on_hosts(program)

    def joined(edge: Edge) -> Edge:
        if isinstance(edge, Board) and edge.name in boards:
            answering = (name for name, there in hosted.items() if there in edge.readers)
            return replace(edge, readers=(*edge.readers, *answering, RELAY))
        # Not in a table: each of its writers has a ring of slots, and the relay writes in the name of these.
        if isinstance(edge, Stream) and nodes & set(edge.writers):
            edge = replace(edge, writers=(*edge.writers, RELAY))
        if isinstance(edge, Stream) and nodes & set(edge.woken):
            edge = replace(edge, viewers=(*edge.viewers, RELAY), woken=(*edge.woken, RELAY))
        return edge

    more = (replace(program.node(there), name=name, group=name) for name, there in hosted.items())
    return check(replace(program, nodes=(*program.nodes, *more, _RELAY), edges=tuple(map(joined, program.edges))))


def host_program(program: Program) -> Program:
    """The program of each host, with all nodes that it may ever run.

    Memory of nodes that it does not run is never touched, and costs nothing.
    """
    names = movable_nodes(program) | set(answerers(program))
    in_step = nodes_of(program, movable_envs(program)) if in_lock_step(program) else set()
    edges: list[Edge] = []
    roles: dict[str, tuple[tuple[str, str], ...]] = {}
    for edge in program.edges:
        match edge:
            case Board() if names & set(edge.readers):
                edges.append(replace(edge, writer=RELAY, readers=_among(edge.readers, names)))
            case Stream() | Table() if names & set(edge.writers):
                # A stream for each node: so none takes the slots of another.
                for name in _among(edge.writers, names):
                    slots = 1 if name in in_step or one_slot_each(edge) else _AHEAD
                    edges.append(Stream(own_stream(edge.name, name), (name,), (RELAY,), edge.arrays, slots, "wait"))
                    roles[name] = ((edge.name, own_stream(edge.name, name)),)
                if isinstance(edge, Stream) and (viewers := _among(edge.viewers, names)):
                    edges.append(_shown(edge, viewers))
                if isinstance(edge, Table) and (readers := _among(edge.readers, names)):
                    # The relay fills the rings of the shards whose learners are here, in the name of their writers.
                    edges.append(replace(edge, readers=readers, file=None))
            case ActionLog() if edge.writer in names:
                edges.append(replace(edge, readers=(RELAY,)))
            case Ask() if names & set(edge.askers):
                edges.append(_asked(edge, _among(edge.askers, names)))
            case ProcessGroup():
                edges.append(replace(edge, members=(RELAY, *edge.members[1:])))
    nodes = (node for node in program.nodes if node.name in names)
    here = (replace(node, edges=(*node.edges, *roles.get(node.name, ()))) for node in nodes)
    return check(Program((*here, _RELAY), tuple(edges), ends_with=(RELAY,), demands=program.demands))


def one_slot_each(edge: Edge) -> bool:
    """Whether each writer of a stream has one slot of it: few versions may pass until its content is learned from."""
    return isinstance(edge, Stream) and edge.slots <= len(set(edge.writers) - {RELAY})


def own_stream(edge: str, node: str) -> str:
    """The name of a node's own stream on a host. There it takes the place of ``edge``, the node's edge at home."""
    return f"{edge}.{node}"


def _asked(edge: Ask, askers: tuple[str, ...]) -> Ask:
    """The ask edge of a host, with these askers: their rows are in streams of their own there."""
    if isinstance(edge.answer, RemoteAnswer):
        at_home = dict(zip(edge.askers, edge.answer.streams, strict=True))
        streams = tuple(own_stream(at_home[asker], asker) for asker in askers)
        return replace(edge, askers=askers, answer=replace(edge.answer, streams=streams))
    return replace(edge, askers=askers)


def _shown(edge: Stream, viewers: tuple[str, ...]) -> Stream:
    """The stream with the rollouts into which learners of a host look. The relay writes it."""
    woken = _among(edge.woken, set(viewers))
    # Without ``woken``, a board names slots: each rollout lies in the slot that it has at home. As many slots suffice.
    # With ``woken``, a slot is free later than at home, so twice as many slots are needed:
    # 1. Home frees a slot, and fills it anew.
    # 2. The parameters that were learned from the old rollout arrive here. Only now its slot is free here.
    slots = 2 * edge.slots if woken else edge.slots
    return replace(edge, writers=(RELAY,), readers=(RELAY,), viewers=viewers, woken=woken, slots=slots)


def _among(names: tuple[str, ...], wanted: set[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in wanted)
