"""What a run needs to know of an environment, read in a process of its own.

So nothing that the environment starts is left behind, and where it dies or hangs, the launcher does not. That process
makes, resets and closes the environment; the launcher keeps the answer.
"""

import os
import pickle
import signal
import sys
import time
from collections.abc import Sequence

from penstock.envs.names import display_name
from penstock.envs.sources import EnvProfile
from penstock.errors import EnvError, NodeError, PenstockError
from penstock.processes.command import in_a_file
from penstock.processes.contract import PROBE
from penstock.processes.starts import Processes
from penstock.types import EnvReference

__all__ = ["probe_apart"]

NAME = "probe"
START_LIMIT_S = 60.0
"""How long the process may take to its imports."""
MAKE_LIMIT_S = 300.0


def probe_apart(
    processes: Processes,
    env: EnvReference,
    vector: bool,
    *,
    ignore_obs: Sequence[str] = (),
    masks: bool = False,
    reset_limit_s: float = 60.0,
) -> EnvProfile:
    """As ``probe``, in a process of its own, which is ended with all that the environment has started.

    Args:
        processes: the process is one of these; no other runs.
        env: as for ``probe``; by its name or pickled.
        vector: as for ``probe``.
        ignore_obs: as for ``probe``.
        masks: as for ``probe``.
        reset_limit_s: how long resetting the environment may take.

    Raises:
        UsageError: as ``probe``; also an environment that ends its process, or hangs where Python cannot break it off.
        NodeError: something else failed; it holds the process's own traceback.
    """
    limits = {"make_limit_s": MAKE_LIMIT_S, "reset_limit_s": reset_limit_s}
    arguments = {"ignore_obs": tuple(ignore_obs), "masks": masks, **limits}
    told = in_a_file(pickle.dumps(sys.path) + pickle.dumps((env, vector, arguments)))
    name = display_name(env)
    try:
        processes.run(NAME, PROBE, (), (told,), threads=1)
        _await_end(processes, name, START_LIMIT_S + MAKE_LIMIT_S + reset_limit_s)
        with os.fdopen(os.dup(told), "rb") as file:
            file.seek(0)
            answer = file.read()
    finally:
        processes.clear()
        os.close(told)
    if not answer:
        raise NodeError(NAME, f"environment {name} ended its process")
    found: EnvProfile | PenstockError = pickle.loads(answer)
    if isinstance(found, PenstockError):
        raise found
    return found


def _await_end(processes: Processes, name: str, limit_s: float) -> None:
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
