"""The edges that cross machines because movable nodes read them, and whether machines have to compute the same bits."""

from penstock.cluster.movable import movable_envs, movable_nodes, nodes_of
from penstock.program.graph import Board, ProcessGroup, Program, Stream, Table

__all__ = ["POLICY", "carried", "in_lock_step", "same_bits", "sampled", "viewed", "watched"]

POLICY = "policy"
"""The board that says with which parameters to act."""


def carried(program: Program) -> tuple[Board, ...]:
    """The boards that movable nodes read."""
    names = movable_nodes(program)
    return tuple(edge for edge in program.edges if isinstance(edge, Board) and names & set(edge.readers))


def viewed(program: Program) -> Stream | None:
    """The stream into whose slots movable learners look; ``None`` if there are none."""
    names = movable_nodes(program)
    streams = (edge for edge in program.edges if isinstance(edge, Stream) and names & set(edge.viewers))
    return next(streams, None)


def watched(program: Program) -> Stream | None:
    """The stream in which movable learners look for new slots by themselves; ``None`` if there are none."""
    stream = viewed(program)
    return stream if stream is not None and movable_nodes(program) & set(stream.woken) else None


def sampled(program: Program) -> Table | None:
    """The table that movable learners sample; ``None`` if there are none."""
    names = movable_nodes(program)
    tables = (edge for edge in program.edges if isinstance(edge, Table) and names & set(edge.readers))
    return next(tables, None)


def in_lock_step(program: Program) -> bool:
    """Whether environment nodes wait for each version of the parameters."""
    names = nodes_of(program, movable_envs(program))
    parameters = next(edge for edge in program.edges if isinstance(edge, Board) and names & set(edge.readers))
    return parameters.max_lag is not None


def same_bits(program: Program) -> str | None:
    """The reason why all machines must compute the same bits, with what to type if they do not; ``None``: no need."""
    if any(isinstance(edge, ProcessGroup) for edge in program.edges):
        return "learners on several machines would drift apart: take machines of one kind, or leave --learners out"
    if in_lock_step(program):
        return "in lock step the bits of a run would depend on the machine: give --sync_mode non_blocking"
    return None
