"""What a process is started with."""

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
    with pytest.raises(ResourceError, match="no memory for the 3 bytes of a process's spec: Bad file descriptor"):
        in_a_file(b"all")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])
