"""The versions of a run's policy: its checkpoints with what is known of each. Pins, prunes and clones them.

A version is never changed. `checkpoints.py` writes and reads them; `best.py` finds one by name.
"""

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from penstock.errors import CheckpointError, RunFolderError
from penstock.metrics.jsonl import evaluations, final_evaluations
from penstock.saved_runs.best import best_checkpoint, find_checkpoint, no_checkpoint, prune_checkpoints
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint
from penstock.saved_runs.durable import write_file
from penstock.saved_runs.manifest import MANIFEST, Damage, parse_manifest
from penstock.saved_runs.pins import pin_path, pinned
from penstock.saved_runs.run_folder import RunFolder, list_runs

__all__ = ["Lineage", "Version", "clone", "lineage", "pin", "prune", "table", "unpin", "versions"]

ORIGIN = "origin.json"
"""File of a cloned run: the run and the version that it was made of."""


class Version(NamedTuple):
    """One version."""

    name: str
    update: int
    steps: int
    created: str
    """Date and time, in UTC."""
    return_mean: float | None
    """Mean return of the training episodes before it; ``None``: there were none."""
    evaluation: float | None
    """Mean return of its evaluation while the run went on; ``None``: it had none."""
    final_evaluation: float | None
    """Mean return of the evaluation at the end of the run, in other episodes; ``None``: it had none."""
    is_best: bool
    is_pinned: bool
    damage: str
    """Why it cannot be used; empty: its manifest is whole."""


class Lineage(NamedTuple):
    """Where a run comes from, and which runs come from it."""

    origin: tuple[str, str] | None
    """Run and version that it was cloned from."""
    clones: tuple[tuple[str, str], ...]
    """Version of this run, and the run in the same folder that was cloned from it."""


def versions(run: Path) -> list[Version]:
    """The versions of a run, oldest first."""
    best, pins = best_checkpoint(run), pinned(run)
    on_the_way, final = evaluations(run), final_evaluations(run)
    found = []
    for path in list_checkpoints(run):
        update = int(path.name.removeprefix("update-"))
        facts: dict[str, Any] = {}
        damage = ""
        try:
            facts = parse_manifest((path / MANIFEST).read_bytes())
        except Damage as error:
            damage = str(error)
        except OSError as error:
            damage = str(error.strerror or error)
        score = facts.get("return_mean")
        found.append(
            Version(
                name=path.name,
                update=update,
                steps=int(facts.get("steps", 0)),
                created=str(facts.get("created", "")),
                return_mean=float(score) if isinstance(score, int | float) else None,
                evaluation=on_the_way.get(update),
                final_evaluation=final.get(update),
                is_best=best is not None and best.path == path,
                is_pinned=path.name in pins,
                damage=damage,
            )
        )
    return found


def lineage(run: Path) -> Lineage:
    """Where a run comes from, and which runs beside it come from it."""
    clones = [
        (origin[1], other.name)
        for other in list_runs(run.parent)
        if (origin := _origin(other)) is not None and origin[0] == run.name
    ]
    return Lineage(_origin(run), tuple(sorted(clones)))


def pin(run: Path, name: str) -> str:
    """Keep a version until it is unpinned, whatever the rules of retention say. Works while the run trains.

    Returns:
        The version's full name.

    Raises:
        CheckpointError: there is no such version, or it was removed at this moment.
    """
    path = find_checkpoint(run, name)
    place = pin_path(run, path.name)
    try:
        place.parent.mkdir(exist_ok=True)
        place.touch()
    except OSError as error:
        raise CheckpointError(f"cannot pin {path}: {error.strerror or error}") from error
    # Race: 1. The run lists the pins. 2. This pin is made. 3. The run removes the version.
    if not path.exists():
        place.unlink(missing_ok=True)
        raise CheckpointError(f"{path.name} was removed while it was being pinned")
    return path.name


