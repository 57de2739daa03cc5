"""Registries: names of algorithms, environments, topologies, nodes, runtimes and backends, and what each stands for.

An entry names its code as "module:attribute", which `load` imports on use. Third parties add algorithms and
environments by the entry points ``penstock.algorithms`` and ``penstock.envs``.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.errors import ConfigError, nearest

__all__ = [
    "AGENT_HOOKS",
    "AGENT_STEPS",
    "ALGORITHMS",
    "COMPRESSIONS",
    "ENVS",
    "ENV_PACKAGES",
    "INFERENCE",
    "NODES",
    "RUNTIMES",
    "TOPOLOGIES",
    "UPDATES",
    "InferenceBackend",
    "Registry",
    "Runtime",
    "Topology",
    "UpdateBackend",
    "compression_of",
    "load",
    "search_working_directory",
    "texts_of",
]

Entry = TypeVar("Entry")


class Runtime(NamedTuple):
    """A runtime: it runs a program. What it names is "module:function"."""

    launch: str
    """``(program, processes) -> Outcome``: runs the program until its end."""
    text: str
    """Description for ``--help``."""
    processes: bool
    """Whether each placement group has its own process. Only then may one group wait for another."""
    machines: bool = False
    """Whether nodes may run on several machines. Only on one machine do all of them share memory."""
    joined: str | None = None
    """``(program) -> context manager``: joins the cluster. It is entered before a run touches its folder, so that a run
    without its cluster leaves nothing behind. ``None``: the runtime needs nothing beyond this machine."""
    counted: str | None = None
    """``(address, modules) -> context manager`` that joins the cluster and gives the cores of all its machines, or
    ``None`` if there is one machine. It is entered before ``joined``, if the number of processes depends on it."""
    evaluated: str | None = None
    """``(plan, build) -> Outcome``: plays an evaluation on all machines of the cluster that this process has joined.
    ``build`` makes the program of a plan. ``None``: ``launch`` runs the program as any other."""
    delay: str = ""
    """What the user is told of first, because it takes long."""


class Topology(NamedTuple):
    """A topology: which nodes a run has, and how they are wired."""

    modes: Mapping[str, str]
    """Sync mode -> "module:function" of ``(plan) -> Program``. ``--sync_mode auto`` takes the first mode."""
    from_table: bool = False
    """True: a learner samples from a table. False: it learns from a stream of rollouts."""
    learns_in_envs: bool = False
    """True: each environment process has a learner. All of these would compile the update at once."""


class UpdateBackend(NamedTuple):
    """Builders of updaters, one for each way of learning. ``None``: the backend does not support this way.

    Each is the "module:attribute" of a function that builds an object of ``penstock.updates.contract``.
    """

    stream: str
    """``(settings, arrays, exchange) -> Updater``: learns from a stream of rollouts, alone or together with others.
    ``arrays``: field -> ``[slots, T + 1, lanes, ...]``."""
    replay: str | None = None
    """``(settings, exchange) -> ReplayUpdater``: learns from a table, alone or together with other learners."""
    follower: str | None = None
    """``(settings, hand_on) -> ReplayUpdater``: hands its gradients on and does not apply them."""
    applier: str | None = None
    """``(settings) -> Applier``: applies gradients that others have handed on."""
    stream_follower: str | None = None
    """``(settings, arrays, hand_on) -> Updater``: computes gradients on rollouts of a stream, without applying them."""
    stream_applier: str | None = None
    """``(settings, arrays) -> StreamApplier``: applies gradients that others have computed on rollouts of a stream."""
    native: bool = False
    """True: runs an algorithm's ``fused.py`` on the CPU, without torch. False: runs its ``learn.py``."""


class InferenceBackend(NamedTuple):
    """A policy backend: it computes actions."""

    build: str
    """``module:function`` that builds a ``penstock.types.PolicyBackend``."""
    torch: bool = False
    """True: runs an algorithm's ``learn.py``. False: runs its policy graph."""


