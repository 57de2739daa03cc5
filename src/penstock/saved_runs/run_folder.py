"""A run's folder: makes it, finds it, claims it for one process, and names its files. Most files are written elsewhere.

The folder is ``LOG_DIR/<env>-<algorithm>-<time>/``, or ``LOG_DIR/<run_name>/`` if the user names the run.
"""

import contextlib
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from penstock.config.schema import RunConfig
from penstock.config.sources import from_settings, settings_of_file, to_toml
from penstock.config.whole import Config
from penstock.errors import RunFolderError, nearest
from penstock.metrics.run_log import RUN_LOG
from penstock.paths import expanded
from penstock.saved_runs.durable import PARTIAL, remove_folder, sweep, write_file
from penstock.saved_runs.manifest import MANIFEST
from penstock.saved_runs.migrations import migrated_settings
from penstock.saved_runs.run_lock import LOCK, locked

__all__ = ["RunFolder", "list_runs"]

CONFIG = "config.toml"
NUMBER = ".number"
"""File that numbers the runs of a log directory in the order in which they were started or last resumed."""
_NAME_LIMIT = 100


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @classmethod
    def fresh(cls, log_dir: str | Path, env: str, algorithm: str, now: datetime | None = None) -> "RunFolder":
        """A free folder for a new run. It is not made yet. If its name is taken, a number is added.

        Args:
            log_dir: holds run folders; it need not exist.
            env: the environment's name. Characters that a path cannot hold become ``_``.
            algorithm: the algorithm's name.
            now: start of the run; ``None``: the present time.

        Raises:
            RunFolderError: the log directory cannot be read.
        """
        safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", env).strip("._-")[:_NAME_LIMIT] or "env"
        name = f"{safe}-{algorithm}-{now or datetime.now():%Y%m%d-%H%M%S}"
        with _making(log_dir):
            path = expanded(log_dir) / name
            number = 1
            while path.exists():
                number += 1
                path = path.with_name(f"{name}-{number}")
            return cls(path)

    @classmethod
    def named(cls, log_dir: str | Path, name: str) -> "RunFolder":
        """A free folder for a new run that has this name. It is not made yet.

        Raises:
            RunFolderError: the name is taken, and the text says how to go on with the run that has it; or the log
                directory cannot be read.
        """
        path = expanded(log_dir) / name
        with _making(log_dir):
            is_run, is_taken = (path / CONFIG).is_file(), os.path.lexists(path)
        if is_run:
            where = "" if str(log_dir) == RunConfig.log_dir else f" --log_dir {shlex.quote(str(log_dir))}"
            raise RunFolderError(
                f"there is a run {name} in {log_dir}; to go on with it: penstock resume {shlex.quote(name)}{where}, "
                f"or in Python penstock.resume({str(path)!r}); or give --resume_if_exists True, or another --run_name"
            )
        if is_taken:
            raise RunFolderError(f"{path} exists and is no run; give another --run_name")
        return cls(path)

    @staticmethod
    def check_place(log_dir: str | Path) -> None:
        """Check that a run folder can be made in this log directory, and leave nothing.

        Raises:
            RunFolderError: it cannot.
        """
        with _making(log_dir):
            path = expanded(log_dir).absolute()
            there = next(place for place in (path, *path.parents) if place.exists())
            # Permissions say less: root has them everywhere, and a disk may be mounted to be read only.
            Path(tempfile.mkdtemp(prefix=".penstock-", dir=there)).rmdir()

    def make(self) -> bool:
        """Make the folder of a `fresh` or `named` run. It counts as a run once its config is written.

        Returns:
            False if another run has taken the name meanwhile.

        Raises:
            RunFolderError: the log directory cannot be written.
        """
        with _making(self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self.path.mkdir()
            except FileExistsError:
                return False
            self.checkpoints.mkdir()
            return True

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """The folder of an existing run.

        Raises:
            RunFolderError: it is no run folder.
        """
        path = expanded(path)
        if path.name in {"", ".."}:
            # What lies beside a run is found by the run's name and parent.
            path = path.resolve()
        try:
            is_run = (path / CONFIG).is_file()
        except (OSError, ValueError):
            is_run = False
        if not is_run:
            raise RunFolderError(f"{path} {_other_than_a_run(path) or _no_run(path)}")
        return cls(path)

    @classmethod
    def find(cls, run: str, log_dir: str | Path) -> "RunFolder":
        """Find a run by the path of its folder, by its name under ``log_dir``, or ``latest``.

        Raises:
            RunFolderError: there is no such run. The text suggests similar names.
        """
        runs = list_runs(expanded(log_dir))
        if run == "latest":
            if not runs:
                raise RunFolderError(f"there is no run in {log_dir}; penstock train makes one")
            return cls(runs[-1])
        paths = (expanded(run), expanded(log_dir) / run)
        for path in paths:
            with contextlib.suppress(RunFolderError):
                return cls.open(path)
        for path in paths:
            if other := _other_than_a_run(path):
                raise RunFolderError(f"{path} {other}")
        hint = nearest(run, [path.name for path in runs]) or f"; latest stands for the newest run in {log_dir}"
        raise RunFolderError(f"there is no run {run}{hint}")

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Make this process the only one that writes the run. Removes unfinished files of earlier processes.

        Raises:
            RunFolderError: another process writes the run, or the folder cannot be written or locked.
        """
        with locked(self.path):
            sweep(self.path)
            sweep(self.checkpoints)
            yield

    def become_latest(self) -> None:
        """Give this run the highest number of its log directory. A time would not do, because clocks may be set back.

        Raises:
            RunFolderError: the folder cannot be written.
        """
        try:
            numbers = [_number(path) for path in self.path.parent.iterdir() if path != self.path]
            (self.path / NUMBER).write_text(f"{max(numbers, default=0) + 1}\n")
        except OSError as error:
            raise RunFolderError(f"run folder {self.path} cannot be written: {error.strerror or error}") from error

    def read_config(self) -> Config:
        """The config of the run, migrated to the present version.

        Raises:
            ConfigError: see ``from_toml``.
        """
        return from_settings(migrated_settings(settings_of_file(self.config_path)))

    def write_config(self, config: Config) -> None:
        """Write the whole resolved config.

        Raises:
            RunFolderError: it cannot be written.
        """
        try:
            write_file(self.config_path, to_toml(config).encode())
        except OSError as error:
            raise RunFolderError(f"run folder {self.path} cannot be written: {error.strerror or error}") from error

    def is_half_made(self) -> bool:
        """Whether the folder holds only what a new run makes before its config is written.

        Raises:
            OSError: it cannot be read.
        """
        if not self.path.is_dir():
            return False
        made = {LOCK, NUMBER, CONFIG + PARTIAL, self.checkpoints.name}
        return made.issuperset(path.name for path in self.path.iterdir()) and not any(self.checkpoints.glob("*"))

    def clear_trace(self) -> None:
        """Remove the trace of the run before a resume, because the clocks of the two do not fit each other."""
        if self.trace.is_dir():
            remove_folder(self.trace)

    # The names of its files and folders:

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.path.name

    @property
    def config_path(self) -> Path:
        """The whole resolved config, as TOML."""
        return self.path / CONFIG

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def beginning(self) -> Path:
        """The folder of the first state, as a checkpoint of update 0, if the run begins with another run's policy."""
        return self.path / "beginning"

    @property
    def metrics_path(self) -> Path:
        """Every metric, as JSON lines."""
        return self.path / "metrics.jsonl"

    @property
    def log_path(self) -> Path:
        """What the display showed and what processes have logged, with times."""
        return self.path / RUN_LOG

    @property
    def launches_path(self) -> Path:
        """When, where and by which command the run was started and resumed, as JSON lines."""
        return self.path / "launches.jsonl"

    @property
    def code(self) -> Path:
        """The folder of the user's own code that launches have run: a folder in it for each state of the code."""
        return self.path / "code"

    @property
    def episodes(self) -> Path:
        """The folder of kept episodes of games."""
        return self.path / "episodes"

    @property
    def table_path(self) -> Path:
        """The file of the replay table, if the table is too large for checkpoints."""
        return self.path / "replay.table"

    @property
    def policy_path(self) -> Path:
        """The exported policy."""
        return self.path / "policy.onnx"

    @property
    def trace(self) -> Path:
        """The folder of the trace, if the run keeps one."""
        return self.path / "trace"

    @property
    def watched(self) -> Path:
        """The folder of films for TensorBoard, apart from its curves: it reads only the newest file of a folder."""
        return self.path / "watched"

    @property
    def deaths(self) -> Path:
        """The file of tracebacks, and stacks of crashes and hangs, of restarted processes, if there are any."""
        return self.path / "deaths.log"

    @property
    def card_path(self) -> Path:
        """The run's card."""
        return self.path / "README.md"


def list_runs(log_dir: Path) -> list[Path]:
    """The run folders in ``log_dir``. The run that was started or resumed last comes last."""
    try:
        paths = list(log_dir.iterdir())
    except (OSError, ValueError):
        return []
    found = []
    for path in paths:
        # Another process may remove a run meanwhile.
        with contextlib.suppress(OSError):
            if path.suffix != PARTIAL and (path / CONFIG).is_file():
                found.append((_number(path), (path / CONFIG).stat().st_mtime_ns, path.name, path))
    return [path for *_, path in sorted(found)]


def _other_than_a_run(path: Path) -> str:
    """What a path is instead of a run folder, and what to give instead, as the end of an error text.

    Knows four mistakes: a part of a run, a file, a bundle, and a folder of runs. Empty for any other path.
    """
    try:
        if not path.exists():
            return ""
        above = next((folder for folder in path.absolute().parents if (folder / CONFIG).is_file()), None)
        if above is not None:
            return f"is a part of a run: give {above}"
        if not path.is_dir():
            return "is a file; give the folder of a run"
        if (path / MANIFEST).is_file():
            return "is a bundle, which holds one policy; give the run that it came from"
    except (OSError, ValueError):
        return ""
    runs = list_runs(path)
    return f"holds runs: give one of them, such as {runs[-1]}" if runs else ""


def _no_run(path: Path) -> str:
    """Why a path is no run folder, as the end of an error text, if `_other_than_a_run` says nothing about it."""
    try:
        is_there = path.exists()
    except (OSError, ValueError):
        is_there = False
    return "is no run folder: " + (f"it has no {CONFIG}" if is_there else "there is no such folder")


def _number(path: Path) -> int:
    """The number of a run (see `NUMBER`); 0 if it has none."""
    try:
        return int((path / NUMBER).read_bytes()[:20])
    except (OSError, ValueError):
        return 0


@contextlib.contextmanager
def _making(log_dir: str | Path) -> Iterator[None]:
    """Turn errors of the file system into a RunFolderError about this log directory."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or error
        raise RunFolderError(f"cannot make a run folder in {log_dir}: {why}; give another --log_dir") from error
