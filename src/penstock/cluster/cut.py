"""Cuts a program at the edges that cross machines: streams and tables of rollouts, boards, and rounds of learners.

- *Home* is the machine of the launcher. Its program is the whole program with one more node, the relay.
- A *host* is another machine. Its program has the nodes that may move, and a relay in place of all other nodes.

Policy nodes do not move. Each machine that runs environment nodes has policy nodes of its own, which answer these.

Nodes are the same on both: which machine runs one may change while the run goes on.
"""

from dataclasses import replace

from penstock.errors import PenstockError
from penstock.nodes.learner import LearnerSettings, ReplayLearnerSettings, ReplicaSettings, StepSettings
from penstock.nodes.learner.gradient_slot import RANKED, ranked_specs
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
    Rounds,
    SharedArrays,
    Stream,
    Table,
)
from penstock.types import ArraySpec

__all__ = [
    "GOALS",
    "RELAY",
    "answerers",
    "apart",
    "carried",
    "handing_on",
    "host_program",
    "movable",
    "movable_learners",
    "names_on_hosts",
    "own_stream",
    "parameters",
    "ranking",
    "same_bits",
    "sampled",
    "seats",
    "viewed",
    "watched",
    "with_relay",
]

RELAY = "relay"
"""Name of the relay, and of its placement group."""
_RELAY = NodeSpec(RELAY, "penstock.cluster.relay:Relay", None, RELAY, silence_limit_s=120.0)
_AHEAD = 2
"""Slots of a node on a host, unless it waits for each version: one is filled, one travels."""
GOALS = "goals"
"""The board whose field ``slots`` says into which slots of a stream its readers look."""
_HANDING_ON = {"batch_follower", "stream_follower", "follower"}
"""Kinds of learners that hand gradients on."""
_TEAM = "team"
"""The board on which the keeper says where the other learners find it."""


def movable(program: Program) -> tuple[str, ...]:
    """The groups of environment nodes that another machine may run: one node each."""
    asking = {node for edge in program.edges if isinstance(edge, Ask) for node in edge.askers}
    return tuple(
        node.group
        for node in program.nodes
        if node.kind == "env" and node.name in asking and len(program.members(node.group)) == 1
    )


def answerers(program: Program) -> tuple[str, ...]:
    """The policy nodes that answer movable environment nodes; empty if these compute their own actions."""
    names = _movable_envs(program)
    return tuple(
        node
        for edge in program.edges
        if isinstance(edge, Ask) and isinstance(edge.answer, RemoteAnswer) and names & set(edge.askers)
        for node in edge.answer.nodes
    )


def seats(program: Program) -> tuple[tuple[str, ...], ...]:
    """The policy nodes of each machine, by their names at home: first those of home, then of hosts.

    There is a seat for each environment node, in case that all of them run on hosts, and each on another one.
    """
    names = answerers(program)
    if not names:
        return ()
    hosts = range(1, 1 + len(movable(program)))
    return (names, *(tuple(f"{name}.{seat}" for name in names) for seat in hosts))


