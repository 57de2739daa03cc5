"""Pins: which checkpoints of a run no rule of retention removes. An empty file for each, ``RUN/pins/<checkpoint>``."""

from pathlib import Path

__all__ = ["pin_path", "pinned"]

_FOLDER = "pins"


def pinned(run: Path) -> frozenset[str]:
    """The names of the pinned checkpoints."""
    try:
        return frozenset(path.name for path in (run / _FOLDER).iterdir())
    except OSError:
        return frozenset()


def pin_path(run: Path, checkpoint: str) -> Path:
    """The file that pins a checkpoint."""
    return run / _FOLDER / checkpoint
