"""Takes back what a dead node held, so that its next life and all other nodes can go on.

Call it only after the process was killed *and* reaped: nothing protects a payload from a writer that wakes up late.
Starts no process.
"""

from penstock.program.graph import Board, Program, Record, Rounds, asked_of_nodes
from penstock.wiring.edges import Wiring
from penstock.wiring.ledger import ledger

__all__ = ["recover"]


def recover(wiring: Wiring, program: Program, group: str, lives: dict[str, int]) -> bool:
    """Take back what the nodes of a dead process held, and wake all processes. May be repeated.

    Args:
        wiring: the structures of the run.
        program: of the run.
        group: the placement group that the process ran.
        lives: node -> its life that has ended.

    Returns:
        False while a living node still writes into what a dead node held. Then call it again.
    """
    # The order matters:
    # 1. Dead answerers: the questions that they had begun to answer are asked again.
    # 2. Dead askers: no dead answerer holds their questions any more, so these can be withdrawn.
    for node, owner in lives.items():
        for edge in asked_of_nodes(program.edges):
            wiring.questions(edge).recover_answerer(node, owner)
    for node, owner in lives.items():
        for edge in asked_of_nodes(program.edges):
            if node in edge.askers and not wiring.questions(edge).recover_asker(node, owner):
                return False
    for _, stream in wiring.streams():
        for owner in lives.values():
            stream.recover(owner)
    _count_redone(wiring, lives)
    _drop_written(wiring, program, lives)
    for tree in wiring.all_trees():
        tree.recover()
    wiring.bells.recover(wiring.bell_of(group))
    wiring.bells.ring_all()
    return True


def _drop_written(wiring: Wiring, program: Program, lives: dict[str, int]) -> None:
    """Drop what the dead nodes had half written to boards and records, and let rounds go on without them."""
    for edge in program.edges:
        if isinstance(edge, Board) and edge.writer in lives:
            wiring.board(edge.name).recover()
        if isinstance(edge, Record) and edge.owner in lives:
            wiring.record(edge.name).recover()
        if isinstance(edge, Rounds):
            for member in set(edge.members) & set(lives):
                wiring.rounds(edge.name, member).remove()


def _count_redone(wiring: Wiring, lives: dict[str, int]) -> None:
    """Count the rows that the dead nodes were learning from: others learn from them again.

    The launcher counts them, because it handles each death once.
    """
    found = ledger(wiring)
    for node, owner in lives.items():
        # Slots that a dead writer has pushed name it as well, and nobody was learning from them.
        if found is not None and node in found.readers and (rows := found.returned(owner)):
            wiring.counters.add(node, "redone", rows)
