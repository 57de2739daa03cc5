"""What a run needs to know of an environment, read in a process of its own.

So nothing that the environment starts is left behind, and where it dies or hangs, the launcher does not. That process
makes, resets and closes the environment; the launcher keeps the answer.
"""

import contextlib
import importlib
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Sequence

from penstock.envs.names import display_name
from penstock.envs.sources import EnvProfile, probe
from penstock.errors import EnvError, NodeError, PenstockError
from penstock.memory.lifeline import watch
from penstock.processes.starts import SHARED
from penstock.processes.template import GROUP
from penstock.processes.warded import Warded, environment, in_a_file, python
from penstock.processes.worker import leave
from penstock.types import EnvReference

__all__ = ["COMMAND", "main", "probe_apart"]

COMMAND = "from penstock.processes.probing import main; main()"
NAME = "probe"
START_LIMIT_S = 60.0
"""How long the process may take to its imports."""
MAKE_LIMIT_S = 300.0


def probe_apart(
    env: EnvReference, vector: bool, *, ignore_obs: Sequence[str] = (), reset_limit_s: float = 60.0
) -> EnvProfile:
    """As ``probe``, in a process of its own, which is ended with all that the environment has started.

    Args:
        env: as for ``probe``; by its name or pickled.
        vector: as for ``probe``.
        ignore_obs: as for ``probe``.
        reset_limit_s: how long resetting the environment may take.

    Raises:
        UsageError: as ``probe``; also an environment that ends its process, or hangs where Python cannot break it off.
        NodeError: something else failed; it holds the process's own traceback.
    """
    settings = (vector, tuple(ignore_obs), MAKE_LIMIT_S, reset_limit_s)
    told = in_a_file(pickle.dumps(sys.path) + pickle.dumps((env, *settings)))
    processes = Warded()
    try:
        processes.begin(NAME, python(COMMAND), (), {**environment(1), GROUP: NAME.encode()}, (told,))
        _await_end(processes, display_name(env), START_LIMIT_S + MAKE_LIMIT_S + reset_limit_s)
        with os.fdopen(os.dup(told), "rb") as file:
            file.seek(0)
            found, imported = pickle.load(file)
    finally:
        processes.kill_all()
        os.close(told)
    if isinstance(found, PenstockError):
        raise found
    for module in imported:
        # Templates import what this process has.
        importlib.import_module(module)
    profile: EnvProfile = found
    return profile


def _await_end(processes: Warded, name: str, limit_s: float) -> None:
    """Return once the process has left its answer.

    Raises:
        EnvError: it was ended by a signal, or takes too long.
        NodeError: it failed.
    """
    begun = time.monotonic()
    while not (ended := processes.exits()):
        processes.wait(1.0)
        if time.monotonic() - begun > limit_s:
            raise EnvError(f"making, resetting and closing environment {name} takes more than {limit_s:g} s")
    if ended[0].status < 0:
        why = signal.Signals(-ended[0].status).name
        raise EnvError(f"environment {name} cannot be made and reset: it ended its process by {why}")
    if ended[0].status:
        raise NodeError(NAME, ended[0].detail or f"environment {name} ended its process")


def main() -> None:
    """Entry of the process: ``argv`` holds a file, which gives the question and takes the answer, then as `begin`."""
    told_fd, lifeline_fd, error_fd = map(int, sys.argv[1:4])
    watch(lifeline_fd)
    # What an environment prints is not part of a command's answer.
    with contextlib.suppress(OSError):
        os.dup2(2, 1)
    try:
        with os.fdopen(told_fd, "r+b") as file:
            file.seek(0)
            sys.path[:] = pickle.load(file)
            env, vector, ignore_obs, make_limit_s, reset_limit_s = pickle.load(file)
            limits = {"make_limit_s": make_limit_s, "reset_limit_s": reset_limit_s}
            found: EnvProfile | PenstockError
            try:
                found = probe(env, vector, ignore_obs=ignore_obs, **limits)
            except PenstockError as error:
                found = error
            answer = pickle.dumps((found, [name for name in SHARED if name in sys.modules]))
            file.seek(0)
            file.write(answer)
    except BaseException:  # noqa: BLE001 - whatever it was, the launcher is told
        os.write(error_fd, traceback.format_exc().encode(errors="replace")[-60_000:])
        leave(1)
    leave(0)
