"""The warden ends a process's children after the process, and all processes after the launcher."""

import contextlib
import errno
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from penstock.errors import ResourceError
from penstock.memory.segment import Segment
from penstock.processes import starts, warded
from penstock.processes.log_lines import LogLine
from penstock.processes.starts import Processes
from penstock.processes.warden.line import Line
from penstock.processes.warden.warden import Warden
from penstock.processes.worker import WorkerSpec
from penstock.supervision.lives import Exit
from penstock.types import Cause
from penstock.wiring.edges import Placement
from tests.runtime.nodes import wait_until

ROOT = Path(__file__).parents[2]


class Code(WorkerSpec):
    """Takes the place of nodes: code that runs when a process reads it."""

    code: str

    def __reduce__(self):
        return exec, (f"import os\n{self.code}\nos._exit(0)", {})


@pytest.fixture(params=[True, False], ids=["forked", "by itself"])
def processes(monkeypatch, request):
    """A process table, with a template and without."""
    monkeypatch.setattr("penstock.processes.starts.FORKS", request.param)
    table = Processes()
    yield table
    table.close()


def run(table: Processes, code: str, group: str = "one", imports: Sequence[str] = ()) -> None:
    spec = Code(Placement(group, (), (), ((group, group),)), {}, {})
    spec.code = code
    with contextlib.closing(Segment.create(4096, "test")) as segment:
        table.start(segment, spec, 1, imports)


def exits(table: Processes) -> list[Exit]:
    found: list[Exit] = []
    assert wait_until(lambda: found.extend(table.exits()) or found)
    return found


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


CHILD = "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']{});"
TELL = "open({!r}, 'w').write(str(child.pid));"


def told(path: Path) -> int:
    assert wait_until(lambda: path.exists() and path.read_text())
    return int(path.read_text())


def test_all_processes_that_are_asked_say_where_they_stand_after_one_wait(processes, tmp_path, monkeypatch) -> None:
    for group in ("one", "two"):
        run(processes, f"open({str(tmp_path / group)!r}, 'w').close(); import time; time.sleep(600)", group)
        assert wait_until((tmp_path / group).exists)
    waits = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        for pipe in processes._errors.values():
            assert select.select([pipe], [], [], 90.0)[0]

    monkeypatch.setattr(starts, "time", SimpleNamespace(sleep=wait))
    found = processes.stacks(["one", "gone", "two"])
    assert waits == [starts.STACKS_WAIT_S]
    assert list(found) == ["one", "gone", "two"]
    assert found["gone"] == "It has ended."
    for group in ("one", "two"):
        assert "thread" in found[group].lower()


@pytest.mark.parametrize(("code", "status"), [("os._exit(7)", 7), ("os.kill(os.getpid(), 9)", -9), ("pass", 0)])
def test_it_says_how_a_process_ended(processes, code: str, status: int) -> None:
    run(processes, code)
    assert exits(processes) == [Exit("one", status, "")]
    assert processes.running() == ()


@pytest.mark.parametrize(("end", "status"), [("os._exit(7)", 7), ("os.kill(os.getpid(), 9)", -9)])
def test_the_last_warning_of_a_process_is_not_lost_with_it(processes, end: str, status: int) -> None:
    code = "import logging, warnings; logging.warning('too hot'); warnings.warn('too late');"
    run(processes, f"{code} {end}")
    assert exits(processes) == [Exit("one", status, "")]
    first, second = processes.log_lines()
    assert first == LogLine("one", "WARNING", "too hot", 1)
    assert (second.process, second.level, second.times) == ("one", "WARNING", 1)
    assert second.text.endswith(": UserWarning: too late")
    assert processes.log_lines() == []


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_a_process_that_crashes_in_native_code_leaves_the_stacks_of_python(processes, number: signal.Signals) -> None:
    run(processes, f"def climb():\n    os.kill(os.getpid(), {int(number)})\nclimb()")
    (ended,) = exits(processes)
    assert (ended.group, ended.status) == ("one", -number)
    first, stacks = ended.detail.split("\n", 1)
    assert first == f"process one was ended by {number.name}"
    assert stacks.startswith("Current thread 0x")
    assert "in climb" in stacks


