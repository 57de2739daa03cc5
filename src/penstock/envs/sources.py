"""From an environment's name to a source that steps it: Gymnasium id, ``module:attribute``, entry point or callable.

Gymnasium is imported only where an id is looked up. It does not decide how lanes are shared out to processes.
"""

import copy
import functools
import importlib
import importlib.metadata
import importlib.util
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock.envs.gymnasium import ScalarSource
from penstock.envs.legacy import declares
from penstock.envs.spaces import one_line
from penstock.envs.vector import VectorSource, is_vector
from penstock.errors import EnvironmentFault, UsageError, nearest
from penstock.types import EnvFactory, EnvReference, EnvSource, Spaces

__all__ = ["EnvProfile", "display_name", "find", "open_source", "probe", "reference"]

ENTRY_POINTS = "penstock.envs"

_ATARI = "environment {!r} needs the Atari emulator: pip install 'penstock[atari]'"
_MUJOCO = "environment {!r} needs MuJoCo: pip install 'penstock[mujoco]'"


@dataclass(frozen=True)
class EnvProfile:
    """What is known of an environment before anything starts."""

    name: str
    """A Gymnasium id, ``module:attribute``, or the name of a callable."""
    spaces: Spaces
    same_step: bool
    restorable: bool
    kind: Literal["scalar", "vector"]


def probe(env: EnvReference | EnvFactory, vector: bool = False) -> EnvProfile:
    """Make an environment once, read what a run needs to know of it, and close it.

    Args:
        env: as for ``find``.
        vector: as for ``find``.

    Raises:
        EnvironmentFault: unknown, or it cannot be made.
        SpaceError: a space that is not supported.
    """
    name, factory = display_name(env), find(env, vector)
    # Whether lanes are seeded one by one shows only where there are two.
    kind: Literal["scalar", "vector"] = "vector" if declares(factory, "num_envs") else "scalar"
    num_lanes = 2 if kind == "vector" else 1
    source = _open(name, factory, num_lanes, first_lane=0, seed=0)
    try:
        return EnvProfile(name, source.spaces, source.same_step, source.restorable, kind)
    finally:
        source.close()


def open_source(
    env: EnvReference | EnvFactory, vector: bool, num_lanes: int, first_lane: int = 0, seed: int | None = None
) -> EnvSource:
    """Make the environments of some lanes.

    Args:
        env: as for ``find``. Called with ``num_envs=num_lanes`` where it declares that parameter, and must then return
            a vector environment; otherwise called once a lane.
        vector: as for ``find``.
        num_lanes: how many lanes to step.
        first_lane: the number that messages give the first of them.
        seed: given to a factory that declares the parameter ``seed``: for sources that can be seeded only when they
            are made (EnvPool).

    Raises:
        EnvironmentFault: unknown, or it cannot be made.
        SpaceError: a space that is not supported.
    """
    return _open(display_name(env), find(env, vector), num_lanes, first_lane, seed)


def find(env: EnvReference | EnvFactory, vector: bool = False) -> EnvFactory:
    """What makes an environment.

    Args:
        env: a Gymnasium id (``module:id`` imports the module first), ``package.module:attribute`` (also in the working
            directory), a name under the entry points ``penstock.envs``, a pickled callable, or a callable.
        vector: for a Gymnasium id, use the vector environment that it registers.

    Raises:
        EnvironmentFault: in one line, with what to type.
    """
    if isinstance(env, bytes):
        env = _unpickled(env)
    factory = env if callable(env) else _named(env, vector)
    if vector and not declares(factory, "num_envs"):
        raise EnvironmentFault(
            f"{display_name(env)} makes one environment at a time: give it a parameter num_envs and return a vector "
            "environment, or leave out vector"
        )
    return factory


def reference(env: str | EnvFactory) -> EnvReference:
    """How an environment travels to another process: by its name where it has one, else pickled by value.

    Raises:
        EnvironmentFault: a callable that has no importable name and holds something that cannot be pickled.
    """
    if isinstance(env, str):
        return env
    module, name = getattr(env, "__module__", None), getattr(env, "__qualname__", "")
    if module and module != "__main__" and name.isidentifier():
        found = sys.modules.get(module)
        if getattr(found, name, None) is env and _importable(module):
            return f"{module}:{name}"
    import cloudpickle  # noqa: PLC0415  # takes 30 ms, and most environments have a name

    try:
        return bytes(cloudpickle.dumps(env))
    except Exception as error:
        raise EnvironmentFault(
            f"{display_name(env)} cannot be sent to another process ({one_line(error)}): "
            "put it into a module and name it, --env module:name"
        ) from error


def display_name(env: EnvReference | EnvFactory) -> str:
    """What messages, run folders and cards call an environment."""
    if isinstance(env, str):
        return env
    if isinstance(env, bytes):
        env = _unpickled(env)
    inner = getattr(env, "func", env)  # a functools.partial
    return str(getattr(inner, "__name__", type(inner).__name__)).strip("<>")


