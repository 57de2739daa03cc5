"""The worker processes of a run: started, signalled and reaped by a warden, which outlives none of them for long.

Workers get plain specs in a file, and inherit file descriptors. It decides nothing about a run.
"""

import contextlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.errors import ResourceError
from penstock.memory.lifeline import Lifeline
from penstock.memory.segment import Segment, anonymous_file
from penstock.processes import template, warden
from penstock.processes.template import GROUP
from penstock.processes.worker import COMMAND, STACKS_SIGNAL, WorkerSpec
from penstock.scheduler.lives import Exit

__all__ = ["Processes"]

FORKS = sys.platform == "linux"
"""Whether processes are forked from a template: elsewhere nobody adopts them, and system libraries refuse it."""
SHARED = ("gymnasium",)
"""What every template imports beside this package's own modules, where this process has."""
STACKS_WAIT_S = 0.5
END_LIMIT_S = 5.0
"""How long the warden may take to end all that is left."""


_OPEN: "weakref.WeakSet[Processes]" = weakref.WeakSet()


def _let_go() -> None:
    """A script that forks itself while it trains must not keep the run alive once the launcher is gone."""
    for processes in _OPEN:
        processes.let_go()


os.register_at_fork(after_in_child=_let_go)


SPINS = b"2000"
"""How often a thread of OpenMP looks for work before it sleeps; a user's own number counts. With its default two
threads of a SAC update beside other programs take the cores from each other: 5 updates/s, not 50. Alone both give 224.
"""


class Processes:
    """The processes of a run, by the name of their placement group.

    The warden takes 20 ms to be ready: make this before all else that a start needs.
    """

    def __init__(self) -> None:
        self._lifeline = Lifeline()
        self._pids: dict[str, int | None] = {}
        """``None`` until the warden has said it."""
        self._errors: dict[str, int] = {}
        self._ended: deque[Exit] = deque()
        self._received = b""
        self._control, other = socket.socketpair()
        with other:
            self._warden = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(warden.__file__)), str(other.fileno())],
                pass_fds=(other.fileno(),),
                stdin=subprocess.DEVNULL,
                # What is typed at a terminal reaches its foreground session only.
                start_new_session=True,
            )
        self._templates: set[str] = set()
        self._have_template(())
        _OPEN.add(self)

    def let_go(self) -> None:
        """Close what keeps a run alive, and end nothing: for a process that this one was forked into."""
        self._control.close()
        self._lifeline.close()

    def start(self, segment: Segment, spec: WorkerSpec, threads: int, imports: Sequence[str] = ()) -> None:
        """Start the process of a placement group, and do not wait until it runs.

        Args:
            segment: the run's shared memory.
            spec: what the process is told.
            threads: bounds those of numerical libraries.
            imports: modules that it needs and that take long: a template imports them once for all who name the same.

        Raises:
            ResourceError: the machine will have no further process; ``exits`` may tell so later.
        """
        group = spec.placement.group
        told = _in_a_file(pickle.dumps(sys.path) + pickle.dumps(spec))
        error_read, error_write = os.pipe()
        os.set_blocking(error_read, False)
        environment = {**_environment(threads), GROUP: group.encode()}
        program = _python(COMMAND)
        descriptors = (segment.fd, told, self._lifeline.fd, error_write)
        self._errors[group] = error_read
        try:
            details = self._have_template(imports), program, [segment.nbytes], environment, len(descriptors)
            self._ask("start", group, *details, descriptors=descriptors)
            self._pids[group] = None
        finally:
            os.close(told)
            os.close(error_write)

    def _have_template(self, imports: Sequence[str]) -> str:
        """What the template that has imported these is known by; it is started with the first who asks for it."""
        key = " ".join(imports)
        if FORKS and key not in self._templates:
            self._templates.add(key)
            shared = (name for name in SHARED if name in sys.modules)
            self._ask("template", key, _python(template.COMMAND, *shared, *imports), _environment(1))
        return key

    def exits(self) -> Sequence[Exit]:
        """Processes that have ended since the last call.

        Raises:
            ResourceError: a process could not be started, or the warden was killed and all others are about to end.
        """
        self._listen(0.0)
        ended = list(self._ended)
        self._ended.clear()
        return ended

    def running(self) -> Sequence[str]:
        """Groups whose process still runs."""
        return tuple(self._pids)

    def pid(self, group: str) -> int:
        """The process of a group that runs.

        Raises:
            KeyError: none does.
        """
        while (pid := self._pids[group]) is None:
            self._listen(None)
        return pid

    def stacks(self, group: str) -> str:
        """Ask a process where its threads stand, and give it a moment to say so."""
        self._ask("signal", group, int(STACKS_SIGNAL))
        time.sleep(STACKS_WAIT_S)
        return self._said(group) or "It did not say where it stands."

    def kill(self, group: str) -> None:
        """End a process now, and return when it is reaped; ``exits`` does not tell of it."""
        self._wake_warden()
        self._ask("signal", group, int(signal.SIGKILL))
        while group in self._pids:
            self._listen(None)
        self._ended = deque(ended for ended in self._ended if ended.group != group)

    def kill_all(self) -> None:
        """End what still runs, with all that it has started, and the warden. May be called twice."""
        if self._control.fileno() < 0:
            return
        self._wake_warden()
        self._control.shutdown(socket.SHUT_WR)
        begun = time.monotonic()
        # Its end of file says that it is through; waiting for a process with a time-out would poll.
        while select.select([self._control], [], [], max(0.0, begun + END_LIMIT_S - time.monotonic()))[0]:
            with contextlib.suppress(ConnectionResetError):
                if self._control.recv(65_536):
                    continue
            break
        else:
            # There is a process that the kernel does not let go of.
            self._warden.kill()
        self._warden.wait()
        self._control.close()
        self._pids.clear()
        for descriptor in self._errors.values():
            os.close(descriptor)
        self._errors.clear()
        self._lifeline.close()

    def _wake_warden(self) -> None:
        """Whoever stopped every process of a run has stopped this one, too."""
        self._warden.send_signal(signal.SIGCONT)

    def _ask(self, *message: Any, descriptors: Sequence[int] = ()) -> None:  # noqa: ANN401 - as marshal takes it
        content = warden.as_message(message)
        try:
            # Descriptors travel with the first bytes of what they belong to.
            sent = socket.send_fds(self._control, [content], descriptors)
            self._control.sendall(content[sent:])
        except OSError as error:
            raise _no_warden() from error

    def _listen(self, timeout_s: float | None) -> None:
        """Take in what the warden has said, or waits for it to say something for so long."""
        while select.select([self._control], [], [], timeout_s)[0]:
            content = self._control.recv(65_536)
            if not content:
                raise _no_warden()
            self._received += content
            while (taken := warden.take_message(self._received)) is not None:
                message, self._received = taken
                self._note(*message)
            timeout_s = 0.0

    def _note(self, what: str, group: str, detail: Any) -> None:  # noqa: ANN401 - each message has its own
        match what:
            case "started":
                self._pids[group] = detail
            case "ended":
                del self._pids[group]
                said = self._said(group)
                os.close(self._errors.pop(group))
                self._ended.append(Exit(group, detail, said))
            case _:
                del self._pids[group]
                os.close(self._errors.pop(group))
                raise ResourceError(f"process {group} cannot be started: {detail}")

    def _said(self, group: str) -> str:
        """What a process has said in its error pipe. Not up to its end: a child of an environment may hold it open."""
        reader, parts = self._errors[group], []
        with contextlib.suppress(BlockingIOError):
            while part := os.read(reader, 65_536):
                parts.append(part)
        return b"".join(parts).decode(errors="replace")


