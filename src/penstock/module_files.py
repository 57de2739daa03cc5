"""Where the files of a module are, and whether they are installed with Python. Imports no module."""

import importlib.util
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

__all__ = ["is_installed", "place_of", "places"]


def places(module: str) -> Iterator[Path]:
    """The file of a top-level module, or the folders of a package; nothing if there is no such module.

    ``__main__`` is the script that Python was started with.
    """
    if module == "__main__":
        # In an interactive interpreter it has no file.
        script = getattr(sys.modules[module], "__file__", None)
        yield from () if script is None else (Path(script).resolve(),)
        return
    found = importlib.util.find_spec(module)
    if found is None or found.origin in {"built-in", "frozen"}:
        return
    if found.submodule_search_locations is None:
        yield Path(str(found.origin)).resolve()
    else:
        yield from (Path(folder).resolve() for folder in found.submodule_search_locations)


def place_of(module: str) -> Path | None:
    """The file of a module, or the folder of a package, also inside another package; ``None`` if there is none.

    Args:
        module: ``my_package.my_module``.
    """
    top, *inner = module.split(".")
    # `find_spec` of the whole name would import the packages above it.
    for place in places(top):
        within = place.joinpath(*inner)
        if not inner or within.is_dir():
            return within
        file = within.with_suffix(".py")
        if file.is_file():
            return file
    return None


def is_installed(path: Path) -> bool:
    """Whether a path belongs to this machine's Python."""
    own = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    # A virtual environment may be reached by a link.
    return any(path.is_relative_to(Path(folder).resolve()) for folder in (*own, site.getusersitepackages()))