class Registry(Generic[Entry]):
    """Names of one kind and their entries. Entry points may add names, but not replace a name that penstock ships.

    Args:
        kind: what a name stands for, for error texts.
        shipped: name -> entry.
        group: the group of entry points that adds names, if any.
        read: makes an entry from the value of an entry point.
    """

    def __init__(
        self,
        kind: str,
        shipped: Mapping[str, Entry],
        group: str | None = None,
        read: Callable[[str], Entry] | None = None,
    ) -> None:
        self._kind = kind
        self._shipped = dict(shipped)
        self._group = group
        self._read = read

    def __getitem__(self, name: str) -> Entry:
        """The entry with this name.

        Raises:
            ConfigError: there is no such entry. The text has the names that are most similar.
        """
        if name in self._shipped:
            return self._shipped[name]
        known = self._all()
        if name not in known:
            hint = nearest(name, known) or f"; known: {', '.join(sorted(known)) or 'none'}"
            raise ConfigError(f"unknown {self._kind} {name!r}{hint}")
        return known[name]

    def get(self, name: str) -> Entry | None:
        """The entry with this name, or ``None``."""
        return self._shipped[name] if name in self._shipped else self._all().get(name)

    def names(self) -> tuple[str, ...]:
        """All names: shipped ones first, in their own order, then added ones in alphabetical order."""
        added = sorted(self._all().keys() - self._shipped.keys())
        return (*self._shipped, *added)

    def _all(self) -> dict[str, Entry]:
        """Shipped and added entries. Only this method reads entry points, which takes tens of milliseconds."""
        if self._group is None or self._read is None:
            return self._shipped
        metadata = importlib.import_module("importlib.metadata")
        added = {point.name: self._read(point.value) for point in metadata.entry_points(group=self._group)}
        return {**added, **self._shipped}


def search_working_directory() -> None:
    """Let every process of a run import modules of the working directory.

    A script has its own folder on the path, and ``python -m`` the working directory. A console command has neither.
    """
    try:
        here = str(Path.cwd())
    except FileNotFoundError:
        # The folder was removed. If the machines of a cluster are in truth one, a machine that joins replaces the
        # folder of code in which the others work.
        return
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def texts_of(registry: Registry[Runtime]) -> str:
    """The description of each runtime, for ``--help``: ``local: ...; inline: ...``."""
    return "; ".join(f"{name}: {registry[name].text}" for name in registry.names())


def load(reference: str) -> Any:  # noqa: ANN401  (whatever the reference names)
    """The object that "module:attribute" names. Imports the module now.

    Raises:
        ConfigError: there is no such module or attribute. Errors inside the module are not changed.
    """
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{reference!r} is not a reference; write module:attribute")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # The module exists, but one of its own imports is missing: the error names that import.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(f"there is no module {error.name!r}, which {reference!r} names") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"module {module_name!r} has no {attribute!r}{nearest(part, dir(found))}")
        found = getattr(found, part)
    return found


def compression_of(text: str) -> Any:  # noqa: ANN401  (a penstock.gradient_exchange.contract.Compression)
    """The compression of ``int8`` or ``topk:0.01``: a name, and after a colon its argument. ``None`` for ``none``.

    Raises:
        ConfigError: there is no such compression, or its argument is wrong.
    """
    if text == "none":
        return None
    name, _, argument = text.partition(":")
    try:
        return load(COMPRESSIONS[name])(argument)
    except ValueError as error:
        raise ConfigError(f"--compress {text}: {error}") from None


_SHIPPED = ("ppo", "a2c", "a3c", "impala", "appo", "sac", "dsac", "dsact", "td3", "ddpg", "dqn", "apex", "r2d2", "bc")
ALGORITHMS: Registry[str] = Registry(
    "algorithm", {name: f"penstock.algorithms.{name}" for name in _SHIPPED}, "penstock.algorithms", str
)
"""Name -> package; `penstock.algorithm_lookup` describes its files. Users may name other packages, too."""

ENVS: Registry[str] = Registry("environment", {}, "penstock.envs", str)
"""Third parties' environments: name -> "module:attribute" of a factory. Gymnasium's ids are not in it."""

ENV_PACKAGES = Registry(
    "environment package",
    {
        "envpool": "penstock.envs.envpool:pool_of",
        "dm_env_rpc": "penstock.envs.dm_env_rpc:world_at",
        "godot": "penstock.envs.godot:agents_at",
        "mlagents": "penstock.envs.mlagents:agents_at",
        "pettingzoo": "penstock.envs.pettingzoo:agents_of",
    },
)
"""Packages and protocols that may be before the colon of an environment's name: ``envpool:<task>``,
``dm_env_rpc://<address>`` -> ``factory_of(what is behind the colon or ://)``."""

TOPOLOGIES: Registry[Topology] = Registry(
    "topology",
    {
        "on_policy": Topology(
            {
                "blocking": "penstock.topologies.on_policy:build",
                "non_blocking": "penstock.topologies.async_on_policy:build",
            }
        ),
        "async_on_policy": Topology(
            {
                "non_blocking": "penstock.topologies.async_on_policy:build",
                "blocking": "penstock.topologies.on_policy:build",
            }
        ),
        "off_policy": Topology(
            {
                "blocking": "penstock.topologies.off_policy:build",
                "non_blocking": "penstock.topologies.async_off_policy:build",
            },
            from_table=True,
        ),
        "actor_learners": Topology(
            {"non_blocking": "penstock.topologies.actor_learners:build"},
            learns_in_envs=True,
        ),
        "async_off_policy": Topology(
            {
                "non_blocking": "penstock.topologies.async_off_policy:build",
                "blocking": "penstock.topologies.off_policy:build",
            },
            from_table=True,
        ),
    },
)
"""Topologies that an algorithm's spec may name."""

