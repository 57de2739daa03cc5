"""An environment is probed in a process of its own: nothing of it stays, and its death does not end the launcher."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.config.sources import from_mapping
from penstock.envs.names import reference
from penstock.envs.sources import probe
from penstock.errors import EnvError, NodeError, SpaceError
from penstock.planning import prepare
from penstock.processes.probing import probe_apart
from penstock.processes.starts import Processes
from tests.environments import ClockEnv, TupleEnv

HERE = __name__


class ServedEnv(ClockEnv):
    """Starts a child, and one that leaves its process group and its parent; it ends neither of them."""

    def __init__(self) -> None:
        sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
        quiet = "start_new_session=True, stdout=subprocess.DEVNULL"
        orphan = f"import subprocess; print(subprocess.Popen({sleep!r}, {quiet}).pid)"
        child = subprocess.Popen(sleep)
        found = subprocess.run([sys.executable, "-c", orphan], stdout=subprocess.PIPE, check=True).stdout
        Path(os.environ["CHILDREN"]).write_text(f"{child.pid} {int(found)}")


class DyingEnv(ClockEnv):
    def reset(self, *, seed=None, options=None):
        os.kill(os.getpid(), signal.SIGSEGV)


class LeavingEnv(ClockEnv):
    def __init__(self) -> None:
        os._exit(0)


class BrokenSpaces(ClockEnv):
    @property
    def observation_space(self):
        raise RuntimeError("no spaces today")


class DeafEnv(ClockEnv):
    """Hangs like native code, which no signal interrupts."""

    def __init__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        time.sleep(600)


class SlowEnv(ClockEnv):
    def reset(self, *, seed=None, options=None):
        time.sleep(2.5)
        return super().reset(seed=seed, options=options)


class TalkingEnv(ClockEnv):
    def __init__(self) -> None:
        print("loading")


@pytest.fixture
def processes():
    with Processes() as made:
        yield made


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_it_says_what_a_probe_in_this_process_says(processes) -> None:
    assert probe_apart(processes, "tests.environments:DictEnv", False) == probe("tests.environments:DictEnv")
    found = probe_apart(processes, "tests.environments:TupleEnv", False, ignore_obs=("1.2",))
    assert found == probe("tests.environments:TupleEnv", ignore_obs=["1.2"])


def test_what_an_environment_starts_is_ended_and_nothing_else(processes, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CHILDREN", str(tmp_path / "children"))
    own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        prepare(from_mapping({"env": f"{HERE}:ServedEnv"}), processes)
        child, orphan = map(int, (tmp_path / "children").read_text().split())
        assert not alive(child)
        assert not alive(orphan)
        assert alive(own.pid)
    finally:
        own.kill()
        own.wait()


def test_what_can_be_mended_comes_as_it_was_said(processes) -> None:
    with pytest.raises(SpaceError, match=r"--ignore_obs 1\.2\.said$"):
        probe_apart(processes, reference(TupleEnv), False)
    with pytest.raises(EnvError, match=r"^unknown environment 'CartPol-v1'; did you mean"):
        probe_apart(processes, "CartPol-v1", False)


def test_an_environment_that_ends_its_process_is_one_line(processes) -> None:
    with pytest.raises(EnvError, match=f"^environment {HERE}:DyingEnv cannot be made and reset: it ended .* SIGSEGV$"):
        probe_apart(processes, f"{HERE}:DyingEnv", False)


def test_an_environment_that_leaves_without_a_word_is_named(processes) -> None:
    with pytest.raises(
        EnvError, match=f"environment {HERE}:LeavingEnv cannot be .*: it ended its process with no error"
    ):
        probe_apart(processes, f"{HERE}:LeavingEnv", False)


def test_another_error_brings_its_traceback(processes) -> None:
    with pytest.raises(NodeError, match="no spaces today") as caught:
        probe_apart(processes, f"{HERE}:BrokenSpaces", False)
    assert "Traceback" in caught.value.detail


def test_one_that_does_not_come_back_is_given_up(processes, monkeypatch) -> None:
    for limit in ("START_LIMIT_S", "MAKE_LIMIT_S"):
        monkeypatch.setattr(f"penstock.processes.probing.{limit}", 1.0)
    with pytest.raises(EnvError, match=r"^making, resetting and closing environment .*:DeafEnv takes more than 3 s$"):
        probe_apart(processes, f"{HERE}:DeafEnv", False, reset_limit_s=1.0)


def test_what_it_prints_is_no_part_of_the_answer(processes, capfd) -> None:
    probe_apart(processes, f"{HERE}:TalkingEnv", False)
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "loading\n")


@pytest.mark.parametrize(("after_s", "times"), [(0.5, 1), (60.0, 0)])
def test_an_environment_that_takes_long_to_open_is_told_of_once(processes, monkeypatch, caplog, after_s, times) -> None:
    monkeypatch.setattr("penstock.processes.errand.SLOW_S", after_s)
    probe_apart(processes, f"{HERE}:SlowEnv", False, reset_limit_s=45.0)
    said = (
        f"environment {HERE}:SlowEnv is still being tried out: made (300 s at most), reset (45 s at most, "
        "--env_timeout) and closed"
    )
    assert [record.getMessage() for record in caplog.records] == [f"after {after_s:g} s {said}"] * times
