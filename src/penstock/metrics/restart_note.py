"""The line of the log and the display that tells of a restarted process. Looks at no process itself."""

from collections.abc import Mapping

from penstock.errors import signal_name
from penstock.types import Cause

__all__ = ["restart_note"]

_WITHOUT_UPTIME = frozenset({Cause.MOVED, Cause.REFUSED, Cause.NEEDED})
"""After these it does not matter how long the process has lived, and the line itself says what comes next."""


def restart_note(node: str, counts: Mapping[str, int], deaths: str) -> str:
    """How the process of a node ended, the number of its restart, and where its traceback or stacks stand.

    Args:
        node: its name.
        counts: its counters: ``restarts``, ``ended_by`` (as ``Exit.status``), ``cause``, ``uptime_ms``,
            ``detail_kept``.
        deaths: name of the file that keeps tracebacks and stacks.
    """
    status, cause = counts["ended_by"], Cause(counts["cause"])
    ending = f"{node} {_ending(status, cause)}"
    if cause not in _WITHOUT_UPTIME:
        ending += f" after {counts['uptime_ms'] / 1e3:.1f} s and was started again"
    kept = _kept(status, cause, deaths) if counts["detail_kept"] else ""
    return f"{ending} (restart {counts['restarts']}){kept}"


def _ending(status: int, cause: Cause) -> str:
    """How a process ended, as the middle of a sentence."""
    match cause:
        case Cause.SLOW_STEP:
            return "hung (a step or reset took longer than --env_timeout allows), was ended"
        case Cause.SILENT:
            return "hung (it gave no sign of life), was ended"
        case Cause.SLOW_START:
            return "did not start in time, was ended"
        case Cause.MOVED:
            return "moved to a machine that has joined"
        case Cause.LOST:
            return "was lost with its machine"
        case Cause.REFUSED:
            return "could not be started, and was tried again"
        case Cause.NEEDED:
            return "begins on a machine that is to run environments"
        case Cause.NONE if status < 0:
            return f"was ended by {signal_name(-status)}"
        case Cause.NONE:
            return f"ended with status {status}"


def _kept(status: int, cause: Cause, deaths: str) -> str:
    """What the file of deaths has of it, as the end of the line; empty: nothing that helps the reader."""
    if cause.of_silence:
        return f"; its stacks stand in {deaths}"
    if cause is Cause.LOST:
        return f"; {deaths} says which machine"
    if cause is Cause.REFUSED:
        return f"; {deaths} says why"
    if status > 0:
        return f"; its traceback stands in {deaths}"
    return f"; its stacks stand in {deaths}" if cause is Cause.NONE else ""
