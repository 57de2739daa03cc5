"""Which modules a run names: where its environment, wrappers, reward, algorithm and network come from. Imports none."""

from collections.abc import Callable, Iterator
from typing import Any

from penstock.algorithm_lookup import AlgorithmPackage, find_algorithm, ships
from penstock.config.whole import Config
from penstock.envs.given import Given
from penstock.envs.imports import sendable
from penstock.envs.names import reference
from penstock.registry import ENV_PACKAGES
from penstock.types import EnvRecipe, EnvReference

__all__ = ["modules_named", "modules_of", "top_level"]


def modules_named(
    env: EnvReference | Callable[..., Any],
    reward: object = None,
    algorithm: AlgorithmPackage | None = None,
    model: object = None,
) -> tuple[str, ...]:
    """The modules of all that is given, such as ``my_package.my_module``, save penstock.

    They may be installed, the user's own, or missing.

    An object without a name is of ``__main__``: the user's script, which may have modules beside it.

    Args:
        env: the environment, with its wrappers.
        reward: the own reward.
        algorithm: the one that learns.
        model: the own network.
    """
    package = None if algorithm is None or ships(algorithm) else f"{algorithm.package}:"
    references = (*_of_environment(env), reward, package, model)
    found = (_module(reference) for reference in references)
    return tuple(dict.fromkeys(name for name in found if name))


def modules_of(config: Config, given: Given) -> tuple[str, ...]:
    """The top-level modules that a config names, before anything of it is settled.

    Args:
        config: of the run.
        given: what was passed as an object.
    """
    run, model = config.run, getattr(config.algorithm, "model", None)
    reward = run.reward if given.reward is None else sendable(given.reward, "reward")
    return top_level(modules_named(reference(given.environment(run)), reward, find_algorithm(run.algo), model))


def top_level(modules: tuple[str, ...]) -> tuple[str, ...]:
    """The modules and packages that these are, or are in."""
    return tuple(dict.fromkeys(module.partition(".")[0] for module in modules))


def _of_environment(env: object) -> Iterator[object]:
    if isinstance(env, EnvRecipe):
        yield env.env
        yield from (wrapper.make for wrapper in env.wrap)
    else:
        yield env


def _module(reference: object) -> str:
    """The module of ``module:attribute``, ``scheme://module:attribute`` or ``pettingzoo:module``; else empty."""
    if isinstance(reference, bytes):
        return "__main__"
    if not isinstance(reference, str):
        return ""
    module, colon, behind = reference.rpartition("://")[2].partition(":")
    if ENV_PACKAGES.get(module) is not None:
        module = behind.partition(":")[0]
    return module if colon and all(map(str.isidentifier, module.split("."))) else ""
