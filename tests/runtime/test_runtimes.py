"""One program, two runtimes: the same outcome; failures are reported, nothing is left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from penstock.errors import NodeError, StallError
from penstock.memory.segment import Segment
from penstock.metrics.trace import OPEN, STEP, read_timeline
from penstock.processes import worker
from penstock.processes.starts import Processes
from penstock.processes.supervised import supervised
from penstock.processes.worker import WorkerSpec, run_nodes
from penstock.runtime import inline, local
from penstock.wiring.edges import Wiring, placement
from penstock.wiring.trace import NoTrace
from tests.children import interrupt_twice
from tests.runtime.nodes import Sink, Source, cores, counting, launched, wait_until

ROOT = Path(__file__).parents[2]


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob("*penstock*")}


@pytest.mark.parametrize("launch", [inline.launch, local.launch])
def test_a_program_runs_to_its_end(launch) -> None:
    outcome = launched(launch, counting(100))
    assert outcome.record["total"] == sum(range(100))
    assert not outcome.interrupted
    assert outcome.counters["sink"]["checkpoints"] == 100


@pytest.mark.parametrize(("launch", "processes"), [(inline.launch, ["inline"]), (local.launch, ["sink", "source"])])
def test_a_program_that_is_traced_keeps_what_each_node_did(launch, processes, tmp_path: Path) -> None:
    launched(launch, replace(counting(20), trace=tmp_path))
    timeline = read_timeline(tmp_path)
    assert timeline is not None
    assert sorted({node.process for node in timeline.nodes}) == processes
    for node in timeline.nodes:
        names = [span.name for span in node.tracks[0]]
        assert names[0] == OPEN
        assert names.count(STEP) >= 20


def test_a_node_that_dies_leaves_its_trace(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match="SIGKILL"):
        launched(local.launch, replace(counting(5, "die", wanted=50), trace=tmp_path))
    timeline = read_timeline(tmp_path)
    assert timeline is not None
    # It dies in the middle of its fifth turn.
    (source,) = [node for node in timeline.nodes if node.name == "source"]
    assert [span.name for span in source.tracks[0]].count(STEP) == 4


def test_local_leaves_nothing_behind(started) -> None:
    launched(local.launch, counting(10))
    assert started() == []
    assert shared_memory() == set()


def test_an_error_in_a_process_comes_with_its_own_traceback(started) -> None:
    with pytest.raises(NodeError, match="the source is broken") as caught:
        launched(local.launch, counting(5, "raise", wanted=50))
    assert caught.value.node == "source"
    assert 'raise ValueError("the source is broken")' in caught.value.detail
    assert started() == []


def test_a_process_steps_back_as_far_as_its_nodes_ask_for() -> None:
    program = counting(5, "say its niceness", wanted=50)
    nodes = tuple(replace(node, niceness=3 * (node.name == "source")) for node in program.nodes)
    with pytest.raises(NodeError) as caught:
        launched(local.launch, replace(program, nodes=nodes))
    assert f"ValueError: niceness {min(19, os.nice(0) + 3)}\n" in caught.value.detail


@pytest.mark.parametrize("core", [None, 0, 5])
def test_a_process_keeps_to_the_core_that_its_node_names(core: int | None) -> None:
    program, all_cores = counting(5, "say its cores", wanted=50), cores()
    nodes = tuple(replace(node, core=core if node.name == "source" else None) for node in program.nodes)
    with pytest.raises(NodeError) as caught:
        launched(local.launch, replace(program, nodes=nodes))
    # macOS lets no process choose: there the name of a core changes nothing.
    kept = core is not None and hasattr(os, "sched_setaffinity")
    expected = [all_cores[core % len(all_cores)]] if kept else all_cores
    assert f"ValueError: cores {expected}\n" in caught.value.detail


def test_a_process_that_is_killed_is_named_with_its_signal(started) -> None:
    with pytest.raises(NodeError, match="process source was ended by SIGKILL"):
        launched(local.launch, counting(5, "die", wanted=50))
    assert started() == []


def test_a_restart_that_the_system_refuses_is_no_end_of_the_launcher(monkeypatch, started) -> None:
    """The run ends in order: the node that writes the last checkpoint still lives."""

    class Refused(Processes):
        groups: ClassVar[list[str]] = []

        def start(self, segment, spec, threads, imports=()) -> None:
            if spec.placement.group in self.groups:
                monkeypatch.setattr(sys, "executable", "/nowhere/python")
            self.groups.append(spec.placement.group)
            super().start(segment, spec, threads, imports)

    monkeypatch.setattr("penstock.processes.starts.FORKS", False)
    with Refused() as processes, pytest.raises(NodeError, match="process source cannot be started") as caught:
        local.launch(replace(counting(5, "die", wanted=50), max_restarts=1), processes)
    assert caught.value.node == "source"
    assert Refused.groups == ["source", "sink", "source", "source"]
    assert started() == []


def test_a_process_that_hangs_is_found_and_shows_where_it_stands(started) -> None:
    with pytest.raises(NodeError, match="no sign of life from source") as caught:
        launched(local.launch, counting(5, "hang", wanted=50))
    assert "in end" in caught.value.detail  # the function that sleeps
    assert started() == []


def test_a_process_that_imports_for_too_long_did_not_start(monkeypatch, tmp_path: Path, started) -> None:
    monkeypatch.setenv("IMPORT_ENDS", str(tmp_path / "never"))
    monkeypatch.setattr("penstock.processes.supervised.START_LIMIT_S", 1.0)
    program = counting(5, "hang", wanted=50)
    slow = replace(program.node("source"), kind="tests.processes.slow_import:Source")
    with pytest.raises(NodeError, match=r"source did not start within \d+ s; its process was ended"):
        launched(local.launch, program.with_node(slow))
    assert started() == []


@pytest.mark.nightly  # Eight seconds of waiting. Shorter: one process that hangs, above.
def test_a_run_that_stands_still_ends_and_says_who_waits_for_what() -> None:
    with pytest.raises(StallError, match="the run came no further for") as caught:
        launched(local.launch, replace(counting(5, wanted=50), stall_limit_s=6.0))
    assert "2 of 2 slots of numbers to fill" in caught.value.detail
    assert "0 of 2 slots of numbers to read" in caught.value.detail
    assert caught.value.detail.count("in run_nodes") == 2  # the stacks of both


def test_an_error_inline_is_raised_as_it_is() -> None:
    with pytest.raises(ValueError, match="the source is broken"):
        launched(inline.launch, counting(5, "raise"))


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_run_in_order(started) -> None:
    handler = signal.getsignal(signal.SIGINT)
    outcome = launched(local.launch, counting(5, "interrupt launcher", wanted=50))
    assert outcome.interrupted
    assert int(outcome.record["total"]) in {0, 1, 3, 6, 10}  # as far as it had come
    assert started() == []
    assert signal.getsignal(signal.SIGINT) is handler


def test_when_the_launcher_is_killed_its_processes_end() -> None:
    code = (
        "from penstock.runtime.local import launch; from tests.runtime.nodes import counting, launched; "
        "launched(launch, counting(5, 'go on', 50))"
    )
    launcher = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    process = psutil.Process(launcher.pid)
    assert wait_until(lambda: len(process.children(recursive=True)) == 4)  # two nodes, warden, template
    children = process.children(recursive=True)
    launcher.kill()
    launcher.wait()
    assert wait_until(lambda: not any(child.is_running() and child.status() != "zombie" for child in children))
    assert shared_memory() == set()


def test_an_error_is_told_at_once_though_an_environments_child_lives_on(monkeypatch, tmp_path: Path) -> None:
    """The child never ends by itself, and keeps the output of its dead parent open. `launch` ends it last."""
    monkeypatch.setenv("PIDS", str(tmp_path))
    children: list[psutil.Process] = []
    lived: list[bool] = []

    def watched(*run: object) -> object:
        try:
            return supervised(*run)
        except NodeError:
            children.extend(psutil.Process(int(path.name)) for path in tmp_path.iterdir())
            lived.extend(child.status() != psutil.STATUS_ZOMBIE for child in children)
            raise

    monkeypatch.setattr("penstock.processes.supervised.supervised", watched)
    try:
        with pytest.raises(NodeError, match="the source is broken"):
            launched(local.launch, counting(5, "fork and raise", wanted=50))
        assert lived == [True]
    finally:
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


@pytest.mark.usefixtures("interruptible")
def test_inline_a_second_interrupt_ends_what_stands_still() -> None:
    code = (
        "from penstock.runtime.inline import launch; from tests.runtime.nodes import counting, launched; "
        "launched(launch, counting(5, 'hang', 50))"
    )
    stuck = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    process = psutil.Process(stuck.pid)
    assert wait_until(lambda: process.cpu_times().user > 0.1)
    time.sleep(1.0)
    interrupt_twice(stuck)
    assert stuck.wait(60) != 0
    assert stuck.stderr is not None
    assert "KeyboardInterrupt" in stuck.stderr.read()


def test_a_node_that_cannot_be_closed_leaves_no_other_open(monkeypatch) -> None:
    closed = []

    def stuck(self: object) -> None:
        closed.append(type(self).__name__)
        raise OSError("the disk is full")

    for node in (Source, Sink):
        monkeypatch.setattr(node, "close", stuck)
    with pytest.raises(OSError, match="the disk is full"):
        launched(inline.launch, counting(5))
    assert sorted(closed) == ["Sink", "Source"]
    assert shared_memory() == set()


def test_a_process_with_a_node_that_cannot_be_closed_leaves_no_other_open(monkeypatch) -> None:
    closed = []

    def stuck(self: object) -> None:
        closed.append(type(self).__name__)
        raise OSError("the disk is full")

    for kind in (Source, Sink, NoTrace):
        monkeypatch.setattr(kind, "close", stuck)
    monkeypatch.setattr(worker.gc, "freeze", lambda: None)
    program = counting(5, "raise")
    program = replace(program, nodes=tuple(replace(node, group="both") for node in program.nodes))
    nbytes = Wiring(program.edges, [(node.name, node.group) for node in program.nodes]).nbytes
    spec = WorkerSpec(placement(program, "both"), {"source": 1, "sink": 2}, {"source": (), "sink": ()})
    with (
        contextlib.closing(Segment.create(nbytes, "test")) as segment,
        pytest.raises(OSError, match="the disk is full"),
    ):
        run_nodes(spec, segment)
    assert closed == ["Source", "Sink", "NoTrace"]
