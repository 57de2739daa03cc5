"""Finds the package of an algorithm by its name, and checks its parts. Users' packages follow the same rule as ours.

    spec.py     a frozen dataclass of hyper-parameters, ``spec`` and ``init_state``. ``ACTIONS`` if it does not serve
                every action space. ``MASKS = True`` if it uses action masks. Imports no torch.
    learn.py    ``build``, in torch. Only processes that learn or act with torch import it.
    fused.py    optional, for a native update: ``supports`` and ``build``. Imports no torch.

Each error is one line. Does not check what the functions compute.
"""

import ast
import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal, NamedTuple, TypeAlias

from penstock.errors import ConfigError, SpaceError, UsageError, either, nearest, place_in
from penstock.registry import ALGORITHMS, search_working_directory

__all__ = [
    "ACTION_KINDS",
    "ActionKind",
    "AlgorithmPackage",
    "algorithms_for",
    "algorithms_that",
    "algorithms_with",
    "check_actions",
    "check_learn",
    "find_algorithm",
    "load_functions",
    "ships",
]

ActionKind: TypeAlias = Literal["discrete", "bounded", "unbounded", "multi_discrete", "composite"]
"""A Discrete, a Box of real numbers with bounds, a Box of real numbers without, a MultiDiscrete or MultiBinary, a Tuple
or Dict of those."""
ACTION_KINDS: tuple[ActionKind, ...] = typing.get_args(ActionKind)

_ACTIONS: dict[ActionKind, str] = {
    "discrete": "Discrete actions",
    "bounded": "a Box of real-numbered actions",
    "unbounded": "a Box of real-numbered actions",
    "multi_discrete": "MultiDiscrete or MultiBinary actions",
    "composite": "a Tuple or Dict of actions",
}
"""Kind of actions -> its name in error texts."""
_BOXES: tuple[ActionKind, ...] = ("bounded", "unbounded")

_MESSAGE_LIMIT = 300
_TAKES = {"build": "(spaces, config)", "supports": "(graph, config) -> bool"}
"""Function of a ``learn.py`` or ``fused.py`` -> what it takes, for error texts."""


class AlgorithmPackage(NamedTuple):
    """An algorithm's parts: its config class, and the others as "module:attribute", which are loaded on use."""

    name: str
    """The name as the user gave it."""
    package: str
    config: type
    """The frozen dataclass of its hyper-parameters. Every field has a default."""
    actions: tuple[ActionKind, ...]
    """The action spaces that it serves."""
    masks: bool
    """It uses action masks. Otherwise ``Spaces.mask`` is ``None`` for it."""
    spec: str
    """``spec(spaces, config) -> AlgorithmSpec``."""
    initial: str
    """``init_state(spaces, config, seed) -> named arrays``, without torch."""
    learn: str
    """``build(spaces, config) -> Algorithm``, in torch."""
    fused: str | None
    """``build(spaces, config)`` of a `Fused` or, with a table, a `FusedReplay`. ``None``: there is no native update."""
    supports: str | None
    """``supports(graph, config) -> bool``, without torch: whether ``fused`` can train this policy."""


def find_algorithm(name: str) -> AlgorithmPackage:
    """The algorithm with a registered name, or in a package that is installed or in the working directory.

    Raises:
        ConfigError: there is no such algorithm, or its package lacks a part. The text says which part to write.
    """
    package = ALGORITHMS.get(name) or _package_named(name)
    module = _imported(name, package, "spec")
    spec = _function(name, module, "spec", "(spaces, config) -> AlgorithmSpec")
    _function(name, module, "init_state", "(spaces, config, seed) -> arrays of the state")
    fused = f"{package}.fused" if importlib.util.find_spec(f"{package}.fused") else None
    return AlgorithmPackage(
        name=name,
        package=package,
        config=_config(name, module, spec),
        actions=_actions(name, module),
        masks=_masks(name, module),
        spec=f"{package}.spec:spec",
        initial=f"{package}.spec:init_state",
        learn=f"{package}.learn:build",
        fused=fused and f"{fused}:build",
        supports=fused and f"{fused}:supports",
    )


def ships(algorithm: AlgorithmPackage) -> bool:
    """Whether penstock brings the algorithm. Its tests try these algorithms. A user's is tried before each run."""
    return algorithm.package.startswith("penstock.algorithms.")


