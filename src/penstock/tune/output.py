"""The file of what the run of a trial prints, and why the run failed, by that file. Imports no Ray."""

import re
from collections.abc import Sequence
from pathlib import Path

__all__ = ["OUTPUT", "failure_in", "reason_in", "without_evaluation"]

OUTPUT = "output.txt"
"""The file in the folder of a trial."""
_ERROR = "penstock: error: "
_NODE = re.compile(r"penstock: (node \S+ failed); its (?:traceback is|stacks are) above")
_STACKS = re.compile(r"(?:Current thread|Thread) 0x")
_NOT_EVALUATED = re.compile(r"(?:penstock: )?the (evaluation was (?:given up: .*|interrupted))")
_TRACEBACK = "Traceback (most recent call last):"


def failure_in(path: Path) -> str | None:
    """Why the run failed, in one line; ``None`` if its output names no error, or is not there.

    The last error in the output counts. Lines about the run folder may follow it.

    - A node failed with a traceback: the line of the exception.
    - A node left the stacks of its threads: the line above the stacks.
    """
    lines = _lines(path)
    for place in reversed(range(len(lines))):
        if lines[place].startswith(_ERROR):
            return lines[place].removeprefix(_ERROR)
        if found := _NODE.match(lines[place]):
            raised = _raised(lines[:place]) or _above_stacks(lines[:place])
            return found[1] if raised is None else f"{found[1]}: {raised}"
    return None


def reason_in(path: Path) -> str:
    """As `failure_in`, of a run that has failed. If the output names no error, it is the last line."""
    return failure_in(path) or (_lines(path) or ["it wrote nothing"])[-1]


def without_evaluation(path: Path) -> str:
    """Why a run that has played all its timesteps was not evaluated, in one line; empty if its output does not say."""
    found = [match[1] for line in _lines(path) if (match := _NOT_EVALUATED.match(line))]
    return found[-1] if found else ""


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text("utf-8", "replace").splitlines() if line]
    except OSError:
        return []


def _raised(lines: Sequence[str]) -> str | None:
    """The line of the exception behind the last traceback. Notes on the exception follow it."""
    begins = [place for place, line in enumerate(lines) if line == _TRACEBACK]
    behind = lines[begins[-1] + 1 :] if begins else []
    return next((line for line in behind if not line.startswith(" ")), None)


def _above_stacks(lines: Sequence[str]) -> str | None:
    """The line above the stacks of a process that hung or crashed, which says so."""
    first = next((place for place, line in enumerate(lines) if _STACKS.match(line)), 0)
    return lines[first - 1] if first else None
