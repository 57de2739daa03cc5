"""Keeps the launches of a run, ``RUN/launches.jsonl``: a line for each time that it was started or resumed."""

import json
import platform
import socket
import sys
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from penstock import __version__
from penstock.errors import RunFolderError
from penstock.saved_runs.run_folder import RunFolder

__all__ = ["add_launch", "first_launch"]

_PACKAGES = ("numpy", "gymnasium", "torch", "onnxruntime", "ray")
"""Packages that a run may use, besides those of its environment."""


def add_launch(folder: RunFolder, checkpoint: str | None) -> None:
    """Append a line on this process, which starts or resumes the run: when, where, by which command and versions.

    Args:
        folder: of the run.
        checkpoint: name of the checkpoint that the run goes on from; ``None``: it is new.

    Raises:
        RunFolderError: the file cannot be written.
    """
    line = {
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": sys.orig_argv,
        "directory": _directory(),
        "host": socket.gethostname(),
        "checkpoint": checkpoint,
        "versions": {"penstock": __version__, "python": platform.python_version(), **_installed()},
    }
    try:
        with folder.launches_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    except OSError as error:
        raise RunFolderError(f"cannot write {folder.launches_path}: {error.strerror or error}") from error


def first_launch(folder: RunFolder) -> str:
    """The line of the launch that began a run, which no other run has; empty if there is none yet.

    Raises:
        RunFolderError: the file cannot be read.
    """
    try:
        with folder.launches_path.open(encoding="utf-8", errors="replace") as file:
            return file.readline()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise RunFolderError(f"cannot read {folder.launches_path}: {error.strerror or error}") from error


def _directory() -> str | None:
    """The working directory; ``None`` if it was removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return None


def _installed() -> dict[str, str]:
    """Package -> version, of those that are installed. Imports none of them."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
