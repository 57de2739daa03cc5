"""Finds the factory of an environment: by id, ``module:attribute``, ``envpool:task``, address or callable.

Imports Gymnasium only to look up an id. Makes no environment.
"""

import copy
import functools
import importlib
import importlib.util
from dataclasses import replace
from typing import Any

from penstock.envs import atari, older_gym
from penstock.envs.games import is_game
from penstock.envs.imports import attribute_of, find_callable, imported, name_of, sendable
from penstock.envs.older_api import declares
from penstock.envs.recipes import made_by
from penstock.envs.unknown import hint
from penstock.errors import EnvError, nearest
from penstock.registry import ENV_PACKAGES, ENVS, load, search_working_directory
from penstock.types import EnvFactory, EnvRecipe, EnvReference, Wrapper

__all__ = ["display_name", "find", "note", "reference"]

ENGINES = (("MuJoCo", "mujoco", ("mujoco", "imageio")), ("Box2D", "box2d", ("Box2D", "pygame")))
"""Physics engine, its package of Gymnasium and extra of penstock, and the modules that its environments import."""


def find(env: EnvReference | EnvFactory, vector: bool = False) -> EnvFactory:
    """The factory of an environment.

    Args:
        env: a Gymnasium id (``module:id`` imports the module first), ``gym:id`` of the older package,
            ``package.module:attribute`` (also in the working directory), ``envpool:task``, ``pettingzoo:module``, a
            name under the entry points ``penstock.envs``, a pickled callable, a callable, or a recipe of one of these.
        vector: for a Gymnasium id, use its registered vector environment.

    Raises:
        EnvError: it is unknown, or needs another package; in one line, with what to type.
    """
    if is_game(env):
        raise EnvError(f"{display_name(env)} is a game that connects to its run, so nobody else can step it")
    if isinstance(env, EnvRecipe):
        return made_by(env, find(env.env, vector), display_name(env))
    factory = _named(env, vector) if isinstance(env, str) else find_callable(env, "environment")
    if vector and not declares(factory, "num_envs"):
        raise EnvError(
            f"{display_name(env)} makes one environment at a time: give it a parameter num_envs and return a vector "
            "environment, or leave out vector_env"
        )
    return factory


def reference(env: EnvReference | EnvFactory) -> EnvReference:
    """The form of an environment that is sent to another process: see `sendable`.

    Raises:
        EnvError: a callable has no name to import it by, and cannot be pickled.
    """
    if isinstance(env, EnvRecipe):
        wrap = tuple(Wrapper(sendable(wrapper.make, "wrapper"), wrapper.arguments) for wrapper in env.wrap)
        return replace(env, env=sendable(env.env, "environment"), wrap=wrap)
    return sendable(env, "environment")


def display_name(env: EnvReference | EnvFactory) -> str:
    """The name of an environment in messages, run folders and cards."""
    return name_of(env.env if isinstance(env, EnvRecipe) else env)


def note(env: EnvReference | EnvFactory) -> str:
    """One line on penstock's preprocessing of an environment; empty if there is none.

    Raises:
        EnvError: there is no such game, or its emulator is not installed: nothing is said of it then.
    """
    if not isinstance(env, str) or not atari.is_name(env):
        return ""
    find(env)
    return atari.NOTE


def _named(name: str, vector: bool) -> EnvFactory:
    scheme, behind, address = name.partition("://")
    if behind and ENV_PACKAGES.get(scheme) is not None:
        return load(ENV_PACKAGES[scheme])(address)  # type: ignore[no-any-return]
    first, colon, rest = name.partition(":")
    if not colon:
        return _registered(name, vector)
    package = ENV_PACKAGES.get(first)
    if package is not None:
        return load(package)(rest)  # type: ignore[no-any-return]
    module, _, attribute = name.rpartition(":")
    if not attribute:
        raise EnvError(f"environment {name} names nothing behind its colon")
    loaded = imported(f"environment {name}", module)
    if all(map(str.isidentifier, attribute.split("."))):
        return attribute_of(name, loaded, attribute)
    if module == older_gym.PACKAGE and older_gym.ids():
        # Gymnasium has other environments by the same ids.
        return older_gym.factory_of(attribute)
    return _registered(attribute, vector, module)


def _registered(name: str, vector: bool, module: str = "") -> EnvFactory:
    """The factory of a Gymnasium id. ``module``: what the user wrote before the id; it is imported already."""
    import gymnasium  # noqa: PLC0415  # takes 70 ms, and a user's own environment may not need it

    emulator = importlib.util.find_spec("ale_py")
    if atari.is_name(name) and not emulator:
        raise EnvError(f"environment {name} needs the Atari emulator: pip install 'penstock[atari]'")
    if name not in gymnasium.registry and emulator:
        importlib.import_module("ale_py")  # registers the Atari games
    spec = gymnasium.registry.get(name)
    if spec is None and module and name in older_gym.ids():
        return older_gym.factory_of(name)
    if spec is None and module:
        raise EnvError(f"module {module} registers no environment {name}{nearest(f'{module}:{name}', _ids_of(module))}")
    if spec is None:
        return _added(name, list(gymnasium.registry))
    for engine, extra, modules in ENGINES:
        needs_it = str(spec.entry_point).startswith(f"gymnasium.envs.{extra}")
        if needs_it and not all(importlib.util.find_spec(needed) for needed in modules):
            raise EnvError(f"environment {name} needs {engine}: pip install 'penstock[{extra}]'")
    if atari.serves(spec):
        return atari.lanes_of(spec)
    if vector:
        return _vector_entry_point(spec)
    spec = copy.copy(spec)
    # The wrapper that checks the order of calls costs 0.2 us a step. The order of calls here is always right.
    spec.order_enforce = False
    return functools.partial(gymnasium.make, spec, disable_env_checker=True)


def _vector_entry_point(spec: Any) -> EnvFactory:
    if spec.vector_entry_point is None:
        raise EnvError(f"environment {spec.id} has no vector environment of its own: leave out vector_env")

    def make_lanes(num_envs: int, **arguments: Any) -> Any:
        from gymnasium import make_vec  # noqa: PLC0415
        from gymnasium.vector import AutoresetMode  # noqa: PLC0415

        make = functools.partial(make_vec, spec, num_envs, vectorization_mode="vector_entry_point", **arguments)
        try:
            return make(autoreset_mode=AutoresetMode.DISABLED)
        except Exception:  # noqa: BLE001  # each environment refuses an unknown mode with an error of its own
            return make()

    return make_lanes


def _ids_of(module: str) -> list[str]:
    """The ids that a package has registered, each behind the name of the module."""
    import gymnasium  # noqa: PLC0415  # as above

    package = module.partition(".")[0]
    made_by = {name: spec.entry_point for name, spec in gymnasium.registry.items()}
    return [
        f"{module}:{name}"
        for name, maker in made_by.items()
        if str(maker if isinstance(maker, str) else getattr(maker, "__module__", "")).startswith(package)
    ]


def _added(name: str, known: list[str]) -> EnvFactory:
    """The factory of an environment that an installed package adds by an entry point."""
    entry = ENVS.get(name)
    if entry is not None:
        module, _, attribute = entry.partition(":")
        return attribute_of(name, imported(f"environment {name}", module), attribute)
    search_working_directory()
    raise EnvError(f"unknown environment {name!r}{hint(name, [*known, *ENVS.names()])}")
