"""Adapts environments of the older API: ``step`` returns four values, ``reset`` returns only the observation.

Imports no ``gym``. Handles each historical difference on its own, so that any mixture of them works:
https://gymnasium.farama.org/introduction/migration_guide/.
"""

import inspect
from collections.abc import Callable
from typing import Any

from penstock.envs.rows import as_truth

__all__ = ["OlderEnv", "declares", "is_current", "reset_values"]


class OlderEnv:
    """Gives the present ``reset`` and ``step`` to an environment of the older API, or without a base class.

    Attributes:
        seeded: an episode can be seeded, by ``reset(seed=)`` or by ``seed()``.
    """

    def __init__(self, env: Any) -> None:
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.metadata = getattr(env, "metadata", None)
        self._env = env
        self._step = env.step
        self._reset_takes_seed = _reset_takes_seed(env)
        seed = getattr(env, "seed", None)
        self._seed = seed if callable(seed) else None
        self.seeded = self._reset_takes_seed or self._seed is not None

    def reset(self, *, seed: int) -> tuple[Any, Any]:
        """Start an episode: observation and info."""
        if self._reset_takes_seed:
            return reset_values(self._env.reset(seed=seed))
        if self._seed is not None:
            self._seed(seed)
        return reset_values(self._env.reset())

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        """One step: observation, reward, terminated, truncated, info.

        Of four values, ``done`` counts as truncated if ``info["TimeLimit.truncated"]`` is true, else as terminated.
        """
        result = self._step(action)
        if len(result) != 4:
            return result  # type: ignore[no-any-return]  # the caller refuses any number but five
        obs, reward, done, info = result
        if not done:
            return obs, reward, False, False, info
        ended = as_truth(done, "done")
        truncated = ended and bool(info) and bool(info.get("TimeLimit.truncated", False))
        return obs, reward, ended and not truncated, truncated, info

    def render(self) -> Any:
        """The present picture, if the environment has one."""
        render = getattr(self._env, "render", None)
        if render is None:
            return None
        return render(mode="rgb_array") if declares(render, "mode") else render()

    def close(self) -> None:
        """Close the environment, if it can be closed."""
        close = getattr(self._env, "close", None)
        if close is not None:
            close()


def is_current(env: Any) -> bool:
    """True for an environment that derives from Gymnasium's and whose ``reset`` takes a seed."""
    ours = any(base.__module__.partition(".")[0] == "gymnasium" for base in type(env).__mro__)
    return ours and _reset_takes_seed(env)


def reset_values(result: Any) -> tuple[Any, Any]:
    """Observation and info from the result of ``reset``. The older ``reset`` returns the observation alone."""
    if isinstance(result, tuple) and len(result) == 2 and (result[1] is None or isinstance(result[1], dict)):
        return result
    return result, {}


def declares(function: Callable[..., Any], parameter: str) -> bool:
    """True if a callable has a parameter of that name."""
    try:
        return parameter in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False  # built-in callables may have no signature


def _reset_takes_seed(env: Any) -> bool:
    """True if ``reset`` takes a seed.

    A ``reset(**kwargs)`` takes what the environment inside a wrapper takes, or what the next base class takes that has
    a ``reset``: they are handed the keywords on.
    """
    passes_on = declares(env.reset, "seed") or _takes_any_keyword(env.reset)
    return passes_on and _has_seed(getattr(env, "unwrapped", env))


def _has_seed(env: Any) -> bool:
    # The reset of Gymnasium's own base class says nothing: hardware that cannot be seeded may derive from it, too.
    bases = [base for base in type(env).__mro__ if base.__module__ not in {"gymnasium.core", "gym.core"}]
    for reset in (env.reset, *(vars(base)["reset"] for base in bases if "reset" in vars(base))):
        if declares(reset, "seed"):
            return True
        if not _takes_any_keyword(reset):
            return False
    return False


def _takes_any_keyword(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
