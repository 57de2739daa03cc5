"""Draws a program as text: processes with their nodes, then edges with their ends, capacity and limits."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from penstock.program.graph import (
    ActionLog,
    Ask,
    Board,
    Edge,
    LocalAnswer,
    ProcessGroup,
    Program,
    Record,
    RemoteAnswer,
    Rounds,
    SharedArrays,
    SharedObject,
    Stream,
    Table,
)

__all__ = ["bytes_text", "draw"]

SHOWN = 3
"""A list of at most so many names is shown whole."""


def draw(program: Program) -> str:
    """The program as text, with a line for each process and each edge.

    Long lists of names are shortened. More than `SHOWN` processes or logs that differ only in their names share a line.
    """
    return "\n".join(("processes", *_processes(program), "edges", *_edges(program.edges)))


def _processes(program: Program) -> Iterator[str]:
    def alike(group: str) -> object:
        members = program.members(group)
        alone = len(members) == 1 and members[0].name == group
        return (members[0].kind, members[0].threads) if alone else group

    for _, run in groupby(program.groups, alike):
        groups = tuple(run)
        several = len(groups) > SHOWN
        for group in groups[:1] if several else groups:
            members = program.members(group)
            names = ", ".join(f"{node.name} ({node.kind})" for node in members)
            threads = max(node.threads for node in members)
            shown, nodes = (_names(groups), f"{members[0].kind} each") if several else (group, names)
            yield f"  {shown:<12} {nodes}" + (f", {threads} threads" if threads > 1 else "")


def _edges(edges: Sequence[Edge]) -> Iterator[str]:
    def alike(edge: Edge) -> object:
        return (edge.readers, edge.lanes, edge.capacity) if isinstance(edge, ActionLog) else edge.name

    for _, run in groupby(edges, alike):
        found = tuple(run)
        first = found[0]
        if isinstance(first, ActionLog) and len(found) > SHOWN:
            yield f"  {_log(first, tuple(edge.name for edge in found), 'one environment node each')}"
        else:
            yield from (f"  {_edge(edge)}" for edge in found)


def _log(log: ActionLog, names: tuple[str, ...], writers: str) -> str:
    ends = f"{writers} -> {_names(log.readers)}"
    return f"log    {_names(names):<12} {ends}: {log.lanes} lanes, {log.capacity} actions each"


def _edge(edge: Edge) -> str:
    match edge:
        case Stream():
            size = sum(spec.nbytes for spec in edge.arrays)
            ends = f"{_names(edge.writers)} -> {_names(edge.readers)}"
            seen = f", seen by {_names(edge.viewers)}" if edge.viewers else ""
            slots = f"{edge.slots} slots of {bytes_text(size)}"
            return f"stream {edge.name:<12} {ends}: {slots}, when full: {edge.when_full}{seen}"
        case Table():
            size = sum(spec.nbytes for spec in edge.arrays)
            ends = f"{_names(edge.writers)} -> {_names(edge.readers)}"
            rings = f"{edge.slots} slots of {bytes_text(size)} each, {edge.limiter}"
            where = "" if edge.file is None else f", in a file of {bytes_text(edge.rings.file_bytes)}"
            if edge.resident:
                where = ", each shard on the machine of its learner"
            return f"table  {edge.name:<12} {ends}: {rings}{where}"
        case Board():
            size = sum(spec.nbytes for spec in edge.arrays)
            lag = "any version" if edge.max_lag is None else f"at most {edge.max_lag} behind"
            return f"board  {edge.name:<12} {edge.writer} -> {_names(edge.readers)}: {bytes_text(size)}, {lag}"
        case Ask():
            return f"ask    {edge.name:<12} {_names(edge.askers)} <-> {edge.board}: {_answer(edge.answer)}"
        case Record():
            size = sum(spec.nbytes for spec in edge.arrays)
            return f"record {edge.name:<12} {edge.owner}: two buffers of {bytes_text(size)}"
        case Rounds():
            size = sum(spec.nbytes for spec in edge.state)
            return f"rounds {edge.name:<12} {_names(edge.members)}: a newcomer gets {bytes_text(size)}"
        case ProcessGroup():
            size = sum(spec.nbytes for spec in edge.state)
            return f"group  {edge.name:<12} {_names(edge.members)}: found at {edge.board}, each gets {bytes_text(size)}"
        case SharedArrays():
            size = sum(spec.nbytes for spec in edge.arrays)
            return f"shared {edge.name:<12} {_names(edge.members)}: {bytes_text(size)}, without locks"
        case SharedObject():
            return f"object {edge.name:<12} {_names(edge.nodes)}: in one process"
        case ActionLog():
            return _log(edge, (edge.name,), edge.writer)


def _answer(answer: LocalAnswer | RemoteAnswer) -> str:
    match answer:
        case LocalAnswer():
            return "answered in the process that asks"
        case RemoteAnswer():
            return f"answered by {_names(answer.nodes)}, in the slots of {_names(tuple(dict.fromkeys(answer.streams)))}"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= SHOWN else f"{names[0]} .. {names[-1]} ({len(names)})"


def bytes_text(count: int) -> str:
    """A number of bytes in the largest unit in which it is at least 1."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
