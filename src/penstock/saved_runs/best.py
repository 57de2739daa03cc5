"""Finds a checkpoint of a run by name, the latest or the best, and removes those that are not kept.

Reads manifests and the run's log, but no arrays: `checkpoints.py` verifies a checkpoint when it loads it.
"""

import contextlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from penstock.errors import CheckpointError, nearest
from penstock.metrics.jsonl import evaluations
from penstock.saved_runs.checkpoints import list_checkpoints
from penstock.saved_runs.durable import remove_folder
from penstock.saved_runs.manifest import MANIFEST, Damage, parse_manifest
from penstock.saved_runs.pins import pin_path, pinned
from penstock.saved_runs.run_folder import RunFolder

__all__ = ["Best", "best_checkpoint", "find_checkpoint", "no_checkpoint", "prune_checkpoints"]


class Best(NamedTuple):
    """The best checkpoint of a run."""

    path: Path
    evaluated: bool
    """It is the best by its evaluation. False: by the training episodes before it."""


class _Standing(NamedTuple):
    """The facts of a manifest from which the best checkpoint is chosen."""

    path: Path
    update: int
    return_mean: float | None
    asked: bool
    """It was sent to the evaluator during the run."""
    passing: bool
    """A deputy asked for it, or an evaluation. ``save_interval`` did not."""


def best_checkpoint(run: Path) -> Best | None:
    """The best checkpoint; the latest of equals; ``None`` without any evaluation or training episode.

    If the run evaluated checkpoints during the run, the best has the highest return of these. Otherwise it has the
    highest ``return_mean``, the mean return of the training episodes before it.
    """
    return _best(_standings(run), evaluations(run))


def find_checkpoint(run: Path, name: str | int | None = None) -> Path:
    """A checkpoint by its name, by its update number, ``best`` or ``latest``; without a name, the latest.

    Raises:
        CheckpointError: there is none of that name. The text suggests similar names.
    """
    paths = list_checkpoints(run)
    if not paths:
        raise no_checkpoint(run)
    name = None if name is None else str(name)
    if name in {None, "latest"}:
        return paths[-1]
    if name == "best":
        best = best_checkpoint(run)
        return paths[-1] if best is None else best.path
    wanted = f"update-{int(name):08d}" if name.isascii() and name.isdigit() and len(name) < 19 else Path(name).name
    names = [path.name for path in paths]
    if wanted not in names:
        hint = nearest(wanted, names) or f"; the latest is {names[-1]}"
        raise CheckpointError(f"run {run} has no checkpoint {name}{hint}")
    return paths[names.index(wanted)]


def no_checkpoint(run: Path) -> CheckpointError:
    """The error for a run without any checkpoint: when the first one comes, and what to type."""
    again = f"penstock train --config {shlex.quote(str(RunFolder(run).config_path))}"
    return CheckpointError(
        f"run {run} has no checkpoint: the first one comes after --save_interval updates, or when the run ends or is "
        f"interrupted; if it does not train any more, begin anew with a smaller --save_interval: {again}"
    )


def prune_checkpoints(run: Path, keep: int, every: int = 0, evaluated: Mapping[int, float] | None = None) -> None:
    """Remove the checkpoints that no rule keeps. A checkpoint that cannot be removed stays.

    These stay: the latest; the last ``keep`` that are not passing; those whose update is a multiple of ``every`` (0:
    none); the best; pinned ones; those whose evaluation is not known yet, because it ends later than its checkpoint is
    written.

    Args:
        run: the run folder.
        keep: see above.
        every: see above.
        evaluated: the run's `evaluations`; ``None``: its log is read.
    """
    paths, standings = list_checkpoints(run), _standings(run)
    passing = {one.path for one in standings if one.passing}
    lasting = [path for path in paths if path not in passing]
    if len(paths) <= keep and not passing:
        return
    known = evaluations(run) if evaluated is None else evaluated
    best, last = _best(standings, known), max(known, default=-1)
    kept = {paths[-1], *lasting[-keep:], *(one.path for one in standings if one.asked and one.update > last)}
    if best is not None:
        kept.add(best.path)
    pins = pinned(run)
    kept |= {path for path in paths if path.name in pins or (every and _update(path) % every == 0)}
    for path in paths:
        if path not in kept:
            # Race: 1. The pins are listed. 2. A pin is made, and its user is told so. 3. The checkpoint is removed.
            # So the pin is looked for once more, when no further user can find the checkpoint.
            with contextlib.suppress(OSError):
                remove_folder(path, is_wanted=pin_path(run, path.name).exists)


def _update(path: Path) -> int:
    return int(path.name.removeprefix("update-"))


def _standings(run: Path) -> list[_Standing]:
    """The facts of all checkpoints with a readable manifest, oldest update first."""
    found = []
    for path in list_checkpoints(run):
        with contextlib.suppress(Damage, OSError):
            manifest = parse_manifest((path / MANIFEST).read_bytes())
            score = manifest.get("return_mean")
            # NaN is not equal to itself.
            return_mean = float(score) if isinstance(score, int | float) and score == score else None  # noqa: PLR0124
            asked, passing = (manifest.get(name) is True for name in ("evaluation_asked", "passing"))
            found.append(_Standing(path, manifest["update"], return_mean, asked, passing))
    return found


def _best(standings: list[_Standing], known: Mapping[int, float]) -> Best | None:
    """As `best_checkpoint`; ``known`` holds the return of each evaluated update."""
    evaluated = [(known[one.update], one.update, one) for one in standings if one.update in known]
    # Earlier versions did not mark the final evaluation, which must not decide. So one evaluation during the run is
    # required.
    if any(one.asked for *_, one in evaluated):
        return Best(max(evaluated)[2].path, evaluated=True)
    trained = [(one.return_mean, one.update, one) for one in standings if one.return_mean is not None]
    return Best(max(trained)[2].path, evaluated=False) if trained else None
