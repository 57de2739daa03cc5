"""Remembers up to which kept episode of a folder a run was judged, or has learned. Knows nothing of what was found."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from penstock.errors import RunFolderError
from penstock.saved_runs.durable import write_file
from penstock.saved_runs.episodes import episode_number, list_episodes
from penstock.saved_runs.run_folder import RunFolder

__all__ = ["Newest", "judged_up_to", "known_newest", "newest_of", "remember_judged"]

JUDGED = ".judged.json"
"""File of a run folder: path of a folder of episodes -> the newest one that was judged by, as `Newest`."""


class Newest(NamedTuple):
    """The newest episode that a folder had at some time."""

    number: int = 0
    """0: it had none."""
    digest: str = ""
    """SHA-256 of its file; empty: unknown."""

    def known(self, place: Path) -> int:
        """The number up to which the folder's episodes are those of that time; 0: they are others.

        A folder that was emptied numbers its episodes from 1 again.
        """
        paths = {episode_number(path): path for path in list_episodes(place)}
        if self.number not in paths:
            # The oldest episodes of a folder are removed, never the newest alone.
            return self.number if paths and min(paths) > self.number else 0
        return self.number if self.digest in {"", _digest(paths[self.number])} else 0


def newest_of(place: Path, number: int) -> Newest:
    """The episode of this number, which is the newest one that was read; 0: none was."""
    paths = [path for path in list_episodes(place) if episode_number(path) == number]
    return Newest(number, _digest(paths[0]) if paths else "")


def known_newest(facts: Mapping[str, Any], place: Path) -> Newest:
    """What facts say of a folder: path -> number and digest; of an older penstock, a number alone."""
    match facts.get(str(place.resolve())):
        case [int(number), str(digest)]:
            return Newest(number, digest)
        case int(number):
            return Newest(number)
        case _:
            return Newest()


def judged_up_to(folder: RunFolder, place: Path) -> Newest:
    """The newest episode in this folder that an attempt has judged by."""
    return known_newest(_read(folder), place)


def remember_judged(folder: RunFolder, place: Path, newest: Newest) -> None:
    """Remember that an attempt has judged by the episodes of this folder up to ``newest``.

    Raises:
        RunFolderError: the run folder cannot be written.
    """
    known = _read(folder) | {str(place.resolve()): newest}
    try:
        write_file(folder.path / JUDGED, json.dumps(known).encode())
    except OSError as error:
        raise RunFolderError(f"run folder {folder.path} cannot be written: {error.strerror or error}") from error


def _read(folder: RunFolder) -> dict[str, Any]:
    """What is remembered: nothing if the file is missing or damaged, which costs one more attempt."""
    try:
        found = json.loads((folder.path / JUDGED).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _digest(path: Path) -> str:
    """SHA-256 of a file; empty if it was removed meanwhile."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
