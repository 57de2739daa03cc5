"""Suggests what to type instead of an unknown environment id or module.

Looks for installed modules. Imports only the packages above a module with a dotted name.
"""

import contextlib
import importlib.util
import itertools
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from penstock.errors import nearest

__all__ = ["hint", "module_hint"]


class _Package(NamedTuple):
    """A package that registers ids whose first word is not the name of a module."""

    module: str
    """The module to type before the id."""
    needs: tuple[str, ...]
    """Without these modules it registers nothing."""
    pip: str


_PACKAGES = {
    "babyai": _Package("minigrid", ("minigrid",), "minigrid"),
    "bsuite": _Package("shimmy", ("shimmy", "bsuite"), "shimmy[bsuite]"),
    "dm_control": _Package("shimmy", ("shimmy", "dm_control"), "shimmy[dm-control]"),
    "minigrid": _Package("minigrid", ("minigrid",), "minigrid"),
}
"""First word of the ids, in small letters -> package."""

_PIP = {
    "ale_py": "penstock[atari]",
    "bsuite": "bsuite",
    "crafter": "crafter",
    "dm_control": "dm-control",
    "envpool": "penstock[envpool]",
    "flappy_bird_gymnasium": "flappy-bird-gymnasium",
    "gymnasium_robotics": "gymnasium-robotics",
    "highway_env": "highway-env",
    "minigrid": "minigrid",
    "miniworld": "miniworld",
    "mo_gymnasium": "mo-gymnasium",
    "mujoco": "penstock[mujoco]",
    "pettingzoo": "penstock[pettingzoo]",
    "popgym": "popgym",
    "procgen": "procgen",
    "safety_gymnasium": "safety-gymnasium",
    "shimmy": "shimmy",
    "stable_baselines3": "stable-baselines3",
    "sumo_rl": "sumo-rl",
    "supersuit": "supersuit",
}
"""Module of environments or wrappers -> what pip calls it."""
_ALIKE = 0.85
"""From here on the first word of an id is a misspelt one of a package (by ``difflib``)."""
_SHORT = 4
"""For a name of fewer letters nothing is suggested: it resembles too many others."""


def hint(name: str, known: Iterable[str]) -> str:
    """What to type instead of an unknown id, as the end of a sentence.

    Args:
        name: the id, without a module before it.
        known: all known names, to suggest a similar one.
    """
    known = list(known)
    inside, dot, attribute = name.rpartition(".")
    if dot and all(map(str.isidentifier, name.split("."))) and _is_installed(inside.partition(".")[0]):
        is_module = _is_installed(name)
        return f"; it is a module: write {name}:NAME" if is_module else f"; did you mean {inside}:{attribute}?"
    base, version, _ = re.sub(r"-v(\d+)$", r"\n\1", name).partition("\n")
    if version and not any(other.startswith(f"{base}-v") for other in known):
        first = re.split("[-/]", base)[0].lower()
        package = _PACKAGES.get(next(iter(get_close_matches(first, _PACKAGES, 1, _ALIKE)), first))
        complete = package is not None and all(map(_is_installed, package.needs))
        # An imported module has registered all its ids, so naming it would not help.
        if package is not None and not (complete and package.module in sys.modules):
            install = "" if complete else f"pip install '{package.pip}', then "
            return f"; such ids are of {package.module}: {install}--env {package.module}:{name}"
        module = next(filter(_is_installed, _modules(base)), None)
        if module is not None and module not in sys.modules:
            return f"; module {module} is installed and may register it: --env {module}:{name}"
    return (
        nearest(name, known)
        or "; give a Gymnasium id, module:Id, module:name of what makes it, or in Python the callable itself"
    )


def module_hint(missing: str) -> str:
    """What to do about a module that cannot be found, as the end of a sentence; may be empty.

    Args:
        missing: its name; that of a package's module if only the package is there.
    """
    package, _, part = missing.rpartition(".")
    if part == "py":
        return f"; write the module without .py: {package}"
    if package:
        inside = getattr(sys.modules.get(package), "__path__", ())
        return nearest(missing, [f"{package}.{one.name}" for one in pkgutil.iter_modules(inside)])
    if part in _PIP:
        return f"; pip install '{_PIP[part]}'"
    if len(part) < _SHORT:
        return ""
    return nearest(part, [*_PIP, *(one.name for one in pkgutil.iter_modules([str(Path.cwd())]))])


def _modules(base: str) -> Iterator[str]:
    """Names of modules that may register an id, from its namespace or else its first words, longer names first."""
    namespace, slash, _ = base.partition("/")
    words = (namespace if slash else base).lower().replace("_", "-").split("-")
    for count, joint in itertools.product(range(len(words), 0, -1), ("_", "")):
        name = joint.join(words[:count])
        yield from (name, f"{name}_env", f"gym_{name}")


def _is_installed(module: str) -> bool:
    """True for an installed module that is not a part of Python itself."""
    if module in sys.stdlib_module_names or not module.replace(".", "").isidentifier():
        return False
    # A module that was made by hand may have no spec. The packages above a module are imported: their code may raise
    # anything.
    with contextlib.suppress(Exception):
        return importlib.util.find_spec(module) is not None
    return False
