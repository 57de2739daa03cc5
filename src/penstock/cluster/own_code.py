"""The user's own code, which Ray's runtime environment brings to the other machines of a cluster.

Modules that are installed with Python are expected to be there. Other modules that a run names are brought, with those
beside them in their folder, which they may import.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.module_files import is_installed, places
from penstock.registry import search_working_directory
from penstock.saved_runs.scratch import scratch_folder

__all__ = ["imported_from", "runtime_env", "to_send"]

JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The environment variable by which Ray tells a job's process of its settings."""


@contextlib.contextmanager
def runtime_env(modules: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What ``ray.init`` takes as ``runtime_env`` within the ``with`` block; empty if all modules are installed.

    On other machines it is the working directory of each process: a folder of code, without any data beside it.

    Args:
        modules: top-level modules that the run names.
    """
    named = to_send(modules)
    if not named or _brought_by_job():
        yield {}
        return
    with scratch_folder("penstock-code-") as folder:
        for place in named:
            # The first one of a name is the one that Python imports.
            with contextlib.suppress(FileExistsError):
                (folder / place.name).symlink_to(place)
        for parent in {place.parent for place in named}:
            _link_code(parent, folder)
        yield {"working_dir": str(folder)}


def to_send(modules: Sequence[str]) -> list[Path]:
    """Files and folders of those of these top-level modules that are not installed."""
    search_working_directory()
    return [place for module in modules for place in places(module) if not is_installed(place)]


def _brought_by_job() -> bool:
    """Whether this process is a job of Ray that brings a working directory to all machines. Ray refuses another one."""
    job = json.loads(os.environ.get(JOB, "{}"))
    return bool(job.get("runtime_env", {}).get("working_dir"))


def imported_from() -> tuple[str, ...]:
    """Folders of the module search path, without those that belong to this machine's Python."""
    entries = [Path(entry) for entry in sys.path if entry and not entry.endswith(".zip")]
    return tuple(str(entry) for entry in entries if not is_installed(entry))


def _link_code(source: Path, target: Path) -> None:
    """Link the modules and packages of a folder, but not penstock, which each machine has.

    Python also imports a folder without an ``__init__.py``. Such a folder may hold data, so only its code is linked.
    """
    for path in source.iterdir():
        link = target / path.name
        if link.exists() or path.name == "penstock":
            continue
        if _is_module(path) or _is_package(path):
            link.symlink_to(path)
        elif path.name.isidentifier() and not path.is_symlink() and _holds_modules(path):
            link.mkdir()
            _link_code(path, link)


def _is_module(path: Path) -> bool:
    return path.suffix in {".py", ".so"}


def _is_package(path: Path) -> bool:
    # Another user's folder beside a module may not be read.
    with contextlib.suppress(PermissionError):
        return (path / "__init__.py").is_file()
    return False


def _holds_modules(path: Path) -> bool:
    with contextlib.suppress(NotADirectoryError, PermissionError):
        return any(map(_is_module, path.iterdir()))
    return False
