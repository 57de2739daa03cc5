"""What a process is started with."""

import errno
import os

import pytest

from penstock.errors import ResourceError
from penstock.processes import command
from penstock.processes.command import in_a_file


def test_a_file_that_cannot_be_written_is_closed(monkeypatch) -> None:
    opened: list[int] = []

    def read_only(_: str) -> int:
        opened.append(os.open(os.devnull, os.O_RDONLY))
        return opened[-1]

    monkeypatch.setattr(command, "anonymous_file", read_only)
    with pytest.raises(ResourceError, match="no process can be started: Bad file descriptor"):
        in_a_file(b"all")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EMFILE, "no process can be started: Too many open files"),
        (errno.ENOSPC, "no memory for the 3 bytes of a process's spec: No space left on device"),
    ],
)
def test_it_is_said_what_the_machine_lacks(monkeypatch, number: int, says: str) -> None:
    def refused(_: str) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(command, "anonymous_file", refused)
    with pytest.raises(ResourceError, match=says):
        in_a_file(b"all")
