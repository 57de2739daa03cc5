"""Paths as a user writes them."""

import os
from pathlib import Path

from penstock.errors import ConfigError

__all__ = ["expanded"]


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with ``~`` and ``~name`` as home folders.

    Unlike with `Path.expanduser`, a ``~name`` of no user stays as it is, and so does ``~`` without a home.

    Raises:
        ConfigError: it is no path.
    """
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(f"{path!r} is no path; give a text or a Path")
    return Path(os.path.expanduser(path))  # noqa: PTH111
