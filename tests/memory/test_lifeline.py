import subprocess
import sys

import pytest

from penstock.errors import ResourceError
from penstock.memory.lifeline import ORPHANED, Lifeline, watch

HANG = """
import sys
from penstock.memory.lifeline import watch
watch(int(sys.argv[1]))
print("watching", flush=True)
{hang}
"""


def orphan(hang: str, lifeline: Lifeline) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", HANG.format(hang=hang), str(lifeline.fd)]
    child = subprocess.Popen(command, pass_fds=(lifeline.fd,), stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "watching\n"
    return child


@pytest.mark.parametrize(
    "hang",
    [
        "import time; time.sleep(1000)",
        "while True: pass",
        "10 ** 10 ** 9",  # one call that never gives the interpreter lock back
        "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 13, 15)]; signal.pause()",
    ],
)
def test_a_cut_lifeline_ends_the_process_whatever_it_does(hang: str) -> None:
    lifeline = Lifeline()
    child = orphan(hang, lifeline)
    assert child.poll() is None
    lifeline.close()
    lifeline.close()
    assert child.wait() == ORPHANED
    child.stdout.close()


def test_the_launchers_death_cuts_it() -> None:
    launcher = """
import os, subprocess, sys
from penstock.memory.lifeline import Lifeline
lifeline = Lifeline()
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(lifeline.fd)], pass_fds=(lifeline.fd,))
os.kill(os.getpid(), 9)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", launcher, HANG.format(hang="import time; time.sleep(1000)")],
        stdout=subprocess.PIPE,
        text=True,
    )
    # The grandchild holds the pipe's other end as its stdout: reading comes to an end when it is gone.
    assert "watching\n".startswith(process.stdout.read())
    assert process.wait() == -9
    process.stdout.close()


def test_a_descriptor_that_is_not_open_is_refused() -> None:
    with pytest.raises(ResourceError, match="cannot watch descriptor 999: Bad file descriptor"):
        watch(999)
