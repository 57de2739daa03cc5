"""Keeps the launches of a run, ``RUN/launches.jsonl``: a line for each time that it was started or resumed."""

import contextlib
import json
import os
import platform
import socket
import sys
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

from penstock import __version__
from penstock.config.schema import RunConfig
from penstock.errors import RunFolderError
from penstock.metrics.run_log import add_to_log
from penstock.saved_runs.code import keep_code
from penstock.saved_runs.run_folder import RunFolder

__all__ = ["SETTINGS", "add_launch", "each_launch", "first_launch", "last_code"]

SETTINGS = (
    *("num_workers", "learners", "exchange", "pace", "max_policy_lag", "compress"),
    *("policy_placement", "policy_nodes", "max_batch", "max_wait"),
)
"""Settings that a launch records: a resume may change them, and the card and a comparison name them."""

_PACKAGES = ("numpy", "gymnasium", "torch", "onnxruntime", "ray")
"""Packages that a run may use, besides those of its environment."""


def add_launch(
    folder: RunFolder, checkpoint: str | None, run: RunConfig, steps: int, modules: Sequence[str] = ()
) -> tuple[str, ...]:
    """Append a line on this process, which starts or resumes the run: when, where, by which command, versions and code.

    Args:
        folder: of the run.
        checkpoint: name of the checkpoint that the run goes on from; ``None``: it is new.
        run: its settings from here on, resolved.
        steps: steps that the run has learned from so far.
        modules: those that the run names. The user's own are kept, as far as `keep_code` can.

    Returns:
        One line if the user's own code has changed since the last launch; else empty.

    Raises:
        RunFolderError: the file cannot be written.
    """
    former, code = (last_code(folder) or {}).get("folder"), keep_code(folder, modules)
    line = {
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": sys.orig_argv,
        "directory": _directory(),
        "host": socket.gethostname(),
        "checkpoint": checkpoint,
        "steps": steps,
        "settings": {name: value for name in SETTINGS if (value := getattr(run, name)) is not None},
        "versions": {"penstock": __version__, "python": platform.python_version(), **_installed()},
        "code": code,
    }
    try:
        with folder.launches_path.open("ab+") as file:
            # A full disk may have torn the line before.
            begins = b"\n" if _is_torn(file) else b""
            file.write(begins + json.dumps(line).encode() + b"\n")
    except OSError as error:
        raise RunFolderError(f"cannot write {folder.launches_path}: {error.strerror or error}") from error
    if code is None:
        return ()
    add_to_log(folder.path, *(f"note: code: {note}" for note in code["notes"]))
    if former is None or code["folder"] in {None, former}:
        return ()
    return (f"your own code has changed since the last launch: {former} and {code['folder']} of the run folder differ",)


def _is_torn(file: BinaryIO) -> bool:
    """Whether the file's last line has no end."""
    if not file.seek(0, os.SEEK_END):
        return False
    file.seek(-1, os.SEEK_END)
    return file.read() != b"\n"


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


def each_launch(folder: RunFolder) -> list[dict[str, Any]]:
    """What the lines say, in their order. Lines that are torn or altered are left out.

    Raises:
        RunFolderError: the file cannot be read.
    """
    try:
        lines = folder.launches_path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunFolderError(f"cannot read {folder.launches_path}: {error.strerror or error}") from error
    found = []
    for line in lines:
        try:
            launch = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(launch, dict):
            found.append(launch)
    return found


def last_code(folder: RunFolder) -> dict[str, Any] | None:
    """What the last launch says of the user's own code, as `keep_code` returned it; ``None``: nothing."""
    with contextlib.suppress(RunFolderError, IndexError):
        code = each_launch(folder)[-1].get("code")
        return code if isinstance(code, dict) else None
    return None


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
