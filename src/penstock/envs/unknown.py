"""What to type in place of an id that nothing has registered. It looks for modules, and imports none."""

import contextlib
import importlib.util
import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.errors import nearest

__all__ = ["hint"]


class _Package(NamedTuple):
    """What registers ids whose first word is not the name of a module."""

    module: str
    """To be named before the id."""
    needs: tuple[str, ...]
    """Modules without which it registers nothing."""
    pip: str


_PACKAGES = {
    "babyai": _Package("minigrid", ("minigrid",), "minigrid"),
    "bsuite": _Package("shimmy", ("shimmy", "bsuite"), "shimmy[bsuite]"),
    "dm_control": _Package("shimmy", ("shimmy", "dm_control"), "shimmy[dm-control]"),
    "minigrid": _Package("minigrid", ("minigrid",), "minigrid"),
}
"""By the first word of their ids, in small letters."""


def hint(name: str, known: Iterable[str]) -> str:
    """What to type in place of an unknown id, as the end of a sentence.

    Args:
        name: the id, without a module before it.
        known: the names that could have been meant.
    """
    known = list(known)
    base, version, _ = re.sub(r"-v(\d+)$", r"\n\1", name).partition("\n")
    if version and not any(other.startswith(f"{base}-v") for other in known):
        package = _PACKAGES.get(re.split("[-/]", base)[0].lower())
        complete = package is not None and all(map(_is_installed, package.needs))
        # A module that is imported has registered what it can.
        if package is not None and not (complete and package.module in sys.modules):
            install = "" if complete else f"pip install '{package.pip}', then "
            return f"; {package.module} registers it: {install}--env {package.module}:{name}"
        module = next(filter(_is_installed, _modules(base)), None)
        if module is not None and module not in sys.modules:
            return f"; module {module} is installed and may register it: --env {module}:{name}"
    return nearest(name, known) or "; give a Gymnasium id, module:attribute, or a callable"


def _modules(base: str) -> Iterator[str]:
    """Names of modules that may register an id: those of its namespace, else of its first words, more words first."""
    namespace, slash, _ = base.partition("/")
    words = (namespace if slash else base).lower().replace("_", "-").split("-")
    for count, joint in itertools.product(range(len(words), 0, -1), ("_", "")):
        name = joint.join(words[:count])
        yield from (name, f"{name}_env", f"gym_{name}")


def _is_installed(module: str) -> bool:
    """True for a module that is no part of Python itself."""
    if module in sys.stdlib_module_names or not module.isidentifier():
        return False
    with contextlib.suppress(ValueError):  # a module that was put together by hand may have no spec
        return importlib.util.find_spec(module) is not None
    return False
