"""Checks that a program is complete: names, ends, capacities and placement. Nothing has to be started."""

from penstock.errors import PenstockError
from penstock.memory.rounds import MOST_MEMBERS
from penstock.program.graph import (
    ActionLog,
    Ask,
    Board,
    Edge,
    ProcessGroup,
    Program,
    Record,
    RemoteAnswer,
    Rounds,
    SharedArrays,
    SharedObject,
    Stream,
    Table,
    ends,
)

__all__ = ["ProgramError", "check"]


class ProgramError(PenstockError):
    """A program that cannot run. Topologies build programs, so this is a defect of a topology, not of the user."""


def check(program: Program) -> Program:
    """Return ``program`` unchanged if it is complete.

    Raises:
        ProgramError: it is not. The text lists every fault.
    """
    faults = [*_names(program), *(fault for edge in program.edges for fault in _edge(program, edge))]
    faults += [f"the run ends with unknown node {name}" for name in program.ends_with if name not in _known(program)]
    if not program.ends_with:
        faults.append("no node ends the run")
    linked = {end for edge in program.edges for end in ends(edge)}
    faults += [f"node {node.name} has no edge" for node in program.nodes if node.name not in linked]
    known = {edge.name for edge in program.edges}
    faults += [
        f"edge {edge} plays {role} for node {node.name}, but there is no such edge"
        for node in program.nodes
        for role, edge in node.edges
        if edge not in known
    ]
    if faults:
        raise ProgramError("; ".join(faults))
    return program


def _names(program: Program) -> list[str]:
    nodes = [node.name for node in program.nodes]
    edges = [edge.name for edge in program.edges]
    return [
        f"{what} {name} appears twice"
        for what, names in (("node", nodes), ("edge", edges))
        for name in sorted({name for name in names if names.count(name) > 1})
    ]


def _known(program: Program) -> set[str]:
    return {node.name for node in program.nodes}


def _edge(program: Program, edge: Edge) -> list[str]:
    known = _known(program)
    faults = [f"edge {edge.name} ends at unknown node {end}" for end in ends(edge) if end not in known]
    if isinstance(edge, Stream):
        if not edge.writers or not edge.readers:
            faults.append(f"stream {edge.name} needs a writer and a reader")
        if edge.slots < 1:
            faults.append(f"stream {edge.name} needs at least one slot")
    if isinstance(edge, Table):
        if not edge.writers or not edge.readers:
            faults.append(f"table {edge.name} needs a writer and a reader")
        if edge.slots < 2:
            faults.append(f"table {edge.name} needs at least two slots for each writer")
        if edge.shards < 1 or len(edge.writers) % edge.shards:
            faults.append(
                f"{edge.shards} shards do not share the {len(edge.writers)} writers of table {edge.name} equally"
            )
    if isinstance(edge, Board) and edge.max_lag is not None and edge.max_lag < 0:
        faults.append(f"board {edge.name} has a negative lag")
    faults += _ask(program, edge) if isinstance(edge, Ask) else []
    faults += _process_group(program, edge) if isinstance(edge, ProcessGroup) else []
    faults += _shared_object(program, edge) if isinstance(edge, SharedObject) else []
    if isinstance(edge, ActionLog) and (edge.lanes < 1 or edge.capacity < 1):
        faults.append(f"action log {edge.name} needs at least one lane and one action")
    if isinstance(edge, Rounds | ProcessGroup) and not 2 <= len(edge.members) <= MOST_MEMBERS:
        faults.append(f"rounds {edge.name} need 2 to {MOST_MEMBERS} members, not {len(edge.members)}")
    if isinstance(edge, Stream | Table | Board | Record | SharedArrays):
        fields = [spec.name for spec in edge.arrays]
        faults += [
            f"edge {edge.name} has field {name} twice" for name in sorted({n for n in fields if fields.count(n) > 1})
        ]
    return faults


def _process_group(program: Program, group: ProcessGroup) -> list[str]:
    """Check the board by which members of a process group find each other: the first writes it, all others read it."""
    for edge in program.edges:
        if isinstance(edge, Board) and edge.name == group.board:
            faults = [
                f"{member} is in {group.name} and does not read {group.board}"
                for member in group.members[1:]
                if member not in edge.readers
            ]
            if edge.writer not in group.members[:1]:
                faults.append(f"{edge.writer} writes {group.board}, but only the first member of {group.name} may")
            return faults
    return [f"{group.name} is found at board {group.board}, but there is no such board"]


def _shared_object(program: Program, shared: SharedObject) -> list[str]:
    groups = sorted({node.group for node in program.nodes if node.name in shared.nodes})
    return (
        [f"nodes that share {shared.name} must be in one process, but are in {', '.join(groups)}"]
        if len(groups) > 1
        else []
    )


def _ask(program: Program, ask: Ask) -> list[str]:
    boards = {edge.name: edge for edge in program.edges if isinstance(edge, Board)}
    streams = {edge.name: edge for edge in program.edges if isinstance(edge, Stream | Table)}
    if ask.board not in boards:
        return [f"{ask.name} asks the policy on board {ask.board}, but there is no such board"]
    remote = ask.answer
    if not isinstance(remote, RemoteAnswer):
        return []
    unread = [node for node in remote.nodes if node not in boards[ask.board].readers]
    faults = [f"{node} answers {ask.name} and does not read {ask.board}" for node in unread]
    if not 1 <= len(remote.nodes) <= len(ask.askers):
        faults.append(f"{len(remote.nodes)} nodes answer the {len(ask.askers)} askers of {ask.name}")
    if len(remote.streams) != len(ask.askers):
        return [*faults, f"{ask.name} has {len(ask.askers)} askers, and names {len(remote.streams)} streams of theirs"]
    return faults + [
        f"{asker} asks about rows of {stream}, which it does not write"
        for asker, stream in zip(ask.askers, remote.streams, strict=True)
        if stream not in streams or asker not in streams[stream].writers
    ]
