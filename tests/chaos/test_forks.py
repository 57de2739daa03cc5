"""A script that forks itself while it trains, and one that is interrupted and goes on: nothing of the run is left."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

import penstock
from tests.children import newest_checkpoint
from tests.runtime.nodes import wait_until

FORKS = """
import os, threading, time
import penstock
from tests.children import newest_checkpoint, of_group

def fork():
    while of_group("env.1") is None or not newest_checkpoint(Path({log_dir!r})):
        time.sleep(0.05)
    child = os.fork()
    if child == 0:
        time.sleep(120)
        os._exit(0)
    print(child, flush=True)

from pathlib import Path
threading.Thread(target=fork, daemon=True).start()
penstock.train({settings!r}, quiet=True)
"""

INTERRUPTED = """
import json, os, signal, threading, time
from pathlib import Path
import penstock
from tests.children import left_behind, newest_checkpoint

log_dir = Path({log_dir!r})

def interrupt(folder, times):
    while not newest_checkpoint(folder):
        time.sleep(0.02)
    for _ in range(times):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.001)

def cell(times):
    folder = log_dir / str(times)
    threading.Thread(target=interrupt, args=(folder, times), daemon=True).start()
    try:
        result = penstock.train({settings!r} | {{"log_dir": str(folder)}}, quiet=True)
        time.sleep(0.2)  # for an interrupt that comes late
        return result
    except KeyboardInterrupt:
        return None

descriptors = lambda: len(os.listdir("/proc/self/fd"))
threads = lambda: threading.active_count()
before = descriptors(), signal.getsignal(signal.SIGINT)
first = cell(1)
assert first.interrupted and first.updates > 0
second = penstock.resume(first.run_folder, timesteps=first.steps + 256, quiet=True)
assert second.updates > first.updates
assert left_behind() == [], left_behind()
assert (descriptors(), signal.getsignal(signal.SIGINT)) == before, descriptors()
try:
    cell(2)
except BaseException as error:
    raise SystemExit(f"an interrupted cell raised {{error!r}}")
assert left_behind() == [], left_behind()
print("went on")
"""
SETTINGS = {"env": "tests.environments:TargetEnv", "num_steps": 16, "mini_batch_size": 32, "num_envs": 4}
SETTINGS |= {"num_workers": 2, "eval_episodes": 2, "save_interval": 2, "timesteps": 10_000_000}


def script(text: str, log_dir: Path) -> subprocess.Popen[str]:
    settings = {**SETTINGS, "log_dir": str(log_dir)}
    source = textwrap.dedent(text).format(log_dir=str(log_dir), settings=settings)
    return subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)


def test_a_launcher_that_forked_itself_is_killed_and_only_its_fork_is_left(tmp_path) -> None:
    run = script(FORKS, tmp_path)
    assert run.stdout is not None
    fork = psutil.Process(int(run.stdout.readline()))
    try:
        workers = [child for child in psutil.Process(run.pid).children(recursive=True) if child != fork]
        assert len(workers) >= 5
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        assert wait_until(lambda: not any(worker.is_running() for worker in workers))
        assert fork.is_running()
        (folder,) = tmp_path.iterdir()
        first = int(newest_checkpoint(tmp_path).removeprefix("update-"))
        assert penstock.resume(folder, timesteps=(first + 2) * 64, quiet=True).updates >= first
    finally:
        fork.kill()


@pytest.mark.nightly  # Nine seconds. Shorter: a launcher that is killed, above.
@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_cell_of_a_notebook_leaves_nothing(tmp_path) -> None:
    run = script(INTERRUPTED, tmp_path)
    said, _ = run.communicate(timeout=150)
    assert (run.returncode, said) == (0, "went on\n")
