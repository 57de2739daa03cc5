"""A trial: one training run as a process of its own, followed by its metrics. Imports no Ray.

A process of its own ends in order: the run writes its last checkpoint, wherever it is. It does so as well if the
process that follows it is killed.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.config.sources import shown, to_toml
from penstock.config.whole import Config
from penstock.errors import PenstockError
from penstock.metrics.jsonl import METRICS, GrowingLog
from penstock.metrics.report import EVAL_RETURN, FINAL, RETURN, Report
from penstock.saved_runs.checkpoints import list_checkpoints
from penstock.saved_runs.run_folder import RunFolder, list_runs
from penstock.tune.output import OUTPUT, reason_in

__all__ = ["FAILED", "TrialRun", "up_to_date"]

POLL_S = 0.25
BEFORE_ANY = {"update": -1.0, "steps": 0.0, "return": float("-inf"), "validation": float("-inf")}
"""What is known of a run without metrics. A scheduler wants all of its values in each report."""
FAILED = "the run of this trial failed: "
"""Begins the text of the error of a run that failed."""
_AS_GRANDCHILD = ("/bin/sh", "-c", '"$@"; exit $?', "sh")
"""Begins the command of a run. Ray kills the children of a process that it ends, but not their children: so the shell
dies, and the run ends in order."""
STOP_S = 60.0
"""How long a run that is stopped may take to write its last checkpoint."""
SAVE_S = 60.0
"""How long a trial that is to be copied may take to write a checkpoint, if it has none yet."""


class TrialRun:
    """The run of one trial.

    Args:
        folder: of the trial; its run folder is made in it.
        started_in: the folder in which the user typed the command. If this machine has it, the run starts there: the
            user's own modules are there, and Ray Tune has gone to another folder.
    """

    def __init__(self, folder: Path, started_in: Path) -> None:
        self._folder = folder
        self._started_in = started_in if started_in.is_dir() else None
        self._process: subprocess.Popen[bytes] | None = None
        self._held: int | None = None
        """This end of a pipe. The run ends once it is closed."""
        self._seen = -1
        self._timesteps = 0
        self._resumed: Path | None = None
        """The copy that goes on, once the trial has taken over another one. Its files are older than its number."""
        self._log: GrowingLog | None = None
        self._values: dict[str, float] = {}
        """What the lines of the log so far say."""

    @property
    def run_folder(self) -> Path | None:
        """The folder of the run that was begun last; ``None`` before it is made."""
        return self._resumed or next(reversed(list_runs(self._folder)), None)

    def train(self, config: Config) -> None:
        """Begin a run with this config."""
        path, self._timesteps = self._folder / "trial.toml", config.run.timesteps
        self._folder.mkdir(parents=True, exist_ok=True)
        path.write_text(to_toml(config), "utf-8")
        self._start("train", "--config", str(path), "--log_dir", str(self._folder))

    def resume(self, copied: Path, changes: Mapping[str, object], timesteps: int) -> None:
        """Continue a copy of another trial's run, with changed settings, up to so many timesteps."""
        self._timesteps = timesteps
        self._folder.mkdir(parents=True, exist_ok=True)
        run = self._folder / f"{copied.name}-{len(list_runs(self._folder))}"
        shutil.copytree(copied, run)
        self._resumed, self._seen = run, -1
        flags = [word for name, value in changes.items() for word in (f"--{name}", shown(value))]
        self._start("resume", str(run), *flags)

    def _start(self, *arguments: str) -> None:
        read, self._held = os.pipe()
        try:
            with (self._folder / OUTPUT).open("ab") as output:
                self._process = subprocess.Popen(
                    [*_AS_GRANDCHILD, sys.executable, "-m", "penstock.tune.tied", str(read), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    # Ctrl-C at a terminal must not end it before Tune decides what becomes of it.
                    start_new_session=True,
                    cwd=self._started_in,
                    pass_fds=(read,),
                )
        finally:
            os.close(read)

    def wait(self) -> dict[str, float]:
        """Wait for the next metrics of the run, or for its end.

        Once all timesteps are played it waits for the end. A scheduler that stopped the trial then would only lose its
        evaluation.

        Returns:
            ``update``, ``steps``, ``return`` (mean of the latest training episodes), ``validation`` (the latest
            evaluation during the run, with ``eval_interval``), ``done`` (1 once the run has ended), and then
            ``evaluation``, its final evaluation. ``return`` and ``validation`` are minus infinity before the first.

        Raises:
            PenstockError: the run has failed; with the reason that it wrote.
        """
        process = self._process
        if process is None:
            raise PenstockError("a trial is waited for before it began")
        while True:
            ended = process.poll()
            found = self._latest()
            if ended is not None:
                if ended != 0:
                    raise PenstockError(f"{FAILED}{reason_in(self._folder / OUTPUT)}")
                return {**found, "done": 1.0}
            if found["update"] > self._seen and found["steps"] < self._timesteps:
                self._seen = int(found["update"])
                return {**found, "done": 0.0}
            time.sleep(POLL_S)

    def checkpoint(self, to: Path) -> bool:
        """Copy what continues the run elsewhere. False if there is no checkpoint.

        These are its config, its metrics, its latest checkpoint, and its replay table if that lies in a file. The run
        may write rows into the table meanwhile: a resume drops those that are newer than the checkpoint.
        """
        run = self.run_folder
        saved = [] if run is None else list_checkpoints(run)
        if run is None or not saved:
            return False
        copy = to / run.name
        # A checkpoint that is pruned meanwhile is followed by a newer one.
        with contextlib.suppress(OSError):
            shutil.copytree(saved[-1], copy / "checkpoints" / saved[-1].name)
            shutil.copy(run / "config.toml", copy)
            folder = RunFolder.open(run)
            shutil.copy(folder.metrics_path, copy)
            if folder.table_path.exists():
                shutil.copy(folder.table_path, copy)
            return True
        # Half a copy would be taken for a whole one.
        shutil.rmtree(copy, ignore_errors=True)
        return False

    def save(self, to: Path) -> None:
        """As `checkpoint`, but wait for the run to write one.

        Raises:
            PenstockError: it has ended without one, or takes too long.
        """
        until = time.monotonic() + SAVE_S
        while True:
            # Asked first: a run that ends meanwhile writes its last checkpoint before.
            over = self._process is None or self._process.poll() is not None or time.monotonic() > until
            if self.checkpoint(to):
                return
            if over:
                raise PenstockError(f"{FAILED}it has no checkpoint to go on from; give a smaller --save_interval")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """End the run in order: it writes a last checkpoint. One that takes too long is killed."""
        if self._held is not None:
            # No signal besides: the run takes a second one for the wish to end at once. Ray may kill this process now.
            os.close(self._held)
            self._held = None
        process = self._process
        if process is None or process.poll() is not None:
            return
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            # With the shell, the run.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _latest(self) -> dict[str, float]:
        run, nothing = self.run_folder, dict(BEFORE_ANY)
        if run is None or not (run / METRICS).exists():
            return nothing
        if self._log is None or self._log.folder != run:
            self._log = GrowingLog(run)
        reports, anew = self._log.new()
        values = self._values = nothing if anew else self._values
        _take(reports, values)
        return values


def up_to_date(found: Mapping[str, Any], run: Path | None) -> dict[str, Any]:
    """The last report of a trial, with what the metrics of its run say by now, if they lie on this machine.

    A trial learns on after its last report until it has ended.
    """
    if run is None or not (run / METRICS).exists():
        return dict(found)
    values = dict(BEFORE_ANY)
    _take(GrowingLog(run).new()[0], values)
    return {**found, **values}


def _take(reports: Iterable[Report], values: dict[str, float]) -> None:
    """Bring values up to date with further reports of a run."""
    for report in reports:
        values["update"], values["steps"] = float(report.update), float(report.steps)
        values["return"] = report.values.get(RETURN, values["return"])
        if FINAL in report.values:
            values["evaluation"] = report.values[EVAL_RETURN]
        elif EVAL_RETURN in report.values:
            values["validation"] = report.values[EVAL_RETURN]
