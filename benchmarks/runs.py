"""Starts penstock's command line and reads its results. Knows no algorithm and judges nothing."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from penstock.metrics.jsonl import each_report, read_reports
from penstock.metrics.report import IDLE, STEPS_PER_SECOND


class Curve(NamedTuple):
    """One metric over a run."""

    steps: list[int]
    seconds: list[float]
    values: list[float]


def penstock(*arguments: str) -> str:
    """Run the `penstock` that belongs to this interpreter; returns its standard output.

    Raises:
        subprocess.CalledProcessError: it ended with an error; its own lines stand on standard error.
    """
    program = Path(sys.executable).parent / "penstock"
    return subprocess.run([program, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def train(log_dir: Path, arguments: Sequence[str]) -> Path:
    """Train; returns the run folder, the only new one in ``log_dir``.

    Raises:
        RuntimeError: the command made no run folder, or several.
    """
    before = set(log_dir.glob("*/")) if log_dir.exists() else set()
    penstock("train", *arguments, "--log_dir", str(log_dir))
    made = sorted(set(log_dir.glob("*/")) - before)
    if len(made) != 1:
        raise RuntimeError(f"expected one new run folder in {log_dir}, found {len(made)}")
    return made[0]


def begun(command: "subprocess.Popen[bytes]", logs: Path, limit_s: float) -> Path:
    """Wait until a training reports for the first time; returns its run folder, the only one in ``logs``.

    Raises:
        RuntimeError: the command ends before, or reports nothing for so many seconds.
    """
    until = time.monotonic() + limit_s
    # The log is there, and empty, before the first report.
    while not (found := [log for log in logs.glob("[!.]*/metrics.jsonl") if log.stat().st_size]):
        if command.poll() is not None:
            raise RuntimeError(f"the run ended with {command.returncode} before its first report; see {logs.parent}")
        if time.monotonic() > until:
            raise RuntimeError(f"the run has reported nothing for {limit_s:.0f} s; see {logs.parent}")
        time.sleep(0.1)
    return found[0].parent


def evaluate(run: Path, episodes: int, checkpoint: str = "latest", seed: int | None = None) -> dict[str, Any]:
    """The result of ``penstock eval --json`` for a run's checkpoint, in episodes of this seed or of the run's seed."""
    words = ["--episodes", str(episodes), "--checkpoint", checkpoint, "--json"]
    if seed is not None:
        words += ["--seed", str(seed)]
    result: dict[str, Any] = json.loads(penstock("eval", str(run), *words))
    return result


def flags(setting: Mapping[str, Any]) -> list[str]:
    """Settings as command-line flags. penstock and the peers' scripts have the same."""
    return [word for name, value in setting.items() for word in (f"--{name}", str(value))]


def throughput(arguments: Sequence[str], skip: int = 1) -> float:
    """Steps per second of a training in steady state: from its commit number ``skip`` to its last, updates included."""
    with tempfile.TemporaryDirectory() as folder:
        return rate(curve(train(Path(folder), [*arguments, "--eval_episodes", "1"]), STEPS_PER_SECOND), skip)


def idle(run: Path, skip: int) -> dict[str, float]:
    """Node -> its idle share, from report number ``skip`` to the last."""
    reports = [report for report in read_reports(run) if STEPS_PER_SECOND in report.values]
    spans = [(after.time_s - before.time_s, after.values) for before, after in pairwise(reports[skip:])]
    whole = sum(span for span, _ in spans)
    nodes = {name for _, values in spans for name in values if name.startswith(IDLE)}
    return {
        name.removeprefix(IDLE): sum(span * values.get(name, 0.0) for span, values in spans) / whole
        for name in sorted(nodes)
    }


def rate(log: Curve, skip: int) -> float:
    """Steps per second from a log's entry ``skip`` to its last."""
    return (log.steps[-1] - log.steps[skip]) / (log.seconds[-1] - log.seconds[skip])


def curve(run: Path, metric: str) -> Curve:
    """One metric of a run, where it was reported."""
    found = Curve([], [], [])
    for report in each_report(run):
        if metric in report.values:
            found.steps.append(report.steps)
            found.seconds.append(report.time_s)
            found.values.append(report.values[metric])
    return found