def _in_a_file(content: bytes) -> int:
    """The descriptor of a file without a name that holds this: a pipe takes no more than 64 KB until it is read.

    Raises:
        ResourceError: the machine has no room for it.
    """
    try:
        descriptor = anonymous_file("spec")
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
    except OSError as error:
        raise ResourceError(f"no room for what a process is told, {len(content)} bytes: {error.strerror}") from error
    return descriptor


def _python(command: str, *arguments: str) -> list[bytes]:
    """The command line of an interpreter that imports from the working directory only where this one does.

    Else a file of the user's there, which may have any name, would stand in the place of a library's module.
    """
    safe = () if _imports_from_here() else ("-P",)
    return [os.fsencode(part) for part in (sys.executable, *safe, "-c", command, *arguments)]


def _imports_from_here() -> bool:
    # A working directory that was removed holds nothing.
    with contextlib.suppress(OSError):
        return str(Path.cwd()) in map(os.path.realpath, sys.path)
    return False


def _environment(threads: int) -> dict[bytes, bytes]:
    """This process's, with a bound on the threads of numerical libraries, and on how long they spin."""
    bound = dict.fromkeys((b"OMP_NUM_THREADS", b"OPENBLAS_NUM_THREADS", b"MKL_NUM_THREADS"), str(threads).encode())
    return {b"GOMP_SPINCOUNT": SPINS, **os.environb, **bound}


def _no_warden() -> ResourceError:
    return ResourceError("the process that starts and ends this run's processes was killed, and so they ended too")
