"""Each way of starting a training works on every machine, and trains exactly once."""

import json
import os
import resource
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.errors import EnvError
from tests.conftest import ROOT
from tests.environments import ClockEnv

SMALL = {
    "timesteps": 64,
    "num_envs": 4,
    "num_workers": 2,
    "num_steps": 8,
    "mini_batch_size": 16,
    "epochs": 1,
    "eval_episodes": 1,
}
FLAGS = [f"--{name}={value}" for name, value in SMALL.items()]

OWN_CLASS = """
import penstock
from tests.environments import ClockEnv
print("started")
class Mine(ClockEnv):
    pass
print("steps", penstock.train({"env": Mine, "log_dir": LOGS, **SMALL}, quiet=True).steps)
"""
NOTEBOOK = """
import threading
cell = threading.Thread(target=lambda: exec(compile(OWN_CLASS, "<cell>", "exec"), globals()))
cell.start()
cell.join()
"""
ENDED_THREAD = """
import threading, penstock
def train():
    print("started")
    print("steps", penstock.train({"env": "tests.environments:ClockEnv", "log_dir": LOGS, **SMALL}, quiet=True).steps)
starter = threading.Thread(target=lambda: threading.Thread(target=train).start())
starter.start()
starter.join()
"""


@pytest.mark.parametrize(
    ("source", "how"),
    # Shorter: a notebook is the hardest of them.
    [
        pytest.param(OWN_CLASS, "-c", marks=pytest.mark.nightly),
        pytest.param(OWN_CLASS, "stdin", marks=pytest.mark.nightly),
        (NOTEBOOK, "-c"),
        (ENDED_THREAD, "script"),
    ],
    ids=["python -c", "stdin", "notebook", "ended thread"],
)
def test_it_trains_once(tmp_path: Path, source: str, how: str) -> None:
    names = f"LOGS, SMALL, OWN_CLASS = {str(tmp_path / 'logs')!r}, {SMALL!r}, {OWN_CLASS!r}\n"
    text = names + textwrap.dedent(source)
    (tmp_path / "script.py").write_text(text)
    argv = {"-c": ["-c", text], "stdin": ["-"], "script": ["script.py"]}[how]
    done = subprocess.run(
        [sys.executable, *argv], input=text, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["started", "steps 64"]
    assert len(list((tmp_path / "logs").iterdir())) == 1


def test_a_script_that_ends_while_a_daemon_thread_trains_ends_the_run(tmp_path: Path) -> None:
    script = f"""
import threading, time, penstock
from tests.children import of_group
settings = {{**{SMALL!r}, "timesteps": 10**9, "log_dir": {str(tmp_path / "logs")!r}}}
train = lambda: penstock.train({{"env": "tests.environments:ClockEnv", **settings}}, quiet=True)
threading.Thread(target=train, daemon=True).start()
while of_group("learner") is None:
    time.sleep(0.01)
time.sleep(0.5)
print("the script ends")
"""
    surroundings = {**os.environ, "PYTHONPATH": ROOT}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=surroundings, timeout=120
    )
    # No line says `terminate called without an active exception`.
    assert (done.returncode, done.stdout, done.stderr) == (0, "the script ends\n", "")


def test_a_factory_that_cannot_be_sent_to_another_process_is_named_before_anything_starts(tmp_path: Path) -> None:
    numbers = (number for number in range(3))

    def make() -> ClockEnv:
        next(numbers)
        return ClockEnv()

    with pytest.raises(EnvError, match=r"make cannot be sent to another process \(.*generator.*name it as module:attr"):
        penstock.train({**SMALL, "env": make, "log_dir": str(tmp_path / "logs")}, quiet=True)
    assert not (tmp_path / "logs").exists()


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def one_core() -> None:
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])


@pytest.mark.parametrize(
    ("limit", "settings", "cwd"),
    [
        (few_files, {}, None),
        (one_core, {"TERM": "dumb", "COLUMNS": "40"}, None),
        # No user can write a file there, not even root.
        (None, {"HOME": "", "TMPDIR": "/nonexistent"}, "/proc"),
    ],
    ids=["64 files", "1 core", "nowhere to write"],
)
def test_a_small_machine_is_enough(
    tmp_path: Path, limit: Callable[[], None] | None, settings: dict[str, str], cwd: str | None
) -> None:
    argv = [sys.executable, "-m", "penstock", "train", "--env", "tests.environments:ClockEnv", *FLAGS]
    surroundings = {**os.environ, **settings, "PYTHONPATH": ROOT}
    surroundings = {name: value for name, value in surroundings.items() if value}
    done = subprocess.run(
        [*argv, "--log_dir", str(tmp_path)],
        capture_output=True,
        check=False,
        preexec_fn=limit,
        cwd=cwd,
        env=surroundings,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jumps = iter(range(2_000_000_000, 0, -100_000))
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: float(next(jumps)))
        settings = {**SMALL, "env": "tests.environments:ClockEnv", "runtime": "inline", "log_dir": str(tmp_path)}
        first = penstock.train(settings, quiet=True)
        second = penstock.resume(first.run_folder, timesteps=128, quiet=True)
    lines = [json.loads(line) for line in (second.run_folder / "metrics.jsonl").read_text().splitlines()]
    spent = [line["time_s"] for line in lines]
    assert spent == sorted(spent)
    assert spent[-1] < 60.0
    # TensorBoard reads event files in the order of their names, so later ones must sort last.
    files = sorted(second.run_folder.glob("events.out.tfevents.*"))
    assert [path.stat().st_mtime_ns for path in files] == sorted(path.stat().st_mtime_ns for path in files)
