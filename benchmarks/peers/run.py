"""Runs a peer's script in the peer's own environment and reads its line `RESULT {json}`. Compares nothing."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.install import python_of

HERE = Path(__file__).parent
LIMIT_S = 600
"""Seconds until a peer is given up. Sample Factory waits for ever if one of its processes failed."""


def result_of(peer: str, arguments: Sequence[str], what: str = "ppo", limit_s: float = LIMIT_S) -> dict[str, Any]:
    """The result that `<peer>_<what>.py` prints. Its environment is made first if it does not exist.

    Raises:
        subprocess.CalledProcessError: it ended with an error.
        subprocess.TimeoutExpired: it did not end.
        ValueError: it printed no result.
    """
    command = [python_of(peer), HERE / f"{peer}_{what}.py", *arguments]
    return parse(subprocess.run(command, check=True, capture_output=True, text=True, timeout=limit_s).stdout)


def parse(output: str) -> dict[str, Any]:
    """Find the result in a script's output. The script or its libraries may print other lines as well.

    Raises:
        ValueError: there is none.
    """
    for line in output.splitlines():
        if line.startswith("RESULT "):
            result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            return result
    raise ValueError(f"no line RESULT in {output[-500:]!r}")
