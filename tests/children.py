"""Finds the descendants of a process: those of a run, and those that are left after it."""

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import psutil

from penstock.processes.contract import WORKER
from penstock.saved_runs.checkpoints import list_checkpoints

__all__ = ["interrupt_twice", "killing", "left_behind", "newest_checkpoint", "of_group", "stop"]


def left_behind(earlier: Collection[psutil.Process] = ()) -> list[psutil.Process]:
    """The descendants of this process, without the one that `multiprocessing` keeps to the end.

    Args:
        earlier: children of this process that do not count, nor what is below them.
    """
    found = psutil.Process().children(recursive=True)
    spared = set(earlier)
    for process in earlier:
        with contextlib.suppress(psutil.NoSuchProcess):
            spared.update(process.children(recursive=True))
    return [child for child in found if child not in spared and "resource_tracker" not in _command(child)]


def stop(pid: int) -> None:
    """Stop a process, and wait until none of its threads runs. `os.kill` returns while they may still answer a call.

    On a busy machine one server in four did.
    """
    os.kill(pid, signal.SIGSTOP)
    while any(psutil.Process(thread).status() != psutil.STATUS_STOPPED for thread in _threads(pid)):
        time.sleep(0.001)


def _threads(pid: int) -> list[int]:
    """The threads of a process that psutil can look at each by its number; where it cannot, the process alone."""
    tasks = Path(f"/proc/{pid}/task")
    return [int(task.name) for task in tasks.iterdir()] if tasks.exists() else [pid]


def of_group(group: str, pid: int | None = None) -> psutil.Process | None:
    """The process of a placement group, of a run that this process or process ``pid`` has launched; the newest.

    A process that was forked from the template has its group as its name. For other processes an environment variable
    names the group. Their children have that variable, too.
    """
    found, module = None, WORKER.partition(":")[0]
    for process in psutil.Process(pid).children(recursive=True):
        try:
            by_itself = module in _command(process) and process.environ().get("PENSTOCK_GROUP") == group
            if process.name() == group or by_itself:
                found = process
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def newest_checkpoint(log_dir: Path) -> str:
    """The name of the newest checkpoint of the runs in a folder, which may be training; empty if there is none."""
    return max((path.name for run in log_dir.glob("*") for path in list_checkpoints(run)), default="")


@contextlib.contextmanager
def killing(groups: Sequence[str], log_dir: Path) -> Iterator[list[str]]:
    """Kill processes of the only run in a folder, one after the other, while the body trains. Yields the killed groups.

    A kill comes after each new checkpoint: at once after the first, a moment after each later one. So kills lie within
    the run's turns on machines of any speed. There must be at least one kill.

    Args:
        groups: the placement groups, in turn.
        log_dir: the folder. The run has to save a checkpoint every few turns.
    """
    over, numbers = threading.Event(), random.Random(str(groups))
    killed: list[str] = []

    def kill() -> None:
        last, pause_s = "", 0.0
        while len(killed) < len(groups) and not over.wait(0.002):
            group, newest = groups[len(killed)], newest_checkpoint(log_dir)
            if newest > last and not over.wait(pause_s) and (process := of_group(group)) is not None:
                # It may have ended with the run.
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
                    killed.append(group)
                last, pause_s = newest, numbers.uniform(0.0, 0.03)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield killed
    finally:
        over.set()
        killer.join()
    assert killed


def interrupt_twice(process: subprocess.Popen[str]) -> None:
    """Interrupt a process until it has ended: it must take two. Interrupts that come too close together are one."""
    for patience_s in (0.3, 60.0, 60.0):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            return


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""
