"""What a dead node held, taken back, so that its next life and everybody else can go on.

Only after its process was killed *and* reaped: nothing protects a payload from a writer that wakes up late. Starts
nothing.
"""

from penstock.program.graph import Ask, Board, Program, Record, RemoteAnswer, Rounds
from penstock.wiring.edges import Wiring
from penstock.wiring.ledger import ledger

__all__ = ["recover"]


def recover(wiring: Wiring, program: Program, group: str, incarnations: dict[str, int]) -> bool:
    """Take back what the nodes of a dead process held, and wake everybody. May be repeated.

    Args:
        wiring: the structures.
        program: of the run.
        group: the placement group that the process ran.
        incarnations: node -> its life that has ended.

    Returns:
        False while somebody who lives still writes into what a dead node held: then call it again.
    """
    # An answerer first: what it had begun to answer is asked again, and then its askers' questions are nobody's.
    for node, owner in incarnations.items():
        for edge in _asked(program):
            wiring.questions(edge).recover_answerer(node, owner)
    for node, owner in incarnations.items():
        for edge in _asked(program):
            if node in edge.askers and not wiring.questions(edge).recover_asker(node, owner):
                return False
    for _, stream in wiring.streams():
        for owner in incarnations.values():
            stream.recover(owner)
    _count_redone(wiring, incarnations)
    _drop_written(wiring, program, incarnations)
    for tree in wiring.trees():
        tree.recover()
    wiring.bells.recover(wiring.bell_of(group))
    wiring.bells.ring_all()
    return True


def _drop_written(wiring: Wiring, program: Program, incarnations: dict[str, int]) -> None:
    """What the dead were writing as a whole is dropped; nobody waits for what they would have brought."""
    for edge in program.edges:
        if isinstance(edge, Board) and edge.writer in incarnations:
            wiring.board(edge.name).recover()
        if isinstance(edge, Record) and edge.owner in incarnations:
            wiring.record(edge.name).recover()
        if isinstance(edge, Rounds):
            for member in set(edge.members) & set(incarnations):
                wiring.rounds(edge.name, member).remove()


def _count_redone(wiring: Wiring, incarnations: dict[str, int]) -> None:
    """Enter what the dead were learning from. Here, where each death is dealt with once and by one who lives."""
    found = ledger(wiring)
    for node, owner in incarnations.items():
        rows = 0 if found is None else found.returned(owner)
        if rows:
            wiring.counters.add(node, "redone", rows)


def _asked(program: Program) -> list[Ask]:
    return [edge for edge in program.edges if isinstance(edge, Ask) and isinstance(edge.answer, RemoteAnswer)]
