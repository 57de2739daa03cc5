"""The sides of a comparison: the runs that the words of a command line name, with their config and reports."""

import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.config.schema import RunConfig
from penstock.config.sources import shown
from penstock.errors import ConfigError, RunFolderError
from penstock.metrics.jsonl import read_reports
from penstock.metrics.report import STEPS_PER_SECOND, Report
from penstock.paths import expanded
from penstock.saved_runs.launches import last_code
from penstock.saved_runs.parts import Part, parts_of
from penstock.saved_runs.run_folder import RunFolder, list_runs

__all__ = ["ComparedRun", "Side", "read_sides"]

MOST = len(string.ascii_uppercase)
_DROPPED = frozenset({"rows/stale", "rows/spoilt"})


class ComparedRun(NamedTuple):
    """A run with its settings and all its reports."""

    path: Path
    settings: RunConfig
    parts: Sequence[Part]
    """The parts of the run: a resume may have changed settings that a comparison names."""
    reports: Sequence[Report]
    """``steps`` of each counts the rows that were dropped as well: environments gave them all."""
    code: Mapping[str, Any] | None
    """The user's own code of the last launch, as `penstock.saved_runs.code.keep_code` returned it."""

    @property
    def last(self) -> Report:
        """The report of the last update."""
        return next(report for report in reversed(self.reports) if STEPS_PER_SECOND in report.values)


class Side(NamedTuple):
    """Runs of one algorithm that differ in their seeds; mostly one run."""

    name: str
    """A, B, C ..."""
    runs: tuple[ComparedRun, ...]

    @property
    def algorithm(self) -> str:
        """The algorithm of its runs."""
        return self.runs[0].settings.algo


def read_sides(words: Sequence[str], log_dir: str | Path) -> tuple[Side, ...]:
    """The sides that the words name, in their order.

    Args:
        words: each is a run as `RunFolder.find` takes it, several of these separated by commas, or a folder of runs.
        log_dir: folder that holds the run folders.

    Raises:
        ConfigError: there are too few or too many sides, or their runs cannot be compared.
        RunFolderError: there is no such run, or it has reported nothing.
    """
    if not 2 <= len(words) <= MOST:
        raise ConfigError(f"penstock compare takes 2 to {MOST} sides, not {len(words)}; one side is a run or several")
    sides = []
    for name, word in zip(string.ascii_uppercase, words, strict=False):
        folders = _folders(word, log_dir)
        if not folders:
            raise ConfigError(f"side {name} names no run: {word}")
        if len({folder.path.resolve() for folder in folders}) < len(folders):
            raise ConfigError(f"side {name} names a run twice: {word}")
        sides.append(Side(name, tuple(_read(folder) for folder in folders)))
    for side in sides:
        _check_one_algorithm(side)
    _check_one_task(sides)
    return tuple(sides)


def _folders(word: str, log_dir: str | Path) -> list[RunFolder]:
    """The run folders of one side."""
    try:
        return [RunFolder.find(word, log_dir)]
    except RunFolderError:
        below = list_runs(expanded(word))
        if below:
            return [RunFolder(path) for path in below]
        if "," not in word:
            raise
    parts = [part for part in word.split(",") if part]
    if folder := next((part for part in parts if list_runs(expanded(part))), None):
        raise RunFolderError(f"{folder} is a folder of runs, and commas join runs; give it as a side of its own")
    return [RunFolder.find(part, log_dir) for part in parts]


def _read(folder: RunFolder) -> ComparedRun:
    try:
        reports = read_reports(folder.path)
    except OSError:
        reports = []
    if not any(STEPS_PER_SECOND in report.values for report in reports):
        raise RunFolderError(f"run {folder.path} has reported no update yet")
    run = folder.read_config().run
    reports = list(_with_dropped(reports))
    return ComparedRun(folder.path, run, parts_of(folder, run), reports, last_code(folder))


def _with_dropped(reports: Sequence[Report]) -> Iterator[Report]:
    """The reports, with the rows dropped so far in ``steps``. Those of evaluations do not hold them."""
    dropped = 0
    for report in reports:
        if _DROPPED & report.values.keys():
            dropped = int(sum(report.values.get(name, 0.0) for name in _DROPPED))
        yield report._replace(steps=report.steps + dropped)


def _check_one_algorithm(side: Side) -> None:
    algorithms = sorted({run.settings.algo for run in side.runs})
    if len(algorithms) > 1:
        raise ConfigError(
            f"side {side.name} holds runs of {' and '.join(algorithms)}; the runs of one side are of one algorithm"
        )


def _check_one_task(sides: Sequence[Side]) -> None:
    """Check that all runs are on one task. Rewards of a user's own are no part of it: they change no return."""
    first = sides[0].runs[0].settings
    for side in sides:
        for run in side.runs:
            for name, what in (("env", "environment"), ("env_args", "arguments"), ("wrap", "wrappers")):
                one, other = getattr(first, name), getattr(run.settings, name)
                if one != other:
                    raise ConfigError(
                        f"runs of different tasks cannot be compared: {what} {_text(one)} (side {sides[0].name}) and "
                        f"{_text(other)} (side {side.name})"
                    )


def _text(value: Any) -> str:  # noqa: ANN401 - of one of several settings
    return "none" if value is None else shown(value)
