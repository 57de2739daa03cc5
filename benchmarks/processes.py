"""What the processes of a training cost while it runs: CPU seconds against environment steps, from /proc.

Runs on Linux only. Does not change the processes that it watches.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.metrics.jsonl import METRICS, read_reports

TICK_S = 0.05
NODE = re.compile(r"env\.\d+|learner")
"""Names that the system has for processes with nodes. The others are the launcher, the warden and the template."""


class Sample(NamedTuple):
    """One look at a run."""

    steps: int
    """Environment steps learned by then."""
    cpu_s: float
    """CPU seconds of the watched processes by then, user and system."""


def cpu_s(stat: str, *, ended_children: bool = False) -> float:
    """User and system seconds, ended threads included, of a process by its ``/proc/PID/stat``.

    ``ended_children`` adds those of its children that have ended, and of theirs.
    """
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if ended_children else 13])) / os.sysconf("SC_CLK_TCK")


def workers_of(pid: int) -> list[int]:
    """The processes below a training's that step environments or learn, in the order of their start."""
    below = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    here = [child for child in below if NODE.fullmatch(Path(f"/proc/{child}/comm").read_text().strip())]
    return sorted(here + [grandchild for child in below for grandchild in workers_of(child)])


def cpu_per_step(arguments: Sequence[str], workers: int, skip: int) -> float:
    """CPU seconds that environment processes and learner together spend for one step of a training in steady state.

    Args:
        arguments: of ``penstock train``.
        workers: its environment processes; they start first and the learner after them.
        skip: samples of so many reports at the beginning are left out.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = Path(sys.executable).parent / "penstock"
        words = [program, "train", *arguments, "--eval_episodes", "1", "--log_dir", folder]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        samples: list[Sample] = []
        while process.poll() is None:
            time.sleep(TICK_S)
            sample = _look(process.pid, Path(folder), workers, skip)
            if sample is not None and sample.steps > (samples[-1].steps if samples else 0):
                samples.append(sample)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, "penstock")
    return slope(samples)


def slope(samples: Sequence[Sample]) -> float:
    """CPU seconds for each step, by a line of least squares, because both numbers are read a little late.

    Raises:
        RuntimeError: there are fewer than two samples.
    """
    if len(samples) < 2:
        raise RuntimeError(f"{len(samples)} samples give no slope: the run was too short; train for more --updates")
    steps, seconds = np.array(samples, np.float64).T
    return float(np.polyfit(steps - steps[0], seconds - seconds[0], 1)[0])


def _look(pid: int, log_dir: Path, workers: int, skip: int) -> Sample | None:
    """A sample; nothing if the run has not begun or is already ending."""
    runs = [run for run in log_dir.glob("*/") if (run / METRICS).exists()]
    try:
        reports = read_reports(runs[0]) if runs else []
        stats = [Path(f"/proc/{child}/stat").read_text() for child in workers_of(pid)[: workers + 1]]
    except OSError:
        return None
    if len(reports) <= skip or len(stats) <= workers:
        return None
    return Sample(reports[-1].steps, sum(map(cpu_s, stats)))
