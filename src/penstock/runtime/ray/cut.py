"""Cuts a program at the edges that cross machines: streams and tables of rollouts, and boards of parameters.

- *Home* is the machine of the launcher. Its program is the whole program with one more node, the relay.
- A *host* is another machine. Its program has the environment nodes, and a relay in place of all other nodes.

Environment nodes are the same on both: which machine runs one may change while the run goes on.
"""

from collections.abc import Iterator
from dataclasses import replace

from penstock.program.check import check
from penstock.program.graph import (
    ActionLog,
    Ask,
    Board,
    Edge,
    LocalAnswer,
    NodeSpec,
    Program,
    Stream,
    Table,
)

__all__ = ["RELAY", "host_program", "in_lock_step", "movable", "parameters", "rollouts_of", "with_relay"]

RELAY = "relay"
"""Name of the relay, and of its placement group."""
_RELAY = NodeSpec(RELAY, "penstock.runtime.ray.relay:Relay", None, RELAY, silence_limit_s=120.0)
_AHEAD = 2
"""Slots of an environment node on a host, where nothing waits for a version: one is filled, one travels."""


def movable(program: Program) -> tuple[str, ...]:
    """The groups that another machine may run: one environment node each, which computes its actions itself."""
    local = {
        node
        for edge in program.edges
        if isinstance(edge, Ask) and isinstance(edge.answer, LocalAnswer)
        for node in edge.askers
    }
    return tuple(
        node.group
        for node in program.nodes
        if node.kind == "env" and node.name in local and len(program.members(node.group)) == 1
    )


def parameters(program: Program) -> Board:
    """The board that movable nodes read."""
    names = _movable_nodes(program)
    return next(edge for edge in program.edges if isinstance(edge, Board) and names & set(edge.readers))


def in_lock_step(program: Program) -> bool:
    """Whether environment nodes wait for each version of the parameters."""
    return parameters(program).max_lag is not None


def with_relay(program: Program) -> Program:
    """The program of home. The relay's bell rings with parameters, and with slots that come free."""
    board, nodes = parameters(program).name, _movable_nodes(program)

    def joined(edge: Edge) -> Edge:
        if isinstance(edge, Board) and edge.name == board:
            return replace(edge, readers=(*edge.readers, RELAY))
        # Each writer of a table has a ring of slots there, and the relay is none: it writes in the name of others.
        if isinstance(edge, Stream) and nodes & set(edge.writers):
            return replace(edge, writers=(*edge.writers, RELAY))
        return edge

    return check(replace(program, nodes=(*program.nodes, _RELAY), edges=tuple(map(joined, program.edges))))


def host_program(program: Program) -> Program:
    """The program of each host, with all environment nodes that it may ever run.

    Memory of nodes that it does not run is never touched, and costs nothing.
    """
    nodes = [node for node in program.nodes if node.group in movable(program)]
    names = tuple(node.name for node in nodes)
    board = parameters(program)
    slots = 1 if in_lock_step(program) else _AHEAD
    edges: list[Edge] = [replace(board, writer=RELAY, readers=names)]
    for edge in program.edges:
        match edge:
            case Stream() | Table() if set(names) & set(edge.writers):
                # A stream for each node: so none takes the slots of another.
                edges += [
                    Stream(rollouts_of(name), (name,), (RELAY,), edge.arrays, slots, "wait") for name in edge.writers
                ]
                role = edge.name
            case ActionLog() if edge.writer in names:
                edges.append(replace(edge, readers=(RELAY,)))
            case Ask() if set(names) & set(edge.askers):
                edges.append(replace(edge, askers=tuple(asker for asker in edge.askers if asker in names)))
    here = (replace(node, edges=(*node.edges, (role, rollouts_of(node.name)))) for node in nodes)
    return check(Program((*here, _RELAY), tuple(edges), ends_with=(RELAY,)))


def rollouts_of(node: str) -> str:
    """The stream of one environment node on a host."""
    return f"rollouts.{node}"


def _movable_nodes(program: Program) -> set[str]:
    return {node.name for node in _nodes(program)}


def _nodes(program: Program) -> Iterator[NodeSpec]:
    groups = set(movable(program))
    return (node for node in program.nodes if node.group in groups)
