"""Names that users type, each with the "module:attribute" it stands for, loaded on use.

Third parties add algorithms and environments by entry points, ``penstock.algorithms`` and ``penstock.envs``. Imports
none of what it names.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.errors import ConfigError, nearest

__all__ = [
    "ALGORITHMS",
    "ENVS",
    "ENV_PACKAGES",
    "INFERENCE",
    "NODES",
    "RUNTIMES",
    "TOPOLOGIES",
    "UPDATES",
    "InferenceBackend",
    "Runtime",
    "Table",
    "UpdateBackend",
    "load",
    "search_working_directory",
    "texts_of",
]

Entry = TypeVar("Entry")


class Runtime(NamedTuple):
    """What runs a program."""

    launch: str
    """``module:function`` of ``(program) -> Outcome``."""
    text: str
    """What it does, for ``--help``."""
    processes: bool
    """Whether placement groups run in processes of their own, so that one may wait for another."""


class UpdateBackend(NamedTuple):
    """What turns an algorithm's functions into updaters: a part for each way of learning, ``None`` where there is none.

    Each is the "module:attribute" of a function that builds what ``penstock.updates.contract`` describes.
    """

    stream: str
    """``(settings, arrays) -> Updater``: learns from a stream of rollouts."""
    replay: str | None = None
    """``(settings, exchange) -> ReplayUpdater``: learns from a table, alone or as agreed with others."""
    finder: str | None = None
    """``(settings, hand_on) -> ReplayUpdater``: its gradients are handed on."""
    applier: str | None = None
    """``(settings) -> Applier``: steps by gradients that were handed on."""
    native: bool = False
    """Runs an algorithm's ``fused.py`` on the CPU, without torch; the others run its ``learn.py``."""


class InferenceBackend(NamedTuple):
    """What computes actions."""

    build: str
    """``module:function`` of ``(...) -> PolicyBackend``."""
    torch: bool = False
    """Runs an algorithm's ``learn.py``; the others run its policy as plain data."""


class Table(Generic[Entry]):
    """Names of one kind. What entry points add comes second: they cannot replace a name that penstock ships.

    Args:
        kind: what a name stands for, as errors call it.
        shipped: name -> entry.
        group: the group of entry points that adds to it, if any.
        read: makes an entry of an entry point's value.
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
        """The entry of that name.

        Raises:
            ConfigError: there is none; the text says which names come nearest.
        """
        if name in self._shipped:
            return self._shipped[name]
        known = self._all()
        if name not in known:
            hint = nearest(name, known) or f"; known: {', '.join(sorted(known)) or 'none'}"
            raise ConfigError(f"unknown {self._kind} {name!r}{hint}")
        return known[name]

    def get(self, name: str) -> Entry | None:
        """The entry of that name, or ``None``."""
        return self._shipped[name] if name in self._shipped else self._all().get(name)

    def names(self) -> tuple[str, ...]:
        """Every name, shipped ones first, in alphabetical order otherwise."""
        added = sorted(self._all().keys() - self._shipped.keys())
        return (*self._shipped, *added)

    def _all(self) -> dict[str, Entry]:
        """Shipped and added entries. Entry points are read only here: finding them costs tens of milliseconds."""
        if self._group is None or self._read is None:
            return self._shipped
        metadata = importlib.import_module("importlib.metadata")
        added = {point.name: self._read(point.value) for point in metadata.entry_points(group=self._group)}
        return {**added, **self._shipped}


def search_working_directory() -> None:
    """Let modules of the working directory be imported by every process of a run.

    A script has its own folder on the path and ``python -m`` the working directory; a console command has neither.
    """
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def texts_of(table: Table[Runtime]) -> str:
    """What each entry does, as ``--help`` has it: ``local: ...; inline: ...``."""
    return "; ".join(f"{name}: {table[name].text}" for name in table.names())


def load(reference: str) -> Any:  # noqa: ANN401  (whatever the reference names)
    """The object that "module:attribute" names; the module is imported now.

    Raises:
        ConfigError: there is no such module or attribute. An error inside the module comes through as it is.
    """
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{reference!r} is not a reference; write module:attribute")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that is there but misses one of its own imports tells so itself.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(f"there is no module {error.name!r}, which {reference!r} names") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"module {module_name!r} has no {attribute!r}{nearest(part, dir(found))}")
        found = getattr(found, part)
    return found


_SHIPPED = ("ppo", "a2c", "sac", "dsac", "dsact", "td3", "ddpg", "dqn", "apex")
ALGORITHMS: Table[str] = Table(
    "algorithm", {name: f"penstock.algorithms.{name}" for name in _SHIPPED}, "penstock.algorithms", str
)
"""Name -> package; `penstock.algorithm_package` says what stands in one. Any other package may be named as well."""

ENVS: Table[str] = Table("environment", {}, "penstock.envs", str)
"""Third parties' environments: name -> the "module:attribute" that makes one. Gymnasium's ids are not in it."""

ENV_PACKAGES = Table("environment package", {"envpool": "penstock.envs.envpool:pool_of"})
"""What may stand before the colon of an environment's name beside a module: package -> ``factory_of(the rest)``."""

