"""Names that users type, each with the "module:attribute" it stands for, loaded on use.

Third parties add algorithms and environments by entry points, ``penstock.algorithms`` and ``penstock.envs``. Imports
none of what it names.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from penstock.errors import ConfigError, nearest

__all__ = [
    "ALGORITHMS",
    "APPLIERS",
    "ENVS",
    "ENV_PACKAGES",
    "FINDERS",
    "INFERENCE",
    "NODES",
    "REPLAY_UPDATES",
    "RUNTIMES",
    "TOPOLOGIES",
    "UPDATES",
    "ActionKind",
    "AlgorithmEntry",
    "Table",
    "algorithms_for",
    "load",
]

Entry = TypeVar("Entry")

ActionKind: TypeAlias = Literal["discrete", "bounded", "unbounded"]
"""A Discrete, a Box of real numbers with bounds, one without."""


class AlgorithmEntry(NamedTuple):
    """Where an algorithm's parts are, each as "module:attribute"."""

    config: str
    """The frozen dataclass of its hyper-parameters."""
    spec: str
    """``spec(spaces, config) -> AlgorithmSpec``."""
    initial: str
    """``init_state(spaces, config, seed) -> named arrays``, without torch."""
    learn: str
    """``build(spaces, config) -> Algorithm``, in torch."""
    fused: str | None = None
    """``build(spaces, config) -> Fused``, without torch; ``None`` where there is no native path."""
    supports: str | None = None
    """``supports(graph, config) -> bool``, without torch: whether ``fused`` serves such a policy."""
    actions: tuple[ActionKind, ...] = get_args(ActionKind)
    """The action spaces that it serves."""

    @classmethod
    def of_package(cls, package: str) -> "AlgorithmEntry":
        """The parts of a package laid out as those of penstock: ``spec.py`` (with ``Config``) and ``learn.py``."""
        spec = f"{package}.spec"
        return cls(f"{spec}:Config", f"{spec}:spec", f"{spec}:init_state", f"{package}.learn:build")


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


def _shipped_algorithm(name: str, config: str) -> AlgorithmEntry:
    package = f"penstock.algorithms.{name}"
    entry = AlgorithmEntry.of_package(package)._replace(config=f"{package}.spec:{config}")
    return entry._replace(fused=f"{package}.fused:build", supports=f"{package}.fused:supports")


def _from_table(name: str, config: str, *actions: ActionKind) -> AlgorithmEntry:
    package = f"penstock.algorithms.{name}"
    return AlgorithmEntry.of_package(package)._replace(config=f"{package}.spec:{config}", actions=actions)


ALGORITHMS = Table(
    "algorithm",
    {
        "ppo": _shipped_algorithm("ppo", "PPOConfig"),
        "a2c": _shipped_algorithm("a2c", "A2CConfig"),
        "sac": _from_table("sac", "SACConfig", "bounded"),
        "dsac": _from_table("dsac", "DSACConfig", "bounded"),
        "dsact": _from_table("dsact", "DSACTConfig", "bounded"),
        "td3": _from_table("td3", "TD3Config", "bounded"),
        "ddpg": _from_table("ddpg", "DDPGConfig", "bounded"),
        "dqn": _from_table("dqn", "DQNConfig", "discrete"),
        "apex": _from_table("apex", "ApexConfig", "discrete"),
    },
    "penstock.algorithms",
    AlgorithmEntry.of_package,
)


def algorithms_for(kind: ActionKind) -> str:
    """The names of the algorithms that serve such actions, as a sentence has them: "ppo, a2c or sac"."""
    names = [name for name in ALGORITHMS.names() if kind in ALGORITHMS[name].actions]
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


ENVS: Table[str] = Table("environment", {}, "penstock.envs", str)
"""Third parties' environments: name -> the "module:attribute" that makes one. Gymnasium's ids are not in it."""

ENV_PACKAGES = Table("environment package", {"envpool": "penstock.envs.envpool:pool_of"})
"""What may stand before the colon of an environment's name beside a module: package -> ``factory_of(the rest)``."""

TOPOLOGIES = Table(
    "topology",
    {
        "on_policy": "penstock.topologies.on_policy:build",
        "async_on_policy": "penstock.topologies.async_on_policy:build",
        "off_policy": "penstock.topologies.off_policy:build",
        "async_off_policy": "penstock.topologies.async_off_policy:build",
    },
)

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
    {"local": "penstock.runtime.local:launch", "inline": "penstock.runtime.inline:launch"},
)

UPDATES = Table(
    "update backend",
    {
        "fused": "penstock.updates.fused:build",
        "eager": "penstock.updates.eager:build",
        "compiled": "penstock.updates.compiled:build",
    },
)

REPLAY_UPDATES = Table(
    "update backend for replay",
    {"eager": "penstock.updates.eager:build_replay", "compiled": "penstock.updates.compiled:build_replay"},
)
"""Backends of the update that learn from a table, alone or as agreed with others."""

FINDERS = Table(
    "update backend for gradients",
    {"eager": "penstock.updates.eager:build_finder", "compiled": "penstock.updates.compiled:build_finder"},
)
"""Backends of the update whose gradients are handed on."""

APPLIERS = Table(
    "update backend for steps",
    {"eager": "penstock.updates.eager:build_applier", "compiled": "penstock.updates.compiled:build_applier"},
)
"""Backends of the update that steps by gradients which were handed on."""

INFERENCE = Table(
    "inference backend",
    {
        "native": "penstock.inference.native:build",
        "onnx": "penstock.inference.onnx.session:build",
        "torch": "penstock.inference.torch:build",
    },
)