def algorithms_for(kind: ActionKind | None = None, *, masks: bool = False) -> str:
    """The names of the algorithms that serve such actions, for a sentence: "ppo, a2c or sac".

    Args:
        kind: of the actions; ``None``: any kind.
        masks: only those that use action masks.
    """
    return algorithms_that(lambda found: (kind is None or kind in found.actions) and (found.masks or not masks))


def algorithms_with(setting: str) -> str:
    """The names of the algorithms that have a setting of this name, for a sentence; empty if none has."""
    return algorithms_that(lambda found: setting in {field.name for field in dataclasses.fields(found.config)})


def algorithms_that(wanted: Callable[[AlgorithmPackage], bool]) -> str:
    """The names of the registered algorithms that are wanted, for a sentence; empty if none is."""
    names = []
    for name in ALGORITHMS.names():
        # Do not recommend an installed algorithm that is broken.
        with contextlib.suppress(UsageError):
            if wanted(find_algorithm(name)):
                names.append(name)
    return either(names)


def check_actions(name: str, serves: tuple[ActionKind, ...], kind: ActionKind) -> None:
    """Return if an algorithm serves actions of this kind.

    Raises:
        SpaceError: it does not. The text says what it needs, what there is, and which algorithms serve that.
    """
    if kind in serves:
        return
    others = algorithms_for(kind)
    if kind in _BOXES and set(_BOXES) & set(serves):
        needs, has = ("with", "not bounded") if kind == "unbounded" else ("without", "bounded")
        raise SpaceError(f"{name} needs a Box {needs} bounds; the environment's Box of actions is {has}: use {others}")
    needed = " or ".join(dict.fromkeys(_ACTIONS[served] for served in serves))
    raise SpaceError(f"{name} needs {needed}; the environment has {_ACTIONS[kind]}: use {others}")


def check_learn(algorithm: AlgorithmPackage) -> None:
    """Return if the package has a ``learn.py`` that defines ``build``. Reads the file; torch is not imported.

    Raises:
        ConfigError: it has none.
    """
    name, module = algorithm.name, f"{algorithm.package}.learn"
    found = importlib.util.find_spec(module)
    if found is None:
        raise ConfigError(f"algorithm {name}: package {algorithm.package} has no learn.py")
    if found.origin is None or not found.origin.endswith(".py"):
        return
    try:
        tree = ast.parse(Path(found.origin).read_bytes(), found.origin)
    except SyntaxError as error:
        raise _not_imported(name, module, error) from error
    if not any("build" in _names_bound(node) for node in ast.walk(tree)):
        raise ConfigError(f"algorithm {name}: {module} has no function build(spaces, config) -> Algorithm")


def load_functions(reference: str) -> Callable[..., Any]:
    """``build`` of a ``learn.py`` or ``fused.py``, or ``supports`` of the latter. Imports the module now.

    Raises:
        ConfigError: the module cannot be imported, or has no such function.
    """
    module, _, function = reference.partition(":")
    package, _, part = module.rpartition(".")
    try:
        found = _imported(package, package, part)
    except ConfigError as error:
        # Drop the cause, so that the node shows one line and no traceback.
        raise error from None
    return _function(package, found, function, _TAKES.get(function, ""))


def _package_named(name: str) -> str:
    """The name of a package that is not registered.

    Raises:
        ConfigError: there is no such package. The text lists known algorithms.
    """
    if not all(map(str.isidentifier, name.split("."))):
        raise ConfigError(
            f"unknown algorithm {name!r}; your own is named by its package, as in --algo my_package.my_algorithm; "
            f"known: {', '.join(ALGORITHMS.names())}"
        )
    search_working_directory()
    if "." not in name and importlib.util.find_spec(name) is None:
        registered, known = ALGORITHMS.get(name), ALGORITHMS.names()
        if registered is None:
            hint = nearest(name, known) or f"; known: {', '.join(known)}"
            here = f"no package of this name is installed or in {Path.cwd()}"
            raise ConfigError(f"unknown algorithm {name!r}, and {here}{hint}")
        return registered
    return name