TOPOLOGIES: Table[Mapping[str, str]] = Table(
    "topology",
    {
        "on_policy": {
            "blocking": "penstock.topologies.on_policy:build",
            "non_blocking": "penstock.topologies.async_on_policy:build",
        },
        "async_on_policy": {"non_blocking": "penstock.topologies.async_on_policy:build"},
        "off_policy": {
            "blocking": "penstock.topologies.off_policy:build",
            "non_blocking": "penstock.topologies.async_off_policy:build",
        },
        "async_off_policy": {"non_blocking": "penstock.topologies.async_off_policy:build"},
    },
)
"""Data patterns that an algorithm's spec may name: for each sync mode that one has, ``(plan) -> Program``."""

NODES = Table(
    "node",
    {
        "env": "penstock.nodes.env:EnvNode",
        "policy": "penstock.policies.acting:LocalPolicy",
        "policy_node": "penstock.nodes.policy_node:PolicyNode",
        "learner": "penstock.nodes.learner:LearnerNode",
        "replay_learner": "penstock.nodes.learner:ReplayLearnerNode",
        "replica": "penstock.nodes.learner:ReplicaNode",
        "parameter": "penstock.nodes.learner:ParameterNode",
        "follower": "penstock.nodes.learner:FollowerNode",
        "evaluator": "penstock.nodes.evaluation:EvaluatorNode",
        "judge": "penstock.nodes.evaluation:JudgeNode",
        "player": "penstock.nodes.evaluation:PlayerNode",
        "checkpointer": "penstock.nodes.checkpointer:CheckpointerNode",
        "monitor": "penstock.nodes.monitor:MonitorNode",
    },
)

RUNTIMES = Table(
    "runtime",
    {
        "local": Runtime("penstock.runtime.local:launch", "one process for each worker", processes=True),
        "inline": Runtime(
            "penstock.runtime.inline:launch", "everything in this process, for a debugger", processes=False
        ),
    },
)

UPDATES = Table(
    "update backend",
    {
        "fused": UpdateBackend("penstock.updates.fused:build", native=True),
        "eager": UpdateBackend(
            "penstock.updates.eager:build",
            "penstock.updates.eager:build_replay",
            "penstock.updates.eager:build_finder",
            "penstock.updates.eager:build_applier",
        ),
        "compiled": UpdateBackend(
            "penstock.updates.compiled:build",
            "penstock.updates.compiled:build_replay",
            "penstock.updates.compiled:build_finder",
            "penstock.updates.compiled:build_applier",
        ),
    },
)

INFERENCE = Table(
    "inference backend",
    {
        "native": InferenceBackend("penstock.inference.native:build"),
        "onnx": InferenceBackend("penstock.inference.onnx.session:build"),
        "torch": InferenceBackend("penstock.inference.torch:build", torch=True),
    },
)
