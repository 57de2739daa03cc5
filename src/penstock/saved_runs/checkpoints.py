"""Checkpoints: named arrays in safetensors with a manifest beside them, in ``RUN/checkpoints/update-00000050/``.

They are written whole or not at all, verified before anything is read, and never pickled. Knows no array by its name.
"""

import contextlib
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from penstock.errors import CheckpointError
from penstock.saved_runs.durable import replace_folder, write_folder
from penstock.saved_runs.manifest import MANIFEST, Damage, content_of, parse_manifest, verified, write_manifest
from penstock.saved_runs.migrations import migrated
from penstock.saved_runs.pins import pin_path
from penstock.types import Array, Arrays

__all__ = [
    "TABLE",
    "Checkpoint",
    "checkpoint_path",
    "is_saved",
    "last_good",
    "list_checkpoints",
    "load_checkpoint",
    "load_table",
    "load_to_play",
    "save_checkpoint",
    "set_aside_after",
]

STATE = "state.safetensors"
TABLE = "table.safetensors"
"""The rows of the replay table, if they are copied into checkpoints."""
_PLACE = ("update", "steps", "gradient_steps")
"""Facts on the progress of the run."""
_NAME = re.compile(r"update-\d{8,}")


class _Use(NamedTuple):
    """The purpose of reading a checkpoint."""

    files: frozenset[str]
    """Files that must be undamaged."""
    command: str
    """The command that does the same with another checkpoint."""


_RESUME = _Use(frozenset({STATE, TABLE}), "resume")
_PLAY = _Use(frozenset({STATE}), "eval")


class Checkpoint(NamedTuple):
    """A verified checkpoint."""

    path: Path
    manifest: dict[str, Any]
    arrays: Arrays


def checkpoint_path(run: Path, update: int) -> Path:
    """Where a run's checkpoint of this update is, once it is written."""
    return run / "checkpoints" / f"update-{update:08d}"


def save_checkpoint(
    run: Path, arrays: Mapping[str, Array], facts: Mapping[str, Any], table: Mapping[str, Array] | None = None
) -> Path:
    """Write a checkpoint of ``run``. Once this returns, the checkpoint survives a power cut.

    An undamaged checkpoint of the same update and gradient steps stays: a run may end right after a resume.

    Args:
        run: the run folder.
        arrays: any shapes and dtypes; both are kept exactly.
        facts: for the manifest, as JSON: ``update``, ``steps``, ``env``, ``spaces``, ``algorithm``, ...; also
            ``gradient_steps`` if there are gradient steps between two updates.
        table: the rows of the replay table. `load_table` reads them, apart from ``arrays``.

    Returns:
        The checkpoint's folder.

    Raises:
        CheckpointError: it could not be written; nothing is left of it.
    """
    path = checkpoint_path(run, facts["update"])
    files = {STATE: _packed(arrays)} | ({} if table is None else {TABLE: _packed(table)})
    try:
        whole = {**files, MANIFEST: write_manifest(facts, files)}
        if not path.exists():
            write_folder(path, whole)
        elif not is_saved(run, facts):
            replace_folder(path, whole)
    except OSError as error:
        # Without a cause: the text says everything, so the failed node needs no traceback.
        raise CheckpointError(f"cannot write checkpoint {path}: {error.strerror or error}") from None
    return path


def is_saved(run: Path, facts: Mapping[str, Any]) -> bool:
    """True if the run has an undamaged checkpoint of this update and gradient steps. `save_checkpoint` leaves it."""
    place = checkpoint_path(run, facts["update"])
    return _is_good(place, {name: facts[name] for name in _PLACE if name in facts}, _RESUME)


def load_checkpoint(path: Path, expected: Mapping[str, Any] | None = None) -> Checkpoint:
    """Verify a checkpoint with its replay table, then read it.

    Args:
        path: the checkpoint's folder.
        expected: facts that its manifest must hold (``env``, ``spaces``, ...).

    Raises:
        CheckpointError: it is missing, altered, or of another kind of run. The text ends with the command that
            continues from the last good one.
    """
    return _load(path, expected or {}, _RESUME)


def load_to_play(path: Path, expected: Mapping[str, Any] | None = None) -> Checkpoint:
    """As `load_checkpoint`, but the replay table may be damaged: a policy that only plays does not need it.

    Raises:
        CheckpointError: as `load_checkpoint`. The text ends with the command that plays the last good one.
    """
    return _load(path, expected or {}, _PLAY)


