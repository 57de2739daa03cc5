"""Processes of the build with fault points die only at the place that ``PENSTOCK_FAULT`` names."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.memory.segment import Segment
from penstock.memory.stream import Stream
from penstock.types import ArraySpec

SPECS = [ArraySpec("value", (2,), "int64")]
SLOTS = 2
PROGRAM = """
import os, sys
from penstock.memory.segment import Segment
from penstock.memory.stream import Stream
from penstock.types import ArraySpec

stream = Stream(Segment.attach({fd}, {nbytes}).bytes, [ArraySpec("value", (2,), "int64")], {slots})
for sequence in (1, 2):
    index = stream.claim(1, sequence)
    stream.slot(index)["value"][:] = sequence
    stream.push(index, 1)
if "late" in sys.argv:
    os.environ["PENSTOCK_FAULT"] = "slots.take.after:1"
stream.release(stream.take(1), 1)
"""


@pytest.fixture
def shared(segment: Callable[[int], Segment]) -> Segment:
    return segment(Stream.required(SPECS, SLOTS))


def run(path: str, shared: Segment, fault: str | None, *arguments: str, **variables: str) -> int:
    """The exit code of the program, negative if a signal ended it."""
    environment = os.environ | {"PYTHONPATH": path} | variables
    if fault is not None:
        environment["PENSTOCK_FAULT"] = fault
    source = PROGRAM.format(fd=shared.fd, nbytes=shared.nbytes, slots=SLOTS)
    command = [sys.executable, "-c", source, *arguments]
    return subprocess.run(command, env=environment, pass_fds=(shared.fd,), check=False).returncode


def test_nothing_happens_unless_asked(fault_points: str, shared: Segment) -> None:
    assert run(fault_points, shared, None) == 0


def test_a_fault_point_that_is_never_passed_again_harms_nobody(fault_points: str, shared: Segment) -> None:
    assert run(fault_points, shared, "slots.push.before:3") == 0


def test_it_dies_at_the_point_the_count_says(fault_points: str, shared: Segment) -> None:
    assert run(fault_points, shared, "slots.push.before:2") == -signal.SIGKILL
    stream = Stream(shared.bytes, SPECS, SLOTS)
    assert stream.ready() == 1
    assert stream.recover(1) == (1, 0)
    index = stream.take(2)
    assert index is not None
    assert stream.slot(index)["value"].tolist() == [1, 1]


def test_another_signal(fault_points: str, shared: Segment) -> None:
    assert (
        run(fault_points, shared, "slots.claim.after:1", PENSTOCK_FAULT_SIGNAL=str(signal.SIGTERM.value))
        == -signal.SIGTERM
    )


def test_a_file_is_signed_by_the_one_that_dies(fault_points: str, shared: Segment, tmp_path: Path) -> None:
    signed = tmp_path / "signed"
    fault = f"slots.claim.after:1:{signed}"
    assert run(fault_points, shared, fault) == -signal.SIGKILL
    assert int(signed.read_text()) > 0
    Stream(shared.bytes, SPECS, SLOTS).recover(1)
    assert run(fault_points, shared, fault) == 0


def test_a_process_may_ask_for_its_own_death(fault_points: str, shared: Segment) -> None:
    assert run(fault_points, shared, None, "late") == -signal.SIGKILL
    assert Stream(shared.bytes, SPECS, SLOTS).recover(1) == (0, 1)


def test_the_package_itself_has_none(shared: Segment) -> None:
    assert run(os.environ["PYTHONPATH"], shared, "slots.claim.after:1") == 0
