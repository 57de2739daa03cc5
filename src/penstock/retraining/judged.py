"""Remembers in the run folder up to which kept episode an attempt has judged. Knows nothing of what it found."""

import json
from pathlib import Path

from penstock.errors import RunFolderError
from penstock.saved_runs.durable import write_file
from penstock.saved_runs.run_folder import RunFolder

__all__ = ["judged_up_to", "remember_judged"]

JUDGED = ".judged.json"
"""File of a run folder: path of a folder of episodes -> number of the newest one that was judged by."""


def judged_up_to(folder: RunFolder, experience: Path) -> int:
    """Number of the newest episode in this folder that an attempt has judged by; 0: there was no attempt."""
    return _read(folder).get(str(experience.resolve()), 0)


def remember_judged(folder: RunFolder, experience: Path, newest: int) -> None:
    """Remember that an attempt has judged by the episodes of this folder up to ``newest``.

    Raises:
        RunFolderError: the run folder cannot be written.
    """
    known = _read(folder) | {str(experience.resolve()): newest}
    try:
        write_file(folder.path / JUDGED, json.dumps(known).encode())
    except OSError as error:
        raise RunFolderError(f"run folder {folder.path} cannot be written: {error.strerror or error}") from error


def _read(folder: RunFolder) -> dict[str, int]:
    """What is remembered: nothing if the file is missing or damaged, which costs one more attempt."""
    try:
        return {str(place): int(number) for place, number in json.loads((folder.path / JUDGED).read_bytes()).items()}
    except (AttributeError, OSError, TypeError, ValueError):
        return {}
