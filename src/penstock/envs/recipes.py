"""Environments with arguments and in wrappers: what makes one, out of what makes it plain. Looks up no environment."""

import contextlib
import functools
from typing import Any

from penstock.envs.fields import one_line
from penstock.envs.imports import find_callable, name_of
from penstock.envs.legacy import declares
from penstock.errors import EnvError
from penstock.types import EnvFactory, EnvRecipe, Wrapper

__all__ = ["made_by"]

_LANES = ("num_envs", "seed")
"""What penstock itself gives to what makes many lanes at once."""


def made_by(recipe: EnvRecipe, plain: EnvFactory, name: str) -> EnvFactory:
    """What makes the environment of a recipe.

    Args:
        recipe: arguments and wrappers.
        plain: makes the environment without them.
        name: what messages call it.

    Raises:
        EnvError: ``plain`` makes many lanes at once, which no wrapper fits around, or an argument is not the user's to
            give; a wrapper that is not there or cannot be called.
    """
    if declares(plain, "num_envs"):
        return _lanes_of(recipe, plain, name)
    wrappers = [
        (_called(wrapper), find_callable(wrapper.make, "wrapper"), wrapper.arguments) for wrapper in recipe.wrap
    ]

    def make() -> Any:
        env = plain(**recipe.arguments)
        for called, wrap, arguments in wrappers:
            env = _wrapped(env, called, functools.partial(wrap, **arguments), name)
        return env

    return make


def _lanes_of(recipe: EnvRecipe, plain: EnvFactory, name: str) -> EnvFactory:
    if recipe.wrap:
        raise EnvError(
            f"--wrap cannot wrap {name}: it steps many lanes in one call, and a wrapper takes one environment; apply "
            "what you need in a factory of your own that takes num_envs: --env module:make_lanes"
        )
    for own in _LANES:
        if own in recipe.arguments:
            raise EnvError(f"--env_args gives {name} {own}, which is the run's: give --{own} instead")
    return functools.partial(plain, **recipe.arguments)


def _wrapped(env: Any, called: str, wrap: EnvFactory, name: str) -> Any:
    """The environment in one more wrapper; where that fails it is closed."""
    with contextlib.ExitStack() as stack:
        if hasattr(env, "close"):
            stack.callback(env.close)
        try:
            found = wrap(env)
        except Exception as error:
            why = f"{type(error).__name__}: {one_line(error, 300)}"
            raise EnvError(f"{called} cannot be put around {name}: {why}") from error
        missing = [part for part in ("observation_space", "action_space", "reset", "step") if not hasattr(found, part)]
        if missing:
            raise EnvError(f"{called} returned {one_line(found)}, which has no {' and no '.join(missing)}")
        stack.pop_all()
    return found


def _called(wrapper: Wrapper) -> str:
    return f"wrapper {name_of(wrapper.make)}"
