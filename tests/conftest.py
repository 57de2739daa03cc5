"""Fixtures and hooks of all tests.

- The processes that a test starts can import ``tests.environments``, as the tests can.
- A test marked ``alone`` has the machine to itself, also where tests run side by side.
- The fixture ``shared_templates`` spares most of the time of short runs with torch.
- The fixtures ``certificate`` (for TLS), ``fault_points`` (a build whose processes die where they are told to),
  ``started`` (what a test leaves behind) and ``interruptible``.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import psutil
import pytest

from tests.children import left_behind
from tests.lasting import LastingProcesses, lasting

ROOT = str(Path(__file__).parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
# Read when torch is imported. By default threads that wait for each other spin: where more processes than cores do so,
# a third of their time is lost (23 s instead of 36 s of processor time for the tests of models, on a busy machine).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests marked ``alone`` first: once they are done, the others can be shared out evenly to the end."""
    items.sort(key=lambda item: not _alone(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Keep a test marked ``alone`` apart from those that other processes of this pytest run.

    Other tests hold the lock together; a test marked ``alone`` holds it alone. The wait does not count for a time
    limit, because this hook runs around pytest-timeout.
    """
    if not hasattr(item.config, "workerinput"):  # pytest-xdist's: without it, there is one process only
        return (yield)
    with _build_folder().joinpath("alone.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if _alone(item) else fcntl.LOCK_SH)
        try:
            return (yield)
        finally:
            # What the test has forked holds the descriptor, too: closing it is not enough.
            fcntl.flock(lock, fcntl.LOCK_UN)


EARLIER = pytest.StashKey[list[psutil.Process]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Note which processes fixtures have started: those of a module serve its other tests as well."""
    item.stash[EARLIER] = psutil.Process().children()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """End the processes that a failed test has left. Otherwise later tests would find them and fail as well."""
    report = yield
    if report.failed:
        left = left_behind(item.stash.get(EARLIER, []))
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=10.0)
    return report


@pytest.fixture(scope="session")
def fault_points() -> str:
    """A ``PYTHONPATH`` under which processes die where ``PENSTOCK_FAULT`` says (see CONTRIBUTING.md)."""
    build = _build_folder()
    with (build / "faults.lock").open("w") as lock:  # tests may run in several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run(["make", "faults"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return os.pathsep.join([str(build / "faults"), os.environ["PYTHONPATH"]])


@pytest.fixture(scope="session")
def lasting_processes() -> Iterator[Callable[[], LastingProcesses]]:
    """Gives the processes of `shared_templates`."""
    with lasting() as current:
        yield current


@pytest.fixture(scope="module")
def shared_templates(lasting_processes: Callable[[], LastingProcesses]) -> Iterator[None]:
    """Runs of the module are forked from templates of earlier ones.

    A process has the environment variables of the moment in which it is forked. Not for tests that look at all
    processes, or that give theirs another working directory or variables that are read while templates import.
    """
    with pytest.MonkeyPatch.context() as patches:
        for module in ("run.launching", "run.loading", "run.program", "deployment", "retraining.attempt"):
            patches.setattr(f"penstock.{module}.Processes", lasting_processes)
        yield


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate of localhost and its private key, two files in PEM."""
    folder = Path(tmp_path_factory.mktemp("tls"))
    chain, key = str(folder / "cert.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", chain], check=True, capture_output=True)
    return chain, key


@pytest.fixture
def started() -> Callable[[], list[psutil.Process]]:
    """Gives the processes that the test has started, directly or not, and that are still there: running or zombies.

    What an earlier test or a fixture of the module has left does not count.
    """
    earlier = psutil.Process().children()
    return lambda: left_behind(earlier)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """This process, and those that the test starts, take SIGINT and SIGHUP although pytest was started to ignore them.

    A shell starts background jobs with SIGINT ignored, nohup starts a command with SIGHUP ignored. Processes inherit
    this.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


def _alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


def _build_folder() -> Path:
    build = Path(ROOT, "build")
    build.mkdir(exist_ok=True)
    return build
