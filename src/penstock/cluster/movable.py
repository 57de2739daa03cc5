"""Movable nodes: the environment nodes and learners of a program that another machine may run.

Policy nodes do not move: `penstock.cluster.seats` has those of each machine.
"""

from collections.abc import Collection

from penstock.nodes.learner import ReplicaSettings, StepSettings
from penstock.nodes.learner.gradient_slot import RANKED
from penstock.program.graph import Ask, NodeSpec, ProcessGroup, Program, SharedArrays, Stream, Table

__all__ = [
    "handing_on",
    "movable_envs",
    "movable_learners",
    "movable_nodes",
    "needs_demonstrations",
    "nodes_of",
    "rankers",
    "ranking",
]

_HANDING_ON = {"batch_follower", "stream_follower", "follower"}
"""Kinds of learners that hand gradients on."""


def movable_nodes(program: Program) -> set[str]:
    """The nodes that another machine may run: environment nodes and learners."""
    return nodes_of(program, (*movable_envs(program), *movable_learners(program)))


def movable_envs(program: Program) -> tuple[str, ...]:
    """The groups of environment nodes that another machine may run: one node each."""
    asking = {node for edge in program.edges if isinstance(edge, Ask) for node in edge.askers}
    return tuple(
        node.group
        for node in program.nodes
        if node.kind == "env" and node.name in asking and len(program.members(node.group)) == 1
    )


def movable_learners(program: Program) -> tuple[str, ...]:
    """The groups of learners that another machine may run. The node that keeps the state stays at home."""
    return (*_meeting(program), *(program.node(name).group for name in handing_on(program)))


def _meeting(program: Program) -> tuple[str, ...]:
    """The groups of learners that meet the first one in a process group."""
    return tuple(
        program.node(member).group
        for edge in program.edges
        if isinstance(edge, ProcessGroup)
        for member in edge.members[1:]
    )


def handing_on(program: Program) -> tuple[str, ...]:
    """The learners that hand gradients on and that another machine may run: they change no memory that others share.

    Those that rank the rows of a table may move if their gradients take the new priorities home: see
    `penstock.cluster.apart`. Those that need demonstrations stay where these lie.
    """
    sharing = {member for edge in program.edges if isinstance(edge, SharedArrays) for member in edge.members}
    telling = {
        writer for edge in program.edges if isinstance(edge, Stream) and _tells_ranks(edge) for writer in edge.writers
    }
    sharing |= rankers(program).keys() - telling
    return tuple(
        node.name
        for node in program.nodes
        if node.kind in _HANDING_ON
        and node.name not in sharing
        and not needs_demonstrations(node)
        and len(program.members(node.group)) == 1
    )


def needs_demonstrations(node: NodeSpec) -> bool:
    """Whether a learner needs demonstrations, which lie at home."""
    steps = node.settings.steps if isinstance(node.settings, ReplicaSettings) else node.settings
    return isinstance(steps, StepSettings) and bool(steps.demonstrations)


def rankers(program: Program) -> dict[str, StepSettings]:
    """The learners that hand gradients on and rank the rows of a table, and how they take their steps."""
    readers = {
        reader
        for edge in program.edges
        if isinstance(edge, Table) and edge.ranking is not None
        for reader in edge.readers
    }
    return {
        node.name: node.settings
        for node in program.nodes
        if node.name in readers and node.kind in _HANDING_ON and isinstance(node.settings, StepSettings)
    }


def _tells_ranks(edge: Stream) -> bool:
    """Whether slots of a stream have room for the priorities that a learner has given to rows."""
    return RANKED.keys() <= {spec.name for spec in edge.arrays}


def ranking(program: Program) -> tuple[str, ...]:
    """The groups of movable learners that rank the rows of a table: at home the table itself, on a host its copy."""
    ranked = rankers(program)
    return tuple(program.node(name).group for name in handing_on(program) if name in ranked)


def nodes_of(program: Program, groups: Collection[str]) -> set[str]:
    """The nodes of these groups."""
    return {node.name for node in program.nodes if node.group in groups}
