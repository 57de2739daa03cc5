"""Games as environments: ``gamecore://module:Agent``. They connect to the run; penstock never makes one.

Finds the agent's class and reads its spaces. Does not listen, and runs no agent.
"""

import functools
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from penstock.envs.fields import one_line
from penstock.envs.imports import find_callable, name_of
from penstock.envs.masks import IN_INFO, IN_OBSERVATION, with_mask
from penstock.envs.spaces import spaces_of
from penstock.errors import EnvError, nearest
from penstock.types import EnvFactory, EnvRecipe, EnvReference, Spaces

__all__ = ["SCHEME", "agent_class", "agent_maker", "agent_name", "game_spaces", "is_game"]

SCHEME = "gamecore://"
_HOOKS = ("on_tick", "on_episode")
"""Methods of an agent that its games call."""
_ALIKE = 0.75
"""From here on a name is a misspelt one (by ``difflib``), not a helper of the user's own."""


def is_game(env: EnvReference | EnvFactory) -> bool:
    """Whether an environment is a game that connects to the run."""
    named = env.env if isinstance(env, EnvRecipe) else env
    return isinstance(named, str) and named.startswith(SCHEME)


def agent_name(env: EnvReference | EnvFactory) -> str:
    """The part of its name that names the agent, in one form: ``module.Agent`` is ``module:Agent``."""
    name = name_of(env.env if isinstance(env, EnvRecipe) else env).removeprefix(SCHEME)
    return name if ":" in name else ":".join(name.rsplit(".", 1))


def agent_class(env: EnvReference | EnvFactory) -> Any:
    """The agent's class: ``module:Agent``, or ``module.Agent``.

    Raises:
        EnvError: it is not found or has no spaces; in one line, with what to type.
    """
    name = agent_name(env)
    if ":" not in name:
        raise EnvError(f"{SCHEME}{name} names no agent: write {SCHEME}{name or 'my_game'}:GameAgent")
    found: Any = find_callable(name, "agent")
    for part in dir(found):
        if part.startswith("on_") and part not in _HOOKS and get_close_matches(part, _HOOKS, 1, _ALIKE):
            raise EnvError(f"agent {name} has a method {part}, which nothing calls{nearest(part, _HOOKS)}")
    missing = [part for part in ("observation_space", "action_space", *_HOOKS) if not hasattr(found, part)]
    if missing:
        raise EnvError(
            f"agent {name} has no {' and no '.join(missing)}: derive it from penstock.Agent and give it two spaces"
        )
    return found


def agent_maker(env: EnvReference | EnvFactory) -> Callable[[], Any]:
    """Makes agents of the user's class, with the user's arguments. One is made here, to see that it can be.

    Raises:
        EnvError: it is not found, or cannot be made.
    """
    make = functools.partial(agent_class(env), **(env.arguments if isinstance(env, EnvRecipe) else {}))
    try:
        make()
    except Exception as error:
        why = f"{type(error).__name__}: {one_line(error, 300)}"
        raise EnvError(f"agent {agent_name(env)} cannot be made: {why}") from error
    return make


def game_spaces(
    env: EnvReference | EnvFactory, ignore_obs: tuple[str, ...], *, masks: bool
) -> tuple[Spaces, str | None]:
    """The spaces of one agent, and the field of an action mask that it gives and that is not used.

    Args:
        env: the agent.
        ignore_obs: fields of the observation to leave out.
        masks: use its action mask, if it gives one.

    Raises:
        UsageError: the agent is not found or cannot be made, or a space is not supported.
    """
    found = agent_class(env)
    agent_maker(env)
    spaces = spaces_of(found.observation_space, found.action_space, None, ignore_obs)
    mask = None
    if spaces.action.choices:
        in_observation = any(name == IN_OBSERVATION for name, _ in spaces.obs)
        mask = IN_OBSERVATION if in_observation else IN_INFO if getattr(found, "action_mask", False) else None
    return (with_mask(spaces, mask), None) if masks else (spaces, mask)
