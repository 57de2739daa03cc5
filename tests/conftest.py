"""Makes ``tests.environments`` importable in the processes that a test starts, as it is in the tests' own.

And the build whose processes die where they are told to.
"""

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from tests.children import left_behind

ROOT = str(Path(__file__).parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """End what a failed test has left running, so that only it fails: others look for what is left behind."""
    report = yield
    if report.failed:
        left = left_behind()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=10.0)
    return report


@pytest.fixture(scope="session")
def fault_points() -> str:
    """A ``PYTHONPATH`` under which processes die where ``PENSTOCK_FAULT`` says (see CONTRIBUTING.md)."""
    build = Path(ROOT, "build")
    build.mkdir(exist_ok=True)
    with (build / "faults.lock").open("w") as lock:  # tests may run in several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run(["make", "faults"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return os.pathsep.join([str(build / "faults"), os.environ["PYTHONPATH"]])
