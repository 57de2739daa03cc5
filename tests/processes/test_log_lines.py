"""What comes through an error pipe: log lines, and between them tracebacks and stacks."""

import os
from collections.abc import Iterator

import pytest

from penstock.processes import log_lines
from penstock.processes.log_lines import LAST_WORDS_BYTES, LINE_BYTES, ErrorPipe, LogLine, as_bytes, last_words
from penstock.processes.logged import into_pipe


@pytest.fixture
def ends() -> Iterator[tuple[ErrorPipe, int]]:
    """The launcher's end of a pipe, and the descriptor of the process."""
    reading, writing = os.pipe()
    pipe = ErrorPipe("env.0", reading)
    yield pipe, writing
    pipe.close()
    os.close(writing)


def test_log_lines_and_a_traceback_come_out_apart(ends) -> None:
    pipe, writing = ends
    os.write(writing, as_bytes("WARNING", "too hot", 1))
    os.write(writing, last_words("Traceback:\n  in step\x1e\nValueError: no\n"))
    os.write(writing, as_bytes("ERROR", "too\n  late", 7))
    assert pipe.read() == [LogLine("env.0", "WARNING", "too hot", 1), LogLine("env.0", "ERROR", "too late", 7)]
    assert pipe.take_text() == "Traceback:\n  in step?\nValueError: no\n"
    assert (pipe.read(), pipe.take_text()) == ([], "")


def test_a_line_that_is_read_in_two_parts_is_one_line(ends) -> None:
    pipe, writing = ends
    line = as_bytes("WARNING", "zu heiß", 3)
    os.write(writing, b"stacks\n" + line[:-2])
    assert pipe.read() == []
    os.write(writing, line[-2:] + b"more\n")
    assert pipe.read() == [LogLine("env.0", "WARNING", "zu heiß", 3)]
    assert pipe.take_text() == "stacks\nmore\n"


def test_what_is_too_long_is_cut(ends) -> None:
    pipe, writing = ends
    line = as_bytes("WARNING", "ö" * LINE_BYTES, 1)
    assert len(line) == LINE_BYTES
    os.write(writing, line)
    (found,) = pipe.read()
    assert set(found.text) == {"ö"}
    assert len(last_words("a" * LAST_WORDS_BYTES + "end")) == LAST_WORDS_BYTES
    assert last_words("a" * LAST_WORDS_BYTES + "end").endswith(b"aend")


def test_of_stacks_that_nobody_takes_the_last_ones_are_kept(ends, monkeypatch) -> None:
    monkeypatch.setattr(log_lines, "KEPT_BYTES", 8)
    pipe, writing = ends
    for crash in range(3):
        os.write(writing, f"crash {crash}\n".encode())
        assert pipe.read() == []
    assert pipe.take_text() == "crash 2\n"


def test_a_full_pipe_takes_no_line_and_nobody_waits(ends) -> None:
    pipe, writing = ends
    send, sent = into_pipe(writing), 0
    while send(as_bytes("WARNING", "a" * LINE_BYTES, 1)):
        sent += 1
    assert sent > 0
    assert len(pipe.read()) == sent
    assert send(as_bytes("WARNING", "there is room again", 1))


def test_a_child_that_has_a_file_of_its_own_in_place_of_the_pipe_keeps_it(tmp_path) -> None:
    reading, writing = os.pipe()
    send = into_pipe(writing)
    with (tmp_path / "own").open("wb") as file:
        os.dup2(file.fileno(), writing)
        assert not send(as_bytes("WARNING", "too hot", 1))
    assert (tmp_path / "own").read_bytes() == b""
    for descriptor in (reading, writing):
        os.close(descriptor)


def test_after_the_launcher_nothing_is_sent() -> None:
    reading, writing = os.pipe()
    send = into_pipe(writing)
    os.close(reading)
    assert not send(as_bytes("WARNING", "too hot", 1))
    os.close(writing)
    assert not send(as_bytes("WARNING", "too hot", 1))
