"""What to do once nobody reads an output any more (`| head`)."""

import contextlib
import os
from typing import IO

__all__ = ["abandon"]


def abandon(stream: IO[str] | None) -> None:
    """Let all that is still written to ``stream`` vanish, also what Python flushes at exit, which would fail again."""
    if stream is None:
        return
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