def _imported(name: str, package: str, part: str) -> ModuleType:
    """A module of an algorithm's package."""
    module = f"{package}.{part}"
    try:
        return importlib.import_module(module)
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        if error.name == module and not hasattr(sys.modules.get(package), "__path__"):
            folder = f"an algorithm is a folder with {part}.py in it"
            raise ConfigError(f"algorithm {name}: {package} is a file; {folder}") from error
        if error.name == module:
            raise ConfigError(f"algorithm {name}: package {package} has no {part}.py") from error
        if error.name is not None and f"{package}.".startswith(f"{error.name}."):
            here = f"neither installed nor in {Path.cwd()}"
            raise ConfigError(f"algorithm {name}: there is no package {error.name}, {here}") from error
        raise _not_imported(name, module, error) from error
    except Exception as error:
        raise _not_imported(name, module, error) from error


def _not_imported(name: str, module: str, error: Exception) -> ConfigError:
    """The error for a module that cannot be imported: what is wrong, and where."""
    said = " ".join(str(error).split())[:_MESSAGE_LIMIT]
    return ConfigError(
        f"algorithm {name}: {module} cannot be imported: {type(error).__name__}: {said}{place_in(module, error)}"
    )


def _function(name: str, module: ModuleType, function: str, takes: str) -> Callable[..., Any]:
    found = getattr(module, function, None)
    if not callable(found):
        raise ConfigError(f"algorithm {name}: {module.__name__} has no function {function}{takes}")
    return typing.cast("Callable[..., Any]", found)


def _config(name: str, module: ModuleType, spec: Callable[..., Any]) -> type:
    """The class in the annotation of the second parameter of ``spec``."""
    parameters = list(inspect.signature(spec).parameters.values())
    if len(parameters) < 2 or parameters[1].annotation is inspect.Parameter.empty:
        raise ConfigError(
            f"algorithm {name}: spec in {module.__name__} does not say what its config is; annotate its second "
            "parameter: def spec(spaces: Spaces, config: MyConfig)"
        )
    annotated = SimpleNamespace(__annotations__={"config": parameters[1].annotation})
    try:
        config = typing.get_type_hints(annotated, vars(module))["config"]
    except NameError as error:
        raise ConfigError(f"algorithm {name}: the config of spec in {module.__name__}: {error}") from error
    if not isinstance(config, type) or not dataclasses.is_dataclass(config) or not _is_frozen(config):
        shown = getattr(config, "__name__", config)
        raise ConfigError(
            f"algorithm {name}: the config of spec in {module.__name__}, {shown}, is no frozen dataclass; write "
            "@dataclass(frozen=True) above it"
        )
    fields = dataclasses.fields(config)
    without = [f.name for f in fields if dataclasses.MISSING is f.default and dataclasses.MISSING is f.default_factory]
    if without:
        raise ConfigError(f"algorithm {name}: {config.__name__}.{without[0]} has no default; give it one")
    if "num_steps" not in (field.name for field in fields):
        raise ConfigError(
            f"algorithm {name}: {config.__name__} has no num_steps: int, the steps of each lane in one rollout"
        )
    return config


def _is_frozen(config: type) -> bool:
    parameters: Any = getattr(config, "__dataclass_params__", None)
    return bool(parameters.frozen)


def _actions(name: str, module: ModuleType) -> tuple[ActionKind, ...]:
    given = getattr(module, "ACTIONS", ACTION_KINDS)
    if not isinstance(given, tuple) or not given or not set(given) <= set(ACTION_KINDS):
        known = ", ".join(map(repr, ACTION_KINDS))
        raise ConfigError(f"algorithm {name}: ACTIONS in {module.__name__} is a tuple of {known}, not {given!r}")
    return given


def _masks(name: str, module: ModuleType) -> bool:
    given = getattr(module, "MASKS", False)
    if not isinstance(given, bool):
        raise ConfigError(f"algorithm {name}: MASKS in {module.__name__} is True or False, not {given!r}")
    return given


def _names_bound(node: ast.AST) -> tuple[str, ...]:
    """Names that a statement binds. ``import *`` counts as binding ``build``, because it may do so."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return (node.name,)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return (node.id,)
    if isinstance(node, ast.alias):
        return ("build",) if node.name == "*" else (node.asname or node.name,)
    return ()
