"""Makes environments of the package `gym`, the predecessor of Gymnasium, by its own registry.

Imports no ``gym``: it must be imported already. `penstock.envs.older_api` adapts the API of what is made here.
"""

import functools
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from penstock.envs.older_api import declares
from penstock.errors import EnvError, nearest
from penstock.types import EnvFactory

__all__ = ["PACKAGE", "factory_of", "ids", "refuse_checker"]

PACKAGE = "gym"
_CHECKER = "gym.utils.passive_env_checker"


def factory_of(name: str) -> EnvFactory:
    """The factory of an id in the registry of ``gym``.

    Raises:
        EnvError: it has no such id.
    """
    known = ids()
    if name not in known:
        similar = nearest(f"{PACKAGE}:{name}", [f"{PACKAGE}:{one}" for one in known])
        raise EnvError(f"module {PACKAGE} registers no environment {name}{similar}")
    make = sys.modules[PACKAGE].make
    # Otherwise `refuse_checker` says that it is needed.
    if declares(make, "disable_env_checker"):
        return functools.partial(make, name, disable_env_checker=True)
    return functools.partial(make, name)


def ids() -> tuple[str, ...]:
    """All ids in the registry of ``gym``. None if it is not imported, or another module has taken its name."""
    package: Any = sys.modules.get(PACKAGE)
    # Some programs put Gymnasium there under the name of gym.
    if getattr(package, "__name__", None) != PACKAGE or not hasattr(package, "make"):
        return ()
    registry = getattr(getattr(package, "envs", None), "registry", None)
    # Since gym 0.24 the registry is a dict. Before, it is an object that holds one.
    specs = registry if isinstance(registry, Mapping) else getattr(registry, "env_specs", ())
    return tuple(specs)


def refuse_checker(name: str, error: Exception) -> None:
    """Say what to do if the checker of ``gym`` has failed, and not the environment.

    With numpy 2, the checker of gym 0.24 to 0.26 fails in the first step: it asks for ``numpy.bool8``.

    Args:
        name: of the environment, for the error text.
        error: what a step has raised.

    Raises:
        EnvError: the checker has failed.
    """
    if not isinstance(error, AttributeError) or "has no attribute 'bool8'" not in str(error):
        return
    if any(frame.f_globals.get("__name__") == _CHECKER for frame, _ in traceback.walk_tb(error.__traceback__)):
        # Without the cause, because the line says everything.
        raise EnvError(
            f"{name}: the environment checker of gym does not work with numpy 2 ({error}): make the environment by "
            "gym.make(..., disable_env_checker=True)"
        ) from None
