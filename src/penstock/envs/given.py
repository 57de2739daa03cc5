"""Environment, wrappers and reward of a run: by name in its config, or as objects that the caller passes instead.

Makes no environment and imports none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.config.schema import RunConfig
from penstock.config.tables import table_of
from penstock.envs.fields import one_line
from penstock.envs.imports import name_of, sendable
from penstock.envs.opponents import PoolSettings
from penstock.errors import ConfigError
from penstock.types import EnvFactory, EnvRecipe, EnvReference, Wrapper

__all__ = ["Given", "by_value", "given_of", "named", "shape_of"]


@dataclass(frozen=True)
class Given:
    """The objects that a caller passed. ``None``: the config holds a name."""

    env: EnvFactory | None = None
    wrap: tuple[Wrapper, ...] | None = None
    reward: Callable[..., Any] | None = None

    def environment(self, run: RunConfig) -> EnvReference | EnvFactory:
        """The name, factory or recipe of a run's environments."""
        env = run.env if self.env is None else self.env
        wrap = self.wrap
        if wrap is None:
            wrap = tuple(Wrapper(one.use, one.arguments) for one in run.wrap or ())
        # Who they are is known once the run is planned.
        opponents = PoolSettings(run.opponent_rule) if run.opponents else None
        shaped = run.env_args or wrap or opponents is not None
        return EnvRecipe(env, run.env_args or {}, wrap, opponents) if shaped else env


def named(settings: Mapping[str, Any], env: EnvFactory | None = None) -> tuple[dict[str, Any], Given]:
    """Replace objects in settings by their names.

    Args:
        settings: name -> value; ``env``, ``wrap`` and ``reward`` may be callables.
        env: a callable that makes the environment.

    Returns:
        The settings with names only, and the objects whose names cannot be imported.

    Raises:
        ConfigError: a wrapper is neither a name nor a callable; there are two environments, or one is no callable.
        EnvError: an object without a name cannot be sent to another process.
    """
    if not isinstance(settings, Mapping):
        raise ConfigError(f"settings are a mapping, as {{'env': 'CartPole-v1'}}, not {one_line(repr(settings))}")
    plain = dict(settings)
    if env is not None and settings.get("env") is not None:
        raise ConfigError("there is an environment in the settings, and another as env; leave out one of the two")
    if hasattr(settings.get("env"), "observation_space") and not callable(settings["env"]):
        raise ConfigError(
            "env is an environment, and each lane needs one of its own; give its name, or a function that makes one: "
            "lambda: gymnasium.make('CartPole-v1')"
        )
    if callable(settings.get("env")):
        plain["env"], env = _named(settings["env"], "environment")
    wrap: tuple[Wrapper, ...] | None = None
    if settings.get("wrap") is not None:
        wrappers = _wrappers(settings["wrap"])
        parts = [_named(wrapper.make, "wrapper") for wrapper in wrappers]
        plain["wrap"] = [
            {"use": name, "arguments": wrapper.arguments} for (name, _), wrapper in zip(parts, wrappers, strict=True)
        ]
        if any(value is not None for _, value in parts):
            wrap = wrappers
    reward = None
    if callable(settings.get("reward")):
        plain["reward"], reward = _named(settings["reward"], "reward")
    return plain, Given(env, wrap, reward)


def given_of(
    env: EnvFactory | None = None, wrap: Sequence[Any] | None = None, reward: Callable[..., Any] | None = None
) -> Given:
    """The objects that a caller passes again for an existing run.

    Raises:
        ConfigError: a wrapper is neither a name nor a callable.
    """
    return Given(env, None if wrap is None else _wrappers(wrap), reward)


def shape_of(env: EnvReference) -> dict[str, Any]:
    """Arguments and wrappers of an environment, as JSON, for the run's identity; ``None`` if there are none."""
    if not isinstance(env, EnvRecipe):
        return {"env_args": None, "wrap": None}
    wrap = [{"use": name_of(wrapper.make), "arguments": dict(wrapper.arguments)} for wrapper in env.wrap]
    return {"env_args": dict(env.arguments) or None, "wrap": wrap or None}


def by_value(env: EnvReference, reward: str | bytes | None) -> dict[str, bool]:
    """Which of environment, wrappers and reward were passed as objects whose names cannot be imported."""
    recipe = env if isinstance(env, EnvRecipe) else EnvRecipe(env, {}, ())
    return {
        "env_by_value": isinstance(recipe.env, bytes),
        "wrap_by_value": any(isinstance(wrapper.make, bytes) for wrapper in recipe.wrap),
        "reward_by_value": isinstance(reward, bytes),
    }


def _named(given: Any, what: str) -> tuple[str, Any]:
    """The name of an object; also the object itself if its name cannot be imported."""
    found = sendable(given, what)
    return (found, None) if isinstance(found, str) else (name_of(given), given)


def _wrappers(given: Any) -> tuple[Wrapper, ...]:
    if isinstance(given, str):
        given = given.split(",")
    elif callable(given) or isinstance(given, Mapping):
        given = [given]
    return tuple(map(_wrapper, given))


def _wrapper(given: Any) -> Wrapper:
    make, arguments = given, {}
    if isinstance(given, Mapping):
        make, arguments = given.get("use"), given.get("arguments", {})
    if not (isinstance(make, str) or callable(make)):
        raise ConfigError(
            f"wrap takes module:Wrapper, a callable, or a dict with use (one of these) and arguments, not {given}"
        )
    return Wrapper(make, table_of(arguments, f"arguments of wrapper {name_of(make)}"))
