"""What makes an environment, by name: a Gymnasium id, ``module:attribute``, ``envpool:task``, or a callable itself.

Gymnasium is imported only where an id is looked up. Nothing is made here.
"""

import copy
import functools
import importlib
import importlib.util
import pickle
import sys
from pathlib import Path
from typing import Any

from penstock.envs import atari
from penstock.envs.fields import one_line
from penstock.envs.legacy import declares
from penstock.envs.unknown import hint
from penstock.errors import EnvError, nearest
from penstock.registry import ENV_PACKAGES, ENVS, load, search_working_directory
from penstock.types import EnvFactory, EnvReference

__all__ = ["display_name", "find", "note", "reference"]


def find(env: EnvReference | EnvFactory, vector: bool = False) -> EnvFactory:
    """What makes an environment.

    Args:
        env: a Gymnasium id (``module:id`` imports the module first), ``package.module:attribute`` (also in the working
            directory), ``envpool:task``, a name under the entry points ``penstock.envs``, a pickled callable, or a
            callable.
        vector: for a Gymnasium id, use the vector environment that it registers.

    Raises:
        EnvError: in one line, with what to type.
    """
    if isinstance(env, bytes):
        env = _unpickled(env)
    factory = env if callable(env) else _named(env, vector)
    if vector and not declares(factory, "num_envs"):
        raise EnvError(
            f"{display_name(env)} makes one environment at a time: give it a parameter num_envs and return a vector "
            "environment, or leave out vector_env"
        )
    return factory


def reference(env: EnvReference | EnvFactory) -> EnvReference:
    """How an environment travels to another process: by its name where it has one, else pickled by value.

    Raises:
        EnvError: a callable that no module names and that holds something which cannot be pickled.
    """
    if isinstance(env, str | bytes):
        return env
    module, name = getattr(env, "__module__", None), getattr(env, "__qualname__", "")
    if module != "__main__" and name.isidentifier() and _importable(module, name, env):
        return f"{module}:{name}"
    import cloudpickle  # noqa: PLC0415  # most environments have a name

    try:
        return bytes(cloudpickle.dumps(env))
    except Exception as error:
        raise EnvError(
            f"environment {display_name(env)} cannot be sent to another process ({one_line(error)}): "
            "put what makes it into a module and name it as module:attribute"
        ) from error


def display_name(env: EnvReference | EnvFactory) -> str:
    """What messages, run folders and cards call an environment."""
    if isinstance(env, str):
        return env
    made_by = _unpickled(env) if isinstance(env, bytes) else env
    inner = getattr(made_by, "func", made_by)  # of a functools.partial
    return str(getattr(inner, "__name__", type(inner).__name__)).strip("<>")


def note(env: EnvReference | EnvFactory) -> str:
    """One line on what is done to an environment's observations beyond what it gives; empty where nothing is."""
    return atari.NOTE if isinstance(env, str) and atari.is_name(env) else ""


def _named(name: str, vector: bool) -> EnvFactory:
    module, colon, attribute = name.rpartition(":")
    if not colon:
        return _registered(name, vector)
    package = ENV_PACKAGES.get(module)
    if package is not None:
        return load(package)(attribute)  # type: ignore[no-any-return]
    loaded = _imported(name, module)
    if all(map(str.isidentifier, attribute.split("."))):
        return _attribute(name, loaded, attribute)
    return _registered(attribute, vector)


def _imported(name: str, module: str) -> Any:
    search_working_directory()
    try:
        return importlib.import_module(module)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            raise EnvError(
                f"there is no module {missing}, which environment {name} names, neither installed nor in {Path.cwd()}"
            ) from error
        raise EnvError(f"module {module} cannot be imported: {type(error).__name__}: {one_line(error, 300)}") from error


def _attribute(name: str, module: Any, attribute: str) -> EnvFactory:
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = [known for known in vars(found) if not known.startswith("_")]
            raise EnvError(f"module {module.__name__} has no {attribute}{nearest(part, known)}")
        found = getattr(found, part)
    if not callable(found):
        raise EnvError(f"{name} is {one_line(found)}, which cannot be called to make an environment")
    return found  # type: ignore[no-any-return]


def _registered(name: str, vector: bool) -> EnvFactory:
    import gymnasium  # noqa: PLC0415  # 70 ms that a user's own environment may not need

    emulator = importlib.util.find_spec("ale_py")
    if atari.is_name(name) and not emulator:
        raise EnvError(f"environment {name} needs the Atari emulator: pip install 'penstock[atari]'")
    if name not in gymnasium.registry and emulator:
        importlib.import_module("ale_py")  # which registers the Atari games
    spec = gymnasium.registry.get(name)
    if spec is None:
        return _added(name, list(gymnasium.registry))
    physics = str(spec.entry_point).startswith("gymnasium.envs.mujoco")
    if physics and not all(importlib.util.find_spec(needed) for needed in ("mujoco", "imageio")):
        raise EnvError(f"environment {name} needs MuJoCo: pip install 'penstock[mujoco]'")
    if atari.serves(spec):
        return atari.lanes_of(spec)
    if vector:
        return _vector_entry_point(spec)
    spec = copy.copy(spec)
    # The wrapper that checks the order of calls would cost 0.2 us a step; the order here is always the same.
    spec.order_enforce = False
    return functools.partial(gymnasium.make, spec, disable_env_checker=True)


def _vector_entry_point(spec: Any) -> EnvFactory:
    if spec.vector_entry_point is None:
        raise EnvError(f"environment {spec.id} has no vector environment of its own: leave out vector_env")

    def make_lanes(num_envs: int) -> Any:
        from gymnasium import make_vec  # noqa: PLC0415
        from gymnasium.vector import AutoresetMode  # noqa: PLC0415

        make = functools.partial(make_vec, spec, num_envs, vectorization_mode="vector_entry_point")
        try:
            return make(autoreset_mode=AutoresetMode.DISABLED)
        except Exception:  # noqa: BLE001  # each says in its own way that it does not know that mode
            return make()

    return make_lanes


def _added(name: str, known: list[str]) -> EnvFactory:
    """An environment that an installed package adds by an entry point."""
    entry = ENVS.get(name)
    if entry is not None:
        module, _, attribute = entry.partition(":")
        return _attribute(name, _imported(name, module), attribute)
    raise EnvError(f"unknown environment {name!r}{hint(name, [*known, *ENVS.names()])}")


def _unpickled(env: bytes) -> EnvFactory:
    return pickle.loads(env)  # type: ignore[no-any-return]  # from the launcher's own pipe, never from a file


def _importable(module: str | None, name: str, env: EnvFactory) -> bool:
    """True if another process finds the same object; not so for a notebook's or one that was replaced since."""
    loaded = sys.modules.get(module or "")
    return getattr(loaded, "__spec__", None) is not None and getattr(loaded, name, None) is env
