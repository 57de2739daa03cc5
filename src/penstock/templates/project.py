"""Writes a new project: copies the files of one template into a folder of the user's own. Starts nothing."""

import os
from pathlib import Path

from penstock.errors import ConfigError
from penstock.paths import expanded
from penstock.saved_runs.durable import write_file

__all__ = ["write_project"]

TEMPLATES = Path(__file__).parent


def write_project(folder: str | os.PathLike[str], template: str) -> Path:
    """Copy the files of a template.

    Args:
        folder: is made, unless it is there and empty.
        template: the name of a folder beside this file.

    Returns:
        The project's folder.

    Raises:
        ConfigError: the folder is taken, or cannot be written.
    """
    place = expanded(folder)
    # Folders are left out: Python may have made one for its bytecode.
    files = sorted(path for path in (TEMPLATES / template).iterdir() if path.is_file())
    try:
        taken = place.exists() and not (place.is_dir() and not any(place.iterdir()))
        if not taken:
            place.mkdir(parents=True, exist_ok=True)
            for file in files:
                write_file(place / file.name, file.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot write {place}: {error.strerror or error}") from error
    if taken:
        raise ConfigError(f"{place} is there already and is not empty; give a new folder")
    return place
