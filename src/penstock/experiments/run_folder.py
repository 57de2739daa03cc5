"""A run's folder ``LOG_DIR/<env>-<algorithm>-<time>/``: made, found again, claimed by one process at a time.

Holds the names of what is in it; what is written there is others' work.
"""

import contextlib
import fcntl
import os
import re
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

from penstock.config.schema import Config
from penstock.config.sources import from_settings, settings_of_file, to_toml
from penstock.errors import RunFolderError, nearest
from penstock.experiments.durable import remove_folder, sweep, write_file
from penstock.experiments.migrations import migrated_settings

__all__ = ["RunFolder", "list_runs"]

CONFIG = "config.toml"
NUMBER = ".number"
"""How many runs of the folder had been begun, or resumed, when this one was begun last."""
_NAME_LIMIT = 100


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @classmethod
    def fresh(cls, log_dir: str | Path, env: str, algorithm: str, now: datetime | None = None) -> "RunFolder":
        """The folder of a new run, which is not there yet: numbered where its name is taken.

        Args:
            log_dir: holds run folders; it may be missing.
            env: the environment's name; what a path cannot hold becomes ``_``.
            algorithm: the algorithm's name.
            now: when the run starts, else the clock's time.

        Raises:
            RunFolderError: the log directory cannot be looked at.
        """
        safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", env).strip("._-")[:_NAME_LIMIT] or "env"
        name = f"{safe}-{algorithm}-{now or datetime.now():%Y%m%d-%H%M%S}"
        with _making(log_dir):
            path = Path(log_dir).expanduser() / name
            number = 1
            while path.exists():
                number += 1
                path = path.with_name(f"{name}-{number}")
            return cls(path)

    def make(self) -> bool:
        """Make the folder of a `fresh` run; it counts as a run once its config is written.

        False if another run has taken its name since.

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
        """The folder of a run that exists.

        Raises:
            RunFolderError: there is none.
        """
        path = Path(path)
        try:
            is_run = (path / CONFIG).is_file()
        except (OSError, ValueError):
            is_run = False
        if not is_run:
            raise RunFolderError(f"{path} is no run folder: it has no {CONFIG}")
        return cls(path)

    @classmethod
    def find(cls, run: str, log_dir: str | Path) -> "RunFolder":
        """A run by the path of its folder, by its name under ``log_dir``, or ``latest``.

        Raises:
            RunFolderError: there is none; the text says which come nearest.
        """
        runs = list_runs(Path(log_dir).expanduser())
        if run == "latest":
            if not runs:
                raise RunFolderError(f"there is no run in {log_dir}; penstock train makes one")
            return cls(runs[-1])
        for path in (Path(run).expanduser(), Path(log_dir).expanduser() / run):
            with contextlib.suppress(RunFolderError):
                return cls.open(path)
        hint = nearest(run, [path.name for path in runs]) or f"; latest stands for the newest run in {log_dir}"
        raise RunFolderError(f"there is no run {run}{hint}")

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Be the only process that writes this run; what an earlier one left unfinished is swept.

        Raises:
            RunFolderError: another process is writing it, or the folder cannot be written.
        """
        try:
            lock = (self.path / ".lock").open("ab")
        except OSError as error:
            raise RunFolderError(f"run folder {self.path} cannot be written: {error.strerror or error}") from error
        # The lock is the kernel's, so a process that dies gives it back.
        with lock:
            _LOCKS.add(lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunFolderError(f"run {self.path} is in use by another process; wait for its end") from error
            sweep(self.path)
            sweep(self.checkpoints)
            self._enter()
            yield

    def _enter(self) -> None:
        """Number this run as the last one of its folder that was begun: clocks may be set back."""
        numbers = [_number(path) for path in self.path.parent.iterdir() if path != self.path]
        try:
            (self.path / NUMBER).write_text(f"{max(numbers, default=0) + 1}\n")
        except OSError as error:
            raise RunFolderError(f"run folder {self.path} cannot be written: {error.strerror or error}") from error

    def read_config(self) -> Config:
        """The config that the run was told, as far as it holds today.

        Raises:
            ConfigError: see ``from_toml``.
        """
        return from_settings(migrated_settings(settings_of_file(self.config_path)))

    def write_config(self, config: Config) -> None:
        """Keep the whole resolved config.

        Raises:
            RunFolderError: it cannot be written.
        """
        try:
            write_file(self.config_path, to_toml(config).encode())
        except OSError as error:
            raise RunFolderError(f"run folder {self.path} cannot be written: {error.strerror or error}") from error

    @property
    def name(self) -> str:
        """What the run is called."""
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
    def metrics_path(self) -> Path:
        """Every metric, as JSON lines."""
        return self.path / "metrics.jsonl"

    @property
    def table_path(self) -> Path:
        """The replay table, where it is too large for checkpoints."""
        return self.path / "replay.table"

    @property
    def policy_path(self) -> Path:
        """The exported policy."""
        return self.path / "policy.onnx"

    @property
    def trace(self) -> Path:
        """The folder that is told what each node does when, where a run keeps that."""
        return self.path / "trace"

    @property
    def deaths(self) -> Path:
        """The tracebacks of processes that were started again; there only if there are some."""
        return self.path / "deaths.log"

    def clear_trace(self) -> None:
        """Forget what earlier lives of the run did when: clocks of two lives do not fit each other."""
        if self.trace.is_dir():
            remove_folder(self.trace)

    @property
    def card_path(self) -> Path:
        """What the run is and how to use it."""
        return self.path / "README.md"


def list_runs(log_dir: Path) -> list[Path]:
    """The run folders in ``log_dir``, the one that started or was resumed last at the end."""
    try:
        found = [
            (_number(path), (path / CONFIG).stat().st_mtime_ns, path.name, path)
            for path in log_dir.iterdir()
            if (path / CONFIG).is_file()
        ]
    except (OSError, ValueError):
        return []
    return [path for *_, path in sorted(found)]


def _number(path: Path) -> int:
    """The how-manieth run of its folder this was when it was last begun; 0 where nothing says so."""
    try:
        return int((path / NUMBER).read_bytes()[:20])
    except (OSError, ValueError):
        return 0


_LOCKS: weakref.WeakSet[IO[bytes]] = weakref.WeakSet()
"""Of the runs that this process has claimed."""


def _let_go() -> None:
    """A script that forks itself while it trains does not keep the run's lock once the launcher is gone."""
    for lock in _LOCKS:
        lock.close()


os.register_at_fork(after_in_child=_let_go)


@contextlib.contextmanager
def _making(log_dir: str | Path) -> Iterator[None]:
    """Raises what goes wrong as an error about this log directory."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or error
        raise RunFolderError(f"cannot make a run folder in {log_dir}: {why}; give another --log_dir") from error
