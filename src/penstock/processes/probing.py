"""What a run needs to know of an environment, read in a process of its own."""

from collections.abc import Sequence

from penstock.envs.names import display_name
from penstock.envs.sources import PROBED_LANES, EnvProfile
from penstock.errors import EnvError
from penstock.processes.contract import PROBE
from penstock.processes.errand import Errand, call_apart
from penstock.processes.starts import Processes
from penstock.types import EnvReference

__all__ = ["probe_apart"]

START_LIMIT_S = 60.0
"""How long the process may take to its imports."""
MAKE_LIMIT_S = 300.0


def probe_apart(
    processes: Processes,
    env: EnvReference,
    vector: bool,
    *,
    lanes: int = PROBED_LANES,
    ignore_obs: Sequence[str] = (),
    masks: bool = False,
    reset_limit_s: float = 60.0,
) -> EnvProfile:
    """As ``probe``, in a process of its own, which is ended with all that the environment has started.

    Args:
        processes: the process is one of these; no other runs.
        env: as for ``probe``; by its name or pickled.
        vector: as for ``probe``.
        lanes: as for ``probe``.
        ignore_obs: as for ``probe``.
        masks: as for ``probe``.
        reset_limit_s: how long resetting the environment may take.

    Raises:
        UsageError: as ``probe``; also an environment that ends its process, or hangs where Python cannot break it off.
        NodeError: something else failed; it holds the process's own traceback.
    """
    subject = f"environment {display_name(env)}"
    slow = (
        f"{subject} is still being tried out: made ({MAKE_LIMIT_S:g} s at most), reset ({reset_limit_s:g} s at most, "
        "--env_timeout) and closed"
    )
    errand = Errand("probe", PROBE, subject, "made and reset", "making, resetting and closing", EnvError, slow=slow)
    found: EnvProfile = call_apart(
        processes,
        errand,
        START_LIMIT_S + MAKE_LIMIT_S + reset_limit_s,
        env,
        vector,
        lanes=lanes,
        ignore_obs=tuple(ignore_obs),
        masks=masks,
        make_limit_s=MAKE_LIMIT_S,
        reset_limit_s=reset_limit_s,
    )
    return found