def test_macos_before_python_3_13_has_no_waitid(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("penstock.processes.starts.FORKS", False)
    monkeypatch.setattr(warded, "WARDEN", f"import os; del os.waitid; {warded.WARDEN}")
    path = tmp_path / "pid"
    with Processes() as processes:
        run(processes, CHILD.format("") + TELL.format(str(path)) + "os._exit(7)")
        assert exits(processes) == [Exit("one", 7, "")]
        assert wait_until(lambda: not alive(told(path)))
        run(processes, "import time; time.sleep(600)")
        processes.kill("one")
        assert processes.running() == ()


def test_a_process_that_is_killed_is_not_told_of_again(processes) -> None:
    run(processes, "import time; time.sleep(600)")
    pid = processes.pid("one")
    processes.kill("one")
    assert not alive(pid)
    assert processes.exits() == []
    run(processes, "os._exit(3)")
    assert exits(processes)[0].status == 3


@pytest.mark.parametrize("apart", ["", ", start_new_session=True"])
def test_the_children_of_a_process_end_with_it(processes, tmp_path, apart: str) -> None:
    path = tmp_path / "pid"
    run(processes, CHILD.format(apart) + TELL.format(str(path)) + "os._exit(1)")
    exits(processes)
    assert not alive(told(path))


def test_a_child_that_the_system_does_not_end_is_left(monkeypatch, tmp_path) -> None:
    warden = Warden(Line(socket.socketpair()[0]), adopts=True)
    monkeypatch.setattr("penstock.processes.warden.warden.CLEAR_LIMIT_S", 0.1)
    stuck, killed = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]), []
    monkeypatch.setattr("penstock.processes.warden.warden.children", lambda: {stuck.pid})
    monkeypatch.setattr("penstock.processes.warden.warden.marked", lambda pid, mark: mark == b"its own")
    # As if the kernel waited for a driver.
    monkeypatch.setattr("penstock.processes.warden.warden.kill", killed.append)
    warden._sweep(b"of another")
    assert killed == []
    warden._sweep(b"its own")
    assert set(killed) == {stuck.pid}
    stuck.kill()
    stuck.wait()


def test_a_warden_that_waits_for_the_system_is_given_up(processes, monkeypatch) -> None:
    run(processes, "import time; time.sleep(600)")
    pid = processes.pid("one")
    monkeypatch.setattr(warded, "CLEARED_LIMIT_S", 0.1)
    monkeypatch.setattr(processes, "_ask", lambda *message: None)  # as if the warden were busy
    processes.clear()
    assert processes.running() == ()
    assert wait_until(lambda: not alive(processes._warden.pid))
    os.kill(pid, signal.SIGKILL)


def test_a_launcher_with_many_open_files_starts_processes(processes) -> None:
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit < 1200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1200, most))
    with contextlib.ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (limit, most))
        for _ in range(1050):
            opened.enter_context(open(os.devnull))  # noqa: PTH123
        with Processes() as others:
            run(others, "os._exit(3)")
            assert exits(others) == [Exit("one", 3, "")]


def test_the_children_of_another_process_stay(processes, tmp_path) -> None:
    # A child that a living process has detached belongs to the warden as well.
    path, code = tmp_path / "pid", CHILD.format(", start_new_session=True")
    daemon = "if os.fork() == 0: exec({!r}); os._exit(0)\nos.wait(); import time; time.sleep(600)"
    run(processes, daemon.format(code + TELL.format(str(path))))
    child = told(path)
    run(processes, "os._exit(1)", "two")
    assert exits(processes)[0].group == "two"
    assert alive(child)
    processes.close()
    assert not alive(child)


def test_between_two_programs_all_that_runs_is_ended(processes, tmp_path) -> None:
    # The child is in a group of its own, and its environment shows no mark: it has started no program.
    path = tmp_path / "pid"
    child = f"os.setsid(); open({str(path)!r}, 'w').write(str(os.getpid()))"
    run(processes, f"import time\nif os.fork() == 0: {child}\ntime.sleep(600)")
    pids = (processes.pid("one"), told(path))
    processes.clear()
    assert not any(map(alive, pids))
    assert processes.running() == ()
    assert processes.exits() == []
    run(processes, "os._exit(3)")
    assert exits(processes) == [Exit("one", 3, "")]