def unpin(run: Path, name: str) -> str:
    """Leave a version to the rules of retention again. Returns its full name.

    Raises:
        CheckpointError: there is no such version, or it is not pinned.
    """
    path = find_checkpoint(run, name)
    try:
        pin_path(run, path.name).unlink()
    except OSError:
        pins = ", ".join(sorted(pinned(run))) or "none"
        raise CheckpointError(f"{path.name} is not pinned; pinned: {pins}") from None
    return path.name


def prune(folder: RunFolder, keep: int, every: int = 0) -> list[str]:
    """Remove the versions that no rule keeps. Returns their names.

    Args:
        folder: of the run. It must not be training.
        keep: how many of the latest stay.
        every: those whose update is a multiple of this stay; 0: none for that reason.

    Raises:
        RunFolderError: a process writes the run.
        CheckpointError: the latest version is damaged: an older one may be the only good one.
    """
    before = [path.name for path in list_checkpoints(folder.path)]
    with folder.claim():
        if latest := list_checkpoints(folder.path)[-1:]:
            load_checkpoint(latest[0])
        prune_checkpoints(folder.path, keep, every)
    left = {path.name for path in list_checkpoints(folder.path)}
    return [name for name in before if name not in left]


def clone(folder: RunFolder, name: str | None = None) -> RunFolder:
    """Make a new run of one version, beside the run. `penstock resume` continues it, `penstock serve` serves it.

    Args:
        folder: of the run, which may be training.
        name: of the version, its update number, ``best`` or ``latest``; ``None``: the latest.

    Raises:
        CheckpointError: there is no such version, it is damaged, or it was removed at this moment.
        RunFolderError: the new run cannot be written.
    """
    path = find_checkpoint(folder.path, name)
    load_checkpoint(path)
    config = folder.read_config()
    config = replace(config, run=replace(config.run, log_dir=str(folder.path.parent)))
    made = RunFolder.fresh(folder.path.parent, config.run.env, config.run.algo)
    while not made.make():
        made = RunFolder.fresh(folder.path.parent, config.run.env, config.run.algo)
    try:
        shutil.copytree(path, made.checkpoints / path.name)
        origin = {"run": folder.name, "checkpoint": path.name}
        write_file(made.path / ORIGIN, (json.dumps(origin) + "\n").encode())
        # The folder counts as a run from here on.
        with made.claim():
            made.become_latest()
            made.write_config(config)
    except RunFolderError:
        shutil.rmtree(made.path, ignore_errors=True)
        raise
    except OSError as error:
        shutil.rmtree(made.path, ignore_errors=True)
        # Race: 1. The version is verified. 2. The run, which may be training, removes it. 3. It is copied.
        if not path.exists():
            raise CheckpointError(f"{path.name} was removed while it was being cloned") from None
        raise RunFolderError(f"cannot write {made.path}: {error.strerror or error}") from error
    return made


def table(run: Path) -> str:
    """The versions and the lineage of a run as text."""
    if not list_checkpoints(run):
        raise no_checkpoint(run)
    lines = [("version", "steps", "created", "training return", "evaluation", "final evaluation", "")]
    for one in versions(run):
        marks = " ".join(mark for mark, is_on in (("best", one.is_best), ("pinned", one.is_pinned)) if is_on)
        lines.append(
            (
                one.name,
                f"{one.steps:,}",
                one.created[:19].replace("T", " "),
                _number(one.return_mean),
                _number(one.evaluation),
                _number(one.final_evaluation),
                f"damaged: {one.damage}" if one.damage else marks,
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(6)]
    text = [
        "  ".join((*(part.ljust(width) for part, width in zip(line, widths, strict=False)), line[6])).rstrip()
        for line in lines
    ]
    found = lineage(run)
    if found.origin is not None:
        text.append(f"cloned from {found.origin[1]} of {found.origin[0]}")
    text += [f"{version} was cloned into {shlex.quote(name)}" for version, name in found.clones]
    return "\n".join(text)


def _origin(run: Path) -> tuple[str, str] | None:
    try:
        found = json.loads((run / ORIGIN).read_bytes()[:10_000])
        return str(found["run"]), str(found["checkpoint"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
