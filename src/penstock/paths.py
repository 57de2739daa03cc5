"""Paths as a user writes them."""

import os
from pathlib import Path

__all__ = ["expanded"]


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with ``~`` and ``~name`` as home folders.

    Unlike `Path.expanduser` it raises nothing: a ``~name`` of no user stays as it is, and so does ``~`` without a home.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111
