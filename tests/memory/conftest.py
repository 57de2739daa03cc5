"""Memory for one structure, and Python programs in processes of their own that share it."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from penstock.memory.segment import Segment


@pytest.fixture
def segment() -> Iterator[Callable[[int], Segment]]:
    made: list[Segment] = []

    def make(nbytes: int) -> Segment:
        made.append(Segment.create(nbytes, "test"))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def program() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start ``python -c source`` that finds ``memory``, the bytes of a segment, in scope."""
    started: list[subprocess.Popen[str]] = []

    def start(source: str, shared: Segment, *fds: int) -> "subprocess.Popen[str]":
        head = (
            "from penstock.memory.segment import Segment\n"
            f"memory = Segment.attach({shared.fd}, {shared.nbytes}).bytes\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", head + source],
            pass_fds=(shared.fd, *fds),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
