"""Small nodes for runtime tests: numbers go through a stream and come out in a record."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from penstock.nodes.contract import Ports
from penstock.processes.starts import Processes
from penstock.program.graph import NodeSpec, Program, Record, Stream
from penstock.supervision.outcome import Outcome
from penstock.types import ArraySpec

HERE = __name__


def cores() -> list[int]:
    """The cores that this process may run on; all cores, if the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


@dataclass(frozen=True)
class Count:
    """How far to count, and what happens at the last number."""

    numbers: int
    then: str = "go on"


class Source:
    """Writes 0, 1, 2, ... into stream ``numbers``."""

    def __init__(self, settings: Count) -> None:
        self.settings = settings
        self.next = 0

    def open(self, ports: Ports) -> None:
        self.stream = ports.stream_writer("numbers")
        self.ports = ports

    def ready(self) -> bool:
        return not self.ports.stopping() and self.next < self.settings.numbers and self.stream.free() > 0

    def step(self) -> None:
        index = self.stream.claim(self.next)
        if index is None:
            return
        self.stream.slot(index)["number"][...] = self.next
        self.stream.push(index)
        self.next += 1
        if self.next == self.settings.numbers:
            self.end()

    def end(self) -> None:
        if self.settings.then == "raise":
            raise ValueError("the source is broken")
        if self.settings.then == "say its niceness":
            raise ValueError(f"niceness {os.nice(0)}")
        if self.settings.then == "say its cores":
            raise ValueError(f"cores {cores()}")
        if self.settings.then == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.settings.then == "fork and raise":
            pids = Path(os.environ["PIDS"])
            if os.fork() == 0:
                # In a group of its own, so it does not end with the group of its parent.
                os.setsid()
                (pids / str(os.getpid())).touch()
                while True:
                    time.sleep(1000)
            while not any(pids.iterdir()):
                time.sleep(0.01)
            raise ValueError("the source is broken")
        if self.settings.then == "bear children":
            for apart in (False, True):
                sleep = "import time; time.sleep(600)"
                child = subprocess.Popen([sys.executable, "-c", sleep], start_new_session=apart)
                (Path(os.environ["PIDS"]) / str(child.pid)).touch()
        if self.settings.then == "hang":
            time.sleep(1000)
        if self.settings.then == "interrupt launcher":
            # The parent is the warden.
            os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGINT)

    def close(self) -> None: ...


class Sink:
    """Adds up the numbers that come, and finishes after so many numbers, or when the run stops."""

    def __init__(self, settings: Count) -> None:
        self.settings = settings
        self.total = 0
        self.seen = 0

    def open(self, ports: Ports) -> None:
        self.stream = ports.stream_reader("numbers")
        self.record = ports.record("sum")
        self.ports = ports
        self.done = False

    def ready(self) -> bool:
        return not self.done and (
            self.stream.ready() > 0 or self.ports.stopping() or self.seen == self.settings.numbers
        )

    def step(self) -> None:
        index = self.stream.take()
        if index is not None:
            self.total += int(self.stream.slot(index)["number"])
            self.seen += 1
            self.stream.release(index)
            self.ports.count("checkpoints")
        new = self.record.begin()
        new["total"][...] = self.total
        self.record.commit(self.seen)
        if self.seen == self.settings.numbers or self.ports.stopping():
            self.done = True
            self.ports.finished()

    def close(self) -> None: ...


def counting(numbers: int, then: str = "go on", wanted: int | None = None) -> Program:
    """A source and a sink in processes of their own."""
    value = (ArraySpec("number", (), "int64"),)
    silence_s = 3.0 if then == "hang" else 60.0
    return Program(
        (
            NodeSpec("source", f"{HERE}:Source", Count(numbers, then), "source", silence_limit_s=silence_s),
            NodeSpec("sink", f"{HERE}:Sink", Count(numbers if wanted is None else wanted), "sink"),
        ),
        (
            Stream("numbers", ("source",), ("sink",), value, 2, "wait"),
            Record("sum", "sink", (ArraySpec("total", (), "int64"),)),
        ),
        ends_with=("sink",),
    )


def launched(launch: Callable[[Program, Processes], Outcome], program: Program) -> Outcome:
    """The outcome of a program in processes of its own."""
    with Processes() as processes:
        return launch(program, processes)


def wait_until(condition: object, limit_s: float = 90.0) -> bool:
    """True once ``condition()`` is, or false after the limit, which only ends a hang."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False