def test_starts_and_answers_that_fill_the_socket_hold_each_other_up(processes) -> None:
    """The warden answers each start, and the launcher reads nothing before it has asked for the last one."""
    for end in (processes._control, processes._other):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    for number in range(60):
        run(processes, "pass", f"process {number}")
    ended: list[Exit] = []
    assert wait_until(lambda: ended.extend(processes.exits()) or len(ended) == 60)
    assert {one.status for one in ended} == {0}


def test_a_process_that_the_system_does_not_end_is_not_waited_for_for_ever(processes, monkeypatch) -> None:
    run(processes, "import time; time.sleep(600)")
    processes.pid("one")
    monkeypatch.setattr(warded, "KILL_LIMIT_S", 0.1)
    monkeypatch.setattr(processes, "_ask", lambda *message: None)  # as if the system ignored the signal
    with pytest.raises(ResourceError, match="process one was killed, and the system has not ended it"):
        processes.kill("one")
    monkeypatch.undo()


def test_nothing_starts_before_the_first_process(started) -> None:
    with Processes():
        assert started() == []


def test_without_its_warden_a_run_ends(processes, monkeypatch) -> None:
    run(processes, "import time; time.sleep(600)")
    psutil.Process(psutil.Process(processes.pid("one")).ppid()).kill()
    with pytest.raises(ResourceError, match="was killed"):
        wait_until(processes.exits)
    # A forked process that waits for the warden's word to begin has ended with the warden.
    with contextlib.suppress(ProcessLookupError):
        os.kill(processes.pid("one"), signal.SIGKILL)


def test_a_process_that_cannot_be_started_is_named(monkeypatch) -> None:
    monkeypatch.setattr("penstock.processes.starts.FORKS", False)
    with Processes() as processes:
        run(processes, "pass", "before")
        assert exits(processes)[0].status == 0
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        run(processes, "")
        why = f"process one cannot be started: {os.strerror(errno.ENOENT)}"
        assert exits(processes) == [Exit("one", 1, why, Cause.REFUSED)]


def test_a_process_without_a_file_descriptor_to_spare_is_refused(processes, monkeypatch) -> None:
    def refused() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    run(processes, "pass", "before")
    assert exits(processes)[0].status == 0
    monkeypatch.setattr(os, "pipe", refused)
    with pytest.raises(ResourceError, match="process one cannot be started: Too many open files"):
        run(processes, "")
    assert processes.running() == ()


LAUNCHER = """
import os, sys, time
from penstock.runtime.local import launch
from tests.runtime.nodes import counting, launched
launched(launch, counting(5, "bear children", 50))
"""


@pytest.mark.parametrize("moment", ["launcher", "everyone", "terminal"])
def test_whatever_ends_the_launcher_leaves_nothing(tmp_path, moment: str) -> None:
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], cwd=ROOT, env={**os.environ, "PIDS": str(tmp_path)})
    assert wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    family = psutil.Process(launcher.pid).children(recursive=True)
    children = [psutil.Process(int(path.name)) for path in tmp_path.iterdir()]
    warden = next(process for process in family if process.ppid() == launcher.pid)
    if moment == "everyone":
        for process in (psutil.Process(launcher.pid), *(node for node in family if node != warden)):
            # The lifeline may have been quicker.
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    elif moment == "launcher":
        launcher.kill()
    else:
        for number in (signal.SIGHUP, signal.SIGINT):
            os.killpg(os.getpgid(warden.pid), number)  # it is for the launcher to decide
            time.sleep(0.05)
        assert launcher.poll() is None
        launcher.terminate()
    launcher.wait(90)
    assert wait_until(lambda: not any(alive(process.pid) for process in (*family, *children)))


def test_a_warden_that_the_system_refuses_is_one_line(monkeypatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", refused)
    with pytest.raises(ResourceError, match="no process can be started: Resource temporarily unavailable"):
        run(Processes(), "")
