"""A peer that waits in a process of its own, so that its rounds take turns with others. Compares nothing."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.peers.install import python_of
from benchmarks.peers.run import parse
from benchmarks.record import ROOT
from penstock.types import Array

END_S = 10
"""Seconds in which a peer must end after the last question."""


class Peer:
    """A running script of a peer that answers questions.

    Attributes:
        ways: the ways that can be asked for.
        missing: way -> why it cannot be asked for.
    """

    def __init__(self, command: Sequence[object]) -> None:
        words = [str(word) for word in command]
        self._process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            there = self._read()
        except BaseException:
            self.close()
            raise
        self.ways: list[str] = there["ways"]
        self.missing: dict[str, str] = there["missing"]

    def each_call(self, way: str, calls: int) -> Callable[[], Array]:
        """A round of ``calls`` calls, each timed by the peer itself.

        Raises:
            ValueError: from the round: the peer has ended.
        """

        def run() -> Array:
            if self._process.stdin is not None:
                self._process.stdin.write(f"{way} {calls}\n")
                self._process.stdin.flush()
            return np.asarray(self._read()["seconds"])

        return run

    def close(self) -> None:
        """Ask no more, and wait for its end."""
        try:
            self._process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _read(self) -> dict[str, Any]:
        """The next result. Other lines of the peer are ignored."""
        lines = self._process.stdout or ()
        return parse(next((line for line in lines if line.startswith("RESULT ")), "the peer has ended"))


@contextmanager
def peer(name: str, what: str, arguments: Sequence[str]) -> Iterator[Peer]:
    """The peer, while its rounds are measured: ``<name>_<what>.py`` in its own environment, made if need be.

    Raises:
        ValueError: its script ended before it said what there is.
    """
    asked = Peer([python_of(name), "-m", f"benchmarks.peers.{name}_{what}", *arguments])
    try:
        yield asked
    finally:
        asked.close()
