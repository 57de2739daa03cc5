"""Changes a program so that its learners may run on other machines. Does not say on which ones."""

from dataclasses import replace

from penstock.cluster.movable import needs_demonstrations, rankers
from penstock.errors import PenstockError
from penstock.nodes.learner import LearnerSettings, ReplayLearnerSettings, ReplicaSettings
from penstock.nodes.learner.gradient_slot import ranked_specs
from penstock.program.check import check
from penstock.program.graph import Board, Edge, NodeSpec, ProcessGroup, Program, Rounds, Stream
from penstock.types import ArraySpec

__all__ = ["apart"]

_TEAM = "team"
"""The board on which the keeper says where the other learners find it."""


def apart(program: Program, address: str) -> Program:
    """The program with learners that may run on other machines.

    - Those that share each batch or minibatch in rounds meet in a process group.
    - Those that hand gradients on and rank the rows of a table hand their new priorities on with the gradients.

    Demonstrations lie at home, so learners that need them stay there.

    Args:
        program: as the topology built it.
        address: of home, as other machines reach it.
    """
    replicas = {
        node.name
        for node in program.nodes
        if node.kind in {"stream_replica", "replica"} and not needs_demonstrations(node)
    }
    ranked = rankers(program)
    edges: list[Edge] = []
    for edge in program.edges:
        if isinstance(edge, Stream) and (writers := [name for name in edge.writers if name in ranked]):
            told = ranked_specs(ranked[writers[0]].sampled)
            edges.append(replace(edge, arrays=(*edge.arrays, *told)))
        elif isinstance(edge, Rounds) and replicas & set(edge.members):
            keeper, *others = edge.members
            edges += [
                ProcessGroup(edge.name, edge.members, edge.state, address, _TEAM, _device(program.node(keeper))),
                Board(_TEAM, keeper, tuple(others), (ArraySpec("port", (), "int64"),)),
            ]
        else:
            edges.append(edge)
    # The checkpoint of a resumed run lies at home. The first learner gives its state to all others.
    nodes = (
        replace(node, settings=replace(node.settings, checkpoint=None)) if node.name in replicas else node
        for node in program.nodes
    )
    return check(replace(program, nodes=tuple(map(_spread, nodes)) if replicas else program.nodes, edges=tuple(edges)))


def _device(keeper: NodeSpec) -> str:
    """The device of this learner, and so of those that meet it."""
    settings = keeper.settings
    if not isinstance(settings, LearnerSettings | ReplayLearnerSettings):
        raise PenstockError(f"{keeper.name} keeps no state")
    return settings.keeper.run.device


def _spread(node: NodeSpec) -> NodeSpec:
    """A learner from a table, told that others may be on other machines."""
    settings = node.settings
    if not isinstance(settings, ReplicaSettings | ReplayLearnerSettings):
        return node
    return replace(node, settings=replace(settings, steps=replace(settings.steps, spread=True)))
