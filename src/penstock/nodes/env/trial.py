"""Tries a snapshot: in a process of its own, on another environment.

Attributes of an environment may name something outside of it: the number of a connection, an address in memory. In a
process of its own they name nothing. In the process of the lanes, the second environment could use what belongs to the
first one, and close it.
"""

import pickle
import subprocess
import sys
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from penstock.memory.action_log import ActionLog
from penstock.nodes.contract import LaneStart
from penstock.nodes.env.lanes import Lanes
from penstock.nodes.env.opened import open_lanes
from penstock.nodes.env.settings import EnvSettings
from penstock.types import ArraySpec

__all__ = ["Trial", "main", "repeats"]

_LINE = 64
"""Bytes to which the memory of an action log is aligned."""
_REPEATS = 73
"""Exit status if the environment went the same way. A rare number, as an environment may end its process itself."""
_PROGRAM = (
    "import pickle, sys; path = pickle.load(sys.stdin.buffer); sys.path += path; "
    "from penstock.nodes.env.trial import main; main(path)"
)
"""Python's own path comes first and the working directory is not in it (``-P``) until all libraries are imported.
Otherwise a user's file there, ``numpy.py`` say, would be imported instead of a library's module of that name.
"""


class Trial(NamedTuple):
    """A snapshot, and how its lane has gone on."""

    settings: EnvSettings
    """Of the lane alone."""
    start: LaneStart
    """The snapshot is its base. Its actions lead to its position."""
    stacks: tuple[ArraySpec, ...]
    """The stacks of frames that the policy sees, ``[frames, ...]``."""
    snapshot_bytes: int
    """Bytes that a snapshot may have."""
    episode_return: float
    """Of the lane, at that position."""
    own_return: float
    """The sum of the user's own rewards there."""


def repeats(trial: Trial, limit_s: float) -> bool:
    """True if an environment to which the snapshot is applied goes the same way, bit for bit.

    False also if its process fails, or takes longer than ``limit_s`` seconds: a run goes on without snapshots.
    """
    told = pickle.dumps(sys.path) + pickle.dumps(trial)
    command, nothing = [sys.executable, "-P", "-c", _PROGRAM], subprocess.DEVNULL
    try:
        done = subprocess.run(command, input=told, stdout=nothing, stderr=nothing, timeout=limit_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == _REPEATS


def main(path: list[str]) -> None:
    """Try the snapshot that standard input holds, with the module search path of the process that asks."""
    sys.path[:] = path
    trial: Trial = pickle.load(sys.stdin.buffer)
    sys.exit(_REPEATS if _goes_the_same_way(trial) else 1)


def _goes_the_same_way(trial: Trial) -> bool:
    settings = replace(trial.settings, lanes=1, starts=(trial.start,))
    action, fields = settings.spaces.action_spec(), [name for name, _ in settings.spaces.obs]
    memory = np.zeros(ActionLog.required(1, action, 1, trial.snapshot_bytes) + _LINE, np.uint8)
    aligned = memory[-memory.ctypes.data % _LINE :]
    log = ActionLog(aligned, 1, action, fields, 1, snapshot_bytes=trial.snapshot_bytes)
    opened = open_lanes(settings, {spec.name: np.zeros((1, *spec.shape), spec.dtype) for spec in trial.stacks})
    lanes = Lanes(settings, opened.source, log, settings.starts)
    lanes.reset()
    for _ in lanes.restore(settings.starts):
        pass
    found = (
        bool(lanes.continues[0]),
        float(lanes.returns[0]) == trial.episode_return,
        opened.own_return(0) == trial.own_return,
    )
    opened.source.close()
    return all(found)
