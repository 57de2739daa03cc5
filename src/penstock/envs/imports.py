"""Finds a user's own function or class: by ``module:attribute``, pickled by value, or the object itself.

Calls none of them.
"""

import contextlib
import importlib
import importlib.util
import inspect
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.envs.fields import one_line
from penstock.envs.unknown import module_hint
from penstock.errors import EnvError, nearest, place_in
from penstock.registry import search_working_directory

__all__ = ["attribute_of", "find_callable", "imported", "name_of", "sendable"]


def find_callable(given: str | bytes | Callable[..., Any], what: str) -> Callable[..., Any]:
    """The callable behind a name, a pickle, or the callable itself.

    Args:
        given: ``package.module:attribute`` (also in the working directory), a pickled callable, or a callable.
        what: its kind, for error texts: ``wrapper``, ``reward``.

    Raises:
        EnvError: it is not found or cannot be called; in one line, with what to type.
    """
    if isinstance(given, bytes):
        return pickle.loads(given)  # type: ignore[no-any-return]  # from the launcher's own pipe, never from a file
    if not isinstance(given, str):
        return given
    module, colon, attribute = given.rpartition(":")
    if not (colon and module and attribute):
        example = _with_colon(given) or "module:name, as in my_package.my_module:name"
        said = "is a module" if example.endswith(":NAME") else "is no name in a module"
        raise EnvError(f"{what} {given} {said}: write {example}")
    return attribute_of(f"{what} {given}", imported(f"{what} {given}", module), attribute)


def imported(whose: str, module: str) -> Any:
    """Import a module, also one in the working directory. ``whose`` says what needs it, for error texts.

    Raises:
        EnvError: there is no such module, or it cannot be imported.
    """
    search_working_directory()
    if not module:
        raise EnvError(f"{whose} names no module before its colon")
    if "," in module:
        raise EnvError(f"{whose} names several; give one")
    if not all(map(str.isidentifier, module.removesuffix(".py").split("."))):
        dotted = module.removesuffix(".py").replace("/", ".").strip(".")
        raise EnvError(f"{whose}: {module} is no name of a module; write it with dots and without .py: {dotted}")
    try:
        return importlib.import_module(module)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            where = f"no module named {missing} is installed or in {Path.cwd()}"
            hint = module_hint(missing) or "; start penstock where it is, or name its folder in PYTHONPATH"
            raise EnvError(f"{whose}: {where}{hint}") from error
        why = f"{type(error).__name__}: {one_line(error, 300)}{place_in(module, error)}"
        raise EnvError(f"{whose}: {module} cannot be imported: {why}") from error


def attribute_of(whose: str, module: Any, attribute: str) -> Callable[..., Any]:
    """The ``attribute`` of a module; its name may be dotted.

    Raises:
        EnvError: there is no such attribute, or it cannot be called.
    """
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = [known for known in dir(found) if not known.startswith("_")]
            raise EnvError(f"{whose}: module {module.__name__} has no {attribute}{nearest(part, known)}")
        found = getattr(found, part)
    if inspect.ismodule(found):
        raise EnvError(f"{whose} is a module; name what is in it: {found.__name__}:NAME")
    if not callable(found):
        raise EnvError(f"{whose} is {one_line(found)}, which cannot be called")
    return found  # type: ignore[no-any-return]


def sendable(given: str | bytes | Callable[..., Any], what: str) -> str | bytes:
    """The form that is sent to another process: ``module:name`` if that can be imported, else pickled by value.

    Raises:
        EnvError: the callable has no name to import it by, and cannot be pickled.
    """
    if isinstance(given, str | bytes):
        return given
    module, name = getattr(given, "__module__", None), getattr(given, "__qualname__", "")
    if module != "__main__" and name.isidentifier() and _importable(module, name, given):
        return f"{module}:{name}"
    import cloudpickle  # noqa: PLC0415  # most callables have a name and do not need it

    try:
        return bytes(cloudpickle.dumps(given))
    except Exception as error:
        raise EnvError(
            f"{what} {name_of(given)} cannot be sent to another process ({one_line(error)}): "
            "put what makes it into a module and name it as module:attribute"
        ) from error


def name_of(given: str | bytes | Callable[..., Any]) -> str:
    """Its name in messages, run folders and cards."""
    if isinstance(given, str):
        return given
    made_by = find_callable(given, "")
    inner = getattr(made_by, "func", made_by)  # of a functools.partial
    return str(getattr(inner, "__name__", type(inner).__name__)).strip("<>")


def _with_colon(given: str) -> str:
    """A dotted name with a colon behind its module; empty if it is no dotted name."""
    inside, dot, last = given.rpartition(".")
    if not (dot and all(map(str.isidentifier, given.split(".")))):
        return ""
    search_working_directory()
    # It imports the packages above the module, which are the user's: their code may raise anything.
    with contextlib.suppress(Exception):
        if importlib.util.find_spec(given):
            return f"{given}:NAME"
    return f"{inside}:{last}"


def _importable(module: str | None, name: str, given: Callable[..., Any]) -> bool:
    """True if another process finds the same object by name. False in a notebook, or if the name was reassigned."""
    loaded = sys.modules.get(module or "")
    return getattr(loaded, "__spec__", None) is not None and getattr(loaded, name, None) is given
