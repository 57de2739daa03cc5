"""The file of what the run of a trial prints, and why the run failed, by that file. Imports no Ray."""

import re
from collections.abc import Sequence
from pathlib import Path

__all__ = ["OUTPUT", "failure_in", "reason_in"]

OUTPUT = "output.txt"
"""The file in the folder of a trial."""
_ERROR = "penstock: error: "
_NODE = re.compile(r"penstock: (node \S+ failed); its (?:traceback is|stacks are) above")
_TRACEBACK = "Traceback (most recent call last):"


def failure_in(path: Path) -> str | None:
    """Why the run failed, in one line; ``None`` if its output names no error, or is not there.

    The last error counts. Of a node with a traceback it is the line of the exception: what the run says of its folder
    comes behind it.
    """
    lines = _lines(path)
    for place in reversed(range(len(lines))):
        if lines[place].startswith(_ERROR):
            return lines[place].removeprefix(_ERROR)
        if found := _NODE.match(lines[place]):
            raised = _raised(lines[:place])
            return found[1] if raised is None else f"{found[1]}: {raised}"
    return None


def reason_in(path: Path) -> str:
    """As `failure_in`, of a run that has failed. If the output names no error, it is the last line."""
    return failure_in(path) or (_lines(path) or ["it wrote nothing"])[-1]


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