def names_on_hosts(program: Program) -> dict[str, str]:
    """Policy node of a host, by its name at home -> its name there. On each host it has the name of one of home's."""
    names = answerers(program)
    return {name: there for seat in seats(program)[1:] for name, there in zip(seat, names, strict=True)}


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

    Those that rank the rows of a table may move if their gradients take the new priorities home (`apart`). Those that
    need demonstrations stay where these lie.
    """
    sharing = {member for edge in program.edges if isinstance(edge, SharedArrays) for member in edge.members}
    telling = {
        writer for edge in program.edges if isinstance(edge, Stream) and _tells_ranks(edge) for writer in edge.writers
    }
    sharing |= _ranking(program).keys() - telling
    return tuple(
        node.name
        for node in program.nodes
        if node.kind in _HANDING_ON
        and node.name not in sharing
        and not _at_home(node)
        and len(program.members(node.group)) == 1
    )


def _ranking(program: Program) -> dict[str, StepSettings]:
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
    """The groups of movable learners that rank the rows of a table: on hosts those of a copy, at home those of home."""
    ranked = _ranking(program)
    return tuple(program.node(name).group for name in handing_on(program) if name in ranked)


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
        node.name for node in program.nodes if node.kind in {"stream_replica", "replica"} and not _at_home(node)
    }
    rankers = _ranking(program)
    edges: list[Edge] = []
    for edge in program.edges:
        if isinstance(edge, Stream) and (writers := _among(edge.writers, set(rankers))):
            told = ranked_specs(rankers[writers[0]].sampled)
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


def _at_home(node: NodeSpec) -> bool:
    """Whether a learner needs demonstrations, which lie at home."""
    steps = node.settings.steps if isinstance(node.settings, ReplicaSettings) else node.settings
    return isinstance(steps, StepSettings) and steps.demonstrations is not None


def _spread(node: NodeSpec) -> NodeSpec:
    """A learner from a table, told that others may be on other machines."""
    settings = node.settings
    if not isinstance(settings, ReplicaSettings | ReplayLearnerSettings):
        return node
    return replace(node, settings=replace(settings, steps=replace(settings.steps, spread=True)))


def parameters(program: Program) -> Board:
    """The board that environment nodes read."""
    names = _movable_envs(program)
    return next(edge for edge in program.edges if isinstance(edge, Board) and names & set(edge.readers))


def carried(program: Program) -> tuple[Board, ...]:
    """The boards that movable nodes read."""
    names = _movable_nodes(program)
    return tuple(edge for edge in program.edges if isinstance(edge, Board) and names & set(edge.readers))


def viewed(program: Program) -> Stream | None:
    """The stream into whose slots movable learners look; ``None`` if there are none."""
    names = _movable_nodes(program)
    streams = (edge for edge in program.edges if isinstance(edge, Stream) and names & set(edge.viewers))
    return next(streams, None)


def watched(program: Program) -> Stream | None:
    """The stream in which movable learners look for new slots by themselves; ``None`` if there are none."""
    stream = viewed(program)
    return stream if stream is not None and _movable_nodes(program) & set(stream.woken) else None


def sampled(program: Program) -> Table | None:
    """The table that movable learners sample; ``None`` if there are none."""
    names = _movable_nodes(program)
    tables = (edge for edge in program.edges if isinstance(edge, Table) and names & set(edge.readers))
    return next(tables, None)


def in_lock_step(program: Program) -> bool:
    """Whether environment nodes wait for each version of the parameters."""
    return parameters(program).max_lag is not None


def same_bits(program: Program) -> str | None:
    """Why all machines have to compute the same bits, and what to type where they cannot; ``None`` if they need not."""
    if _meeting(program):
        return "learners on several machines would drift apart: take machines of one kind, or leave --learners out"
    if in_lock_step(program):
        return "in lock step the bits of a run would depend on the machine: give --sync_mode non_blocking"
    return None


def with_relay(program: Program) -> Program:
    """The program of home. The relay's bell rings with publications, and with slots that come free.

    It has the policy nodes of all hosts, too. They answer nobody at home, and read a board that is carried to them.
    """
    boards, nodes = {board.name for board in carried(program)}, _movable_nodes(program)
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
    names = _movable_nodes(program) | set(answerers(program))
    in_step = _movable_envs(program) if in_lock_step(program) else set()
    edges: list[Edge] = []
    roles: dict[str, tuple[tuple[str, str], ...]] = {}
    for edge in program.edges:
        match edge:
            case Board() if names & set(edge.readers):
                edges.append(replace(edge, writer=RELAY, readers=_among(edge.readers, names)))
            case Stream() | Table() if names & set(edge.writers):
                # A stream for each node: so none takes the slots of another.
                for name in _among(edge.writers, names):
                    slots = 1 if name in in_step else _AHEAD
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


def own_stream(edge: str, node: str) -> str:
    """The stream on a host into which one node writes what it writes at home into the edge of this name."""
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
    # 1. With named slots, a rollout is written into the slot that it has at home.
    # 2. Else it is freed later than at home: when the parameters arrive that were learned from it. Home may have filled
    #    its slot anew by then.
    slots = 2 * edge.slots if woken else edge.slots
    return replace(edge, writers=(RELAY,), readers=(RELAY,), viewers=viewers, woken=woken, slots=slots)


def _movable_envs(program: Program) -> set[str]:
    return {program.members(group)[0].name for group in movable(program)}


def _movable_nodes(program: Program) -> set[str]:
    groups = {*movable(program), *movable_learners(program)}
    return {node.name for node in program.nodes if node.group in groups}


def _among(names: tuple[str, ...], wanted: set[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in wanted)
