"""The main function of a worker process: attach the segment, open the nodes, run the loop, close the nodes.

A worker is forked from a template, or started as ``python -c "..."``. So the user's script never runs a second time.
"""

import contextlib
import faulthandler
import gc
import os
import pickle
import signal
import sys
import traceback
from typing import NamedTuple, NoReturn

from penstock.errors import BadDataError, DamagedError, UsageError
from penstock.memory.lifeline import watch
from penstock.memory.segment import Segment
from penstock.processes.contract import STACKS_SIGNAL
from penstock.processes.log_lines import last_words
from penstock.processes.logged import Teller, into_pipe, listen
from penstock.processes.working_directory import leave_removed_directory
from penstock.registry import load
from penstock.scheduler.loop import Loop, Placed
from penstock.supervision.lives import HOPELESS
from penstock.wiring.edges import Placement, Wiring, node_class
from penstock.wiring.ports import NodePorts
from penstock.wiring.trace import OPEN, traces

__all__ = ["WorkerSpec", "leave", "run_nodes", "work"]


class WorkerSpec(NamedTuple):
    """What a worker process has to do."""

    placement: Placement
    lives: dict[str, int]
    """Node -> the number of this life."""
    former: dict[str, tuple[int, ...]]
    """Node -> the numbers of its earlier lives."""


class _OwnBell:
    """The bell of this process's group."""

    def __init__(self, wiring: Wiring, group: str) -> None:
        self._bells = wiring.bells
        self._index = wiring.bell_of(group)

    def word(self) -> int:
        return self._bells.word(self._index)

    def wait(self, seen: int, timeout_s: float) -> None:
        self._bells.wait(self._index, seen, timeout_s)


def work(nbytes: int, segment_fd: int, spec_fd: int, lifeline_fd: int, error_fd: int) -> NoReturn:
    """Run the nodes of a `WorkerSpec`, then end this process.

    Args:
        nbytes: size of the segment.
        segment_fd: the segment.
        spec_fd: file with the module search path and a ``WorkerSpec``.
        lifeline_fd: pipe whose end of file ends this process.
        error_fd: pipe for log lines, for a traceback, and for stacks: those that `STACKS_SIGNAL` asks for, and those of
            a crash in native code.
    """
    watch(lifeline_fd)
    leave_removed_directory()
    # The launcher decides when a run ends, even if a signal reaches its whole process group. SIG_IGN would be inherited
    # by an environment's children; a handler is not.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    faulthandler.register(STACKS_SIGNAL, file=error_fd)
    faulthandler.enable(file=error_fd)
    teller = Teller(into_pipe(error_fd))
    listen(teller.tell)
    try:
        with os.fdopen(spec_fd, "rb") as file:
            # The launcher, which wrote the file, shares its position.
            file.seek(0)
            sys.path[:] = pickle.load(file)
            spec: WorkerSpec = pickle.load(file)
        os.nice(min(node.niceness for node in spec.placement.nodes))
        _keep_to_core(spec.placement)
        _keep_to_gpu(spec.placement)
        segment = Segment.attach(segment_fd, nbytes)
        run_nodes(spec, segment)
    except BaseException as error:  # noqa: BLE001 - the supervisor gets to know every error
        teller.close()
        os.write(error_fd, last_words(traceback.format_exc()))
        leave(HOPELESS if isinstance(error, BadDataError | DamagedError | UsageError) else 1)
    teller.close()
    leave(0)


def _keep_to_core(placement: Placement) -> None:
    """Pin this process to a core if a node asks for one and the system can."""
    wanted = [node.core for node in placement.nodes if node.core is not None]
    if wanted and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[wanted[0] % len(cores)]})


def _keep_to_gpu(placement: Placement) -> None:
    """Let this process use the GPU that a node asks for."""
    for wanted in (node.gpu for node in placement.nodes if node.gpu is not None):
        load("penstock.updates.devices:keep_to")(wanted)


def leave(status: int) -> NoReturn:
    """End this process at once. Exit handlers take tenths of a second, and nothing here needs them."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(status)


def run_nodes(spec: WorkerSpec, segment: Segment) -> None:
    """Open the nodes of a placement group, run them until the run ends, close them."""
    placement = spec.placement
    wiring = Wiring(placement.edges, placement.roster)
    wiring.attach(segment.bytes)
    trace = traces(placement.trace, placement.group)
    placed: list[Placed] = []
    opened: list[NodePorts] = []
    try:
        for settings in placement.nodes:
            node = node_class(settings.kind)(settings.settings)
            name = settings.name
            numbers = spec.lives[name], spec.former[name]
            ports = NodePorts(wiring, name, placement.group, *numbers, trace.node(name), settings.edges)
            placed.append(Placed(node, ports))
            ports.count("begun")
            with ports.span(OPEN):
                node.open(ports)
            opened.append(ports)
        for ports in opened:
            ports.begin()
        # These objects live as long as the process. The garbage collector leaves them out of the hot loop.
        gc.collect()
        gc.freeze()
        Loop(placed, _OwnBell(wiring, placement.group), wiring.ended).run()
    finally:
        # Close everything, the nodes in their order, even if closing one of them fails.
        with contextlib.ExitStack() as closing:
            for close in (trace.close, *(node.close for node, _ in reversed(placed))):
                closing.callback(close)