NODES = Registry(
    "node",
    {
        "env": "penstock.nodes.env:EnvNode",
        # No node: a policy port, loaded in the same way.
        "local_policy": "penstock.policies.acting:LocalPolicy",
        "policy_node": "penstock.nodes.policy_node:PolicyNode",
        "learner": "penstock.nodes.learner:LearnerNode",
        "replay_learner": "penstock.nodes.learner:ReplayLearnerNode",
        "replica": "penstock.nodes.learner:ReplicaNode",
        "stream_replica": "penstock.nodes.learner:StreamReplicaNode",
        "stream_parameter": "penstock.nodes.learner:StreamParameterNode",
        "stream_follower": "penstock.nodes.learner:StreamFollowerNode",
        "batch_follower": "penstock.nodes.learner:BatchFollowerNode",
        "parameter": "penstock.nodes.learner:ParameterNode",
        "follower": "penstock.nodes.learner:FollowerNode",
        "evaluator": "penstock.nodes.evaluation:EvaluatorNode",
        "judge": "penstock.nodes.evaluation:JudgeNode",
        "game_lane": "penstock.games.node:GameLaneNode",
        "games": "penstock.games.node:GamesNode",
        "player": "penstock.nodes.evaluation:PlayerNode",
        "checkpointer": "penstock.nodes.checkpointer:CheckpointerNode",
        "monitor": "penstock.nodes.monitor:MonitorNode",
    },
)

RUNTIMES = Registry(
    "runtime",
    {
        "local": Runtime("penstock.runtime.local:launch", "processes on this machine", processes=True),
        "ray": Runtime(
            "penstock.cluster.launch:launch",
            "processes on all machines of a Ray cluster",
            processes=True,
            machines=True,
            joined="penstock.cluster.launch:joined",
            counted="penstock.cluster.launch:counted",
            evaluated="penstock.cluster.launch:evaluated",
            delay="Ray starts, or joins a cluster; that may take half a minute",
        ),
        "inline": Runtime(
            "penstock.runtime.inline:launch", "everything in this process, for a debugger", processes=False
        ),
    },
)

COMPRESSIONS = Registry(
    "compression",
    {"int8": "penstock.gradient_exchange.int8:build", "topk": "penstock.gradient_exchange.top_k:build"},
)
"""Compressions of gradients: name -> "module:function" of ``(argument) -> Compression``."""

UPDATES = Registry(
    "update backend",
    {
        "fused": UpdateBackend(
            stream="penstock.updates.fused:build",
            replay="penstock.updates.fused:build_replay",
            follower="penstock.updates.fused:build_follower",
            applier="penstock.updates.fused:build_applier",
            stream_follower="penstock.updates.fused:build_stream_follower",
            stream_applier="penstock.updates.fused:build_stream_applier",
            native=True,
        ),
        "eager": UpdateBackend(
            stream="penstock.updates.eager:build",
            replay="penstock.updates.eager:build_replay",
            follower="penstock.updates.eager:build_follower",
            applier="penstock.updates.eager:build_applier",
            stream_follower="penstock.updates.eager:build_stream_follower",
            stream_applier="penstock.updates.eager:build_stream_applier",
        ),
        "compiled": UpdateBackend(
            stream="penstock.updates.compiled:build",
            replay="penstock.updates.compiled:build_replay",
            follower="penstock.updates.compiled:build_follower",
            applier="penstock.updates.compiled:build_applier",
            stream_follower="penstock.updates.compiled:build_stream_follower",
            stream_applier="penstock.updates.compiled:build_stream_applier",
        ),
    },
)

AGENT_STEPS = "penstock.games.served:AgentSteps"
"""Makes the ``Steps`` of a server some of whose clients play through agents."""

AGENT_HOOKS = "penstock.games.agent:hooks_of"
"""``(agent's class) -> names of the methods that it overrides``."""

INFERENCE = Registry(
    "inference backend",
    {
        "native": InferenceBackend("penstock.inference.native:build"),
        "onnx": InferenceBackend("penstock.inference.onnx.backend:build"),
        "torch": InferenceBackend("penstock.inference.torch:build", torch=True),
    },
)
