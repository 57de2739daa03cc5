"""Runs a peer's script in the peer's own environment and reads its line `RESULT {json}`. Compares nothing."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.install import python_of

HERE = Path(__file__).parent
LIMIT_S = 600
"""Sample Factory waits for ever where one of its processes failed."""


def result_of(peer: str, arguments: Sequence[str], what: str = "ppo") -> dict[str, Any]:
    """What `<peer>_<what>.py` prints of itself; its environment is made first if need be.

    Raises:
        subprocess.CalledProcessError: it ended with an error.
        subprocess.TimeoutExpired: it did not end.
        ValueError: it printed no result.
    """
    command = [python_of(peer), HERE / f"{peer}_{what}.py", *arguments]
    return parse(subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout)


def parse(output: str) -> dict[str, Any]:
    """The result that stands in a script's output, among whatever else it or its libraries print there.

    Raises:
        ValueError: there is none.
    """
    for line in output.splitlines():
        if line.startswith("RESULT "):
            result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            return result
    raise ValueError(f"no line RESULT in {output[-500:]!r}")