def _open(name: str, factory: EnvFactory, num_lanes: int, first_lane: int, seed: int | None) -> EnvSource:
    given = {"seed": seed} if seed is not None and declares(factory, "seed") else {}
    made: list[Any] = []
    try:
        if declares(factory, "num_envs"):
            made.append(_made(name, factory, {"num_envs": num_lanes, **given}))
            return VectorSource(name, made[0], num_lanes, first_lane)
        for _ in range(num_lanes):
            made.append(_made(name, factory, given))
            _check_scalar(name, made)
        return ScalarSource(name, made, first_lane)
    except BaseException:
        for env in made:
            getattr(env, "close", bool)()
        raise


def _made(name: str, factory: EnvFactory, given: dict[str, Any]) -> Any:
    try:
        return factory(**given)
    except UsageError:
        raise
    except Exception as error:
        raise EnvironmentFault(f"{name} cannot be made: {type(error).__name__}: {one_line(error, 300)}") from error


def _check_scalar(name: str, made: list[Any]) -> None:
    env = made[-1]
    if is_vector(env):
        raise EnvironmentFault(
            f"{name} returned a vector environment: give its factory a parameter num_envs, the number of lanes to make"
        )
    missing = [part for part in ("observation_space", "action_space", "reset", "step") if not hasattr(env, part)]
    if missing:
        raise EnvironmentFault(f"{name} returned {one_line(env)}, which has no {' and no '.join(missing)}")
    if any(env is other for other in made[:-1]):
        raise EnvironmentFault(f"{name} returned one environment twice: its factory must make a new one each time")


def _named(name: str, vector: bool) -> EnvFactory:
    module, colon, attribute = name.rpartition(":")
    if colon:
        found = _attribute(name, module, attribute)
        if found is not None:
            return found
        name = attribute
    return _registered(name, vector)


def _attribute(name: str, module: str, attribute: str) -> EnvFactory | None:
    """``module:attribute``, or ``None`` if ``attribute`` can only be an id, which the module may have registered."""
    loaded = _imported(name, module)
    found: Any = loaded
    for part in attribute.split("."):
        if not hasattr(found, part):
            if not all(map(str.isidentifier, attribute.split("."))):
                return None
            known = [known for known in vars(loaded) if not known.startswith("_")]
            raise EnvironmentFault(f"module {module} has no {attribute}{nearest(attribute, known)}")
        found = getattr(found, part)
    if not callable(found):
        raise EnvironmentFault(
            f"{name} is {one_line(repr(found))}, not something that can be called to make an environment"
        )
    return found  # type: ignore[no-any-return]


def _imported(name: str, module: str) -> Any:
    # A script started by its path has the folder of the script on the path, a console command its own.
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise EnvironmentFault(
                f"no module {module} for the environment {name}, neither installed nor in {here}"
            ) from error
        raise EnvironmentFault(f"module {module} cannot be imported: {one_line(error, 300)}") from error
    except Exception as error:
        raise EnvironmentFault(
            f"module {module} cannot be imported: {type(error).__name__}: {one_line(error, 300)}"
        ) from error


def _registered(name: str, vector: bool) -> EnvFactory:
    import gymnasium  # noqa: PLC0415  # 70 ms that a callable's environment may not need

    if name not in gymnasium.registry and importlib.util.find_spec("ale_py"):
        importlib.import_module("ale_py")  # registers the Atari games
    spec = gymnasium.registry.get(name)
    if spec is None:
        return _entry_point(name, list(gymnasium.registry))
    if str(spec.entry_point).startswith("gymnasium.envs.mujoco") and not importlib.util.find_spec("mujoco"):
        raise EnvironmentFault(_MUJOCO.format(name))
    if vector:
        return _vector_factory(spec)
    spec = copy.copy(spec)
    # The order of calls is penstock's own; the check of each step would cost 0.2 us and find nothing.
    spec.order_enforce = False
    return lambda: gymnasium.make(spec, disable_env_checker=True)


def _vector_factory(spec: Any) -> EnvFactory:
    import gymnasium  # noqa: PLC0415

    if spec.vector_entry_point is None:
        raise EnvironmentFault(f"{spec.id} has no vector environment of its own: leave out vector")

    def make_lanes(num_envs: int) -> Any:
        make = functools.partial(gymnasium.make_vec, spec, num_envs, vectorization_mode="vector_entry_point")
        try:
            return make(autoreset_mode=gymnasium.vector.AutoresetMode.DISABLED)
        except Exception:  # noqa: BLE001  # it says in its own way that it takes no such mode; then in the mode it has
            return make()

    return make_lanes


def _entry_point(name: str, known: list[str]) -> EnvFactory:
    points = {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    if name in points:
        point = points[name]
        found = _attribute(point.value, point.module, point.attr)
        if found is not None:
            return found
    if name.startswith("ALE/") or "NoFrameskip" in name:
        raise EnvironmentFault(_ATARI.format(name))
    hint = nearest(name, [*known, *points]) or "; give a Gymnasium id, module:attribute, or a callable"
    raise EnvironmentFault(f"unknown environment {name!r}{hint}")


def _unpickled(env: bytes) -> EnvFactory:
    return pickle.loads(env)  # type: ignore[no-any-return]  # from the launcher's own pipe, never from a file


def _importable(module: str) -> bool:
    """False for a module that lives in this process alone (a notebook's, one made at run time)."""
    return getattr(sys.modules.get(module), "__spec__", None) is not None
