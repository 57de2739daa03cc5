"""Makes environments with the user's arguments and wrappers. Looks up no environment."""

import contextlib
import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from penstock.envs.fields import one_line
from penstock.envs.imports import find_callable, name_of
from penstock.envs.older_api import declares
from penstock.errors import EnvError
from penstock.types import EnvFactory, EnvRecipe, Wrapper

__all__ = ["OPPONENTS", "made_by", "refusal"]

OPPONENTS = "played_by"
"""The parameter of a factory of lanes that takes the opponents of a recipe."""
_LANES = ("num_envs", "seed")
"""Arguments that penstock itself passes to a factory of many lanes."""
_ARGUMENT = re.compile(
    r"got an unexpected keyword argument '(?P<name>\w+)'|missing \d+ required .*arguments?: '(?P<missing>\w+)'"
)
"""What Python says of a call with other arguments than the function takes."""
_OF_WRAPPERS = '; a file for --config gives arguments: wrap = [{ use = "module:Wrapper", arguments = { ... } }]'


def made_by(recipe: EnvRecipe, plain: EnvFactory, name: str) -> EnvFactory:
    """The factory of a recipe's environment.

    Args:
        recipe: arguments and wrappers.
        plain: makes the environment without arguments and wrappers.
        name: of the environment, for error texts.

    Raises:
        EnvError: a wrapper is not found or cannot be called. Also if ``plain`` makes many lanes at once, and there are
            wrappers, or an argument that penstock passes itself; or there are opponents, and no agents for them.
    """
    if recipe.opponents is not None and not declares(plain, OPPONENTS):
        raise EnvError(f"--opponents play agents of environments of PettingZoo (pettingzoo:...), and {name} is none")
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


def refusal(name: str, arguments: Mapping[str, Any], error: Exception) -> EnvError:
    """The error for an environment whose factory has failed.

    Args:
        name: of the environment.
        arguments: of ``--env_args``; may be empty.
        error: what its call has raised.
    """
    why, given = f"{type(error).__name__}: {one_line(error, 300)}", _argument(error)
    if given is not None and given["name"] in arguments:
        return EnvError(f"environment {name} takes no {given['name']}, which --env_args gives it: {why}")
    if given is not None and given["missing"] == "env":
        return EnvError(f"environment {name} takes an environment, so it is a wrapper; give it by --wrap {name}")
    if given is not None and given["missing"]:
        example = json.dumps({given["missing"]: "..."})
        return EnvError(f"environment {name} cannot be made: {why}; give it one by --env_args '{example}'")
    by = f" with --env_args '{json.dumps(arguments)}'" if arguments else ""
    return EnvError(f"environment {name} cannot be made{by}: {why}")


def _argument(error: Exception) -> re.Match[str] | None:
    """The argument that a call gave in excess or lacked; ``None`` for other errors."""
    return _ARGUMENT.search(str(error)) if isinstance(error, TypeError) else None


def _lanes_of(recipe: EnvRecipe, plain: EnvFactory, name: str) -> EnvFactory:
    if recipe.wrap:
        raise EnvError(
            f"--wrap cannot wrap {name}: it steps many lanes in one call, and a wrapper takes one environment; apply "
            "your changes in a factory of your own that takes num_envs: --env module:make_lanes"
        )
    for own in _LANES:
        if own in recipe.arguments:
            raise EnvError(f"--env_args cannot give {name} {own}, which is a setting of the run: give --{own} instead")
    if recipe.opponents is not None:
        plain = functools.partial(plain, **{OPPONENTS: recipe.opponents})
    return functools.partial(plain, **recipe.arguments)


def _wrapped(env: Any, called: str, wrap: EnvFactory, name: str) -> Any:
    """Wrap the environment once more. If that fails, the environment is closed."""
    with contextlib.ExitStack() as stack:
        if hasattr(env, "close"):
            stack.callback(env.close)
        try:
            found = wrap(env)
        except Exception as error:
            why = f"{type(error).__name__}: {one_line(error, 300)}"
            given = _argument(error)
            how = _OF_WRAPPERS if given is not None and given["missing"] else ""
            raise EnvError(f"{called} cannot wrap {name}: {why}{how}") from error
        missing = [part for part in ("observation_space", "action_space", "reset", "step") if not hasattr(found, part)]
        if missing:
            raise EnvError(f"{called} returned {one_line(found)}, which has no {' and no '.join(missing)}")
        stack.pop_all()
    return found


def _called(wrapper: Wrapper) -> str:
    return f"wrapper {name_of(wrapper.make)}"