def load_table(path: Path) -> Arrays | None:
    """The rows of the replay table in a checkpoint; ``None`` if the checkpoint holds no table.

    Raises:
        CheckpointError: as `load_checkpoint`.
    """
    try:
        files = _verified(path, {}, _RESUME)[1]
        return safetensors.numpy.load(files[TABLE]) if TABLE in files else None
    except Damage as damage:
        raise CheckpointError(_line(path, str(damage), {}, _RESUME)) from None
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError, OverflowError, MemoryError):
        raise CheckpointError(_line(path, f"{TABLE} is not safetensors", {}, _RESUME)) from None


def list_checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest update first, not verified."""
    try:
        found = [path for path in (run / "checkpoints").iterdir() if _NAME.fullmatch(path.name)]
    except OSError:
        return []
    return sorted(found, key=lambda path: (len(path.name), path.name))


def last_good(run: Path) -> Checkpoint | None:
    """The latest undamaged checkpoint; ``None`` if there is none."""
    for path in reversed(list_checkpoints(run)):
        with contextlib.suppress(CheckpointError):
            return load_checkpoint(path)
    return None


def set_aside_after(run: Path, update: int) -> None:
    """Rename the checkpoints after ``update``, so that the run, which continues from there, no longer lists them.

    They stay on the disk as ``update-00000100.abandoned`` until the user removes them. Their pins go: the run will make
    other checkpoints of these names.

    Raises:
        CheckpointError: one could not be renamed.
    """
    for path in list_checkpoints(run):
        if int(path.name.removeprefix("update-")) <= update:
            continue
        number = 1
        aside = path.with_name(f"{path.name}.abandoned")
        while aside.exists():
            number += 1
            aside = path.with_name(f"{path.name}.abandoned-{number}")
        try:
            path.rename(aside)
            pin_path(run, path.name).unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot set checkpoint {path} aside: {error.strerror or error}") from error


def _load(path: Path, expected: Mapping[str, Any], use: _Use) -> Checkpoint:
    try:
        manifest, files = _verified(path, expected, use)
        arrays = safetensors.numpy.load(files[STATE])
    except Damage as damage:
        raise CheckpointError(_line(path, str(damage), expected, use)) from None
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError, OverflowError, MemoryError):
        raise CheckpointError(_line(path, f"{STATE} is not safetensors", expected, use)) from None
    return Checkpoint(path, manifest, migrated(arrays, manifest["format"]))


def _packed(arrays: Mapping[str, Array]) -> bytes:
    # np.ascontiguousarray would turn a scalar into a vector.
    return safetensors.numpy.save({name: np.array(values, order="C") for name, values in arrays.items()})


def _verified(path: Path, expected: Mapping[str, Any], use: _Use) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest, and name -> bytes of the needed files. Both are verified against the hashes.

    Raises:
        Damage: a file is missing or altered, or the manifest states other facts than expected.
    """
    if not path.is_dir():
        raise Damage("it does not exist")
    manifest = parse_manifest(content_of(path / MANIFEST))
    for key, value in expected.items():
        if manifest.get(key) != value:
            raise Damage(f"its {key} is {str(manifest.get(key))[:80]}, not {str(value)[:80]}")
    listed = manifest["files"]
    if listed.keys() not in ({STATE}, {STATE, TABLE}):
        raise Damage(f"{MANIFEST} does not list {STATE} alone, or with {TABLE}")
    return manifest, {name: verified(path, name, listed[name]) for name in listed.keys() & use.files}


def _is_good(path: Path, expected: Mapping[str, Any], use: _Use) -> bool:
    try:
        _verified(path, expected, use)
    except Damage:
        return False
    return True


def _line(path: Path, damage: str, expected: Mapping[str, Any], use: _Use) -> str:
    """One line: what is wrong, and the command that uses the last good checkpoint instead."""
    run = path.parent.parent
    others = [other for other in reversed(list_checkpoints(run)) if other != path]
    good = next((other for other in others if _is_good(other, expected, use)), None)
    if good is None:
        return f"checkpoint {path} cannot be used: {damage}; no other checkpoint of this run can either"
    command = f"penstock {use.command} {shlex.quote(str(run))} --checkpoint {good.name}"
    return f"checkpoint {path} cannot be used: {damage}; the last good one: {command}"
