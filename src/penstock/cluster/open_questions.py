"""Questions on a host that a dead node leaves open: those of an environment node, and those to a policy node."""

from penstock.cluster.messages import Task
from penstock.program.graph import Program, asked_of_nodes
from penstock.wiring.edges import Wiring

__all__ = ["OpenQuestions"]


class OpenQuestions:
    """The questions of the environment nodes of a host to its policy nodes.

    Args:
        program: of the host.
        wiring: of the host.
    """

    def __init__(self, program: Program, wiring: Wiring) -> None:
        self._questions = [(edge.askers, wiring.questions(edge)) for edge in asked_of_nodes(program.edges)]
        self._asked_last: dict[str, int] = {}
        """Environment node -> its dead life, of which a policy node may still be answering the last question."""

    def drop(self, task: Task) -> None:
        """Ask anew what a dead policy node was answering. Withdraw the question of a dead environment node."""
        name = task.node.name
        for askers, questions in self._questions:
            questions.recover_answerer(name, task.life)
            if name in askers:
                # A life that was not started yet, because of the question of the one before, has asked nothing itself.
                self._asked_last.setdefault(name, task.life)
        self.withdrawn(name)

    def withdrawn(self, name: str) -> bool:
        """Whether the last question of a dead environment node is withdrawn or answered. If not, call it again.

        A policy node that dies meanwhile is started again by home, and its question is then asked anew.
        """
        life = self._asked_last.get(name)
        if life is None:
            return True
        open_ones = [one for askers, one in self._questions if name in askers and not one.recover_asker(name, life)]
        if not open_ones:
            del self._asked_last[name]
        return not open_ones
