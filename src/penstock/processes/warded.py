"""Starts, signals and ends processes through a warden, which also ends whatever they have started.

Decides nothing about what the processes do: they inherit file descriptors, and write their last words into a pipe.
"""

import contextlib
import os
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
from penstock.memory.segment import anonymous_file
from penstock.processes import warden
from penstock.scheduler.lives import Exit

__all__ = ["Warded", "environment", "in_a_file", "python"]

END_LIMIT_S = 5.0
"""How long the warden may take to end all that is left."""


_OPEN: "weakref.WeakSet[Warded]" = weakref.WeakSet()


def _let_go() -> None:
    """Runs in a child that the user's script forks. The child must not keep the run alive when the launcher is gone."""
    for processes in _OPEN:
        processes.let_go()


os.register_at_fork(after_in_child=_let_go)


SPINS = b"2000"
"""How often a thread of OpenMP looks for work before it sleeps. A number that the user has set wins. With OpenMP's own
default, two threads of a SAC update take the cores from each other while other programs run: 5 updates/s instead of 50.
Alone on the machine, both numbers give 224.
"""


class Warded:
    """Processes by name, under a warden of their own.

    The warden takes 20 ms to be ready. So make this object first, and prepare the rest of the start meanwhile.
    """

    def __init__(self) -> None:
        self._lifeline = Lifeline()
        self._pids: dict[str, int | None] = {}
        """``None`` until the warden has told the process id."""
        self._errors: dict[str, int] = {}
        self._ended: deque[Exit] = deque()
        self._received = b""
        self._control, other = socket.socketpair()
        with other:
            self._warden = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(warden.__file__)), str(other.fileno())],
                pass_fds=(other.fileno(),),
                stdin=subprocess.DEVNULL,
                # Ctrl-C at a terminal reaches the foreground session only, and must not reach the warden.
                start_new_session=True,
            )
        _OPEN.add(self)

    def let_go(self) -> None:
        """Close the descriptors that keep a run alive, and end no process. For a child that this process has forked."""
        self._control.close()
        self._lifeline.close()

    def begin(
        self,
        name: str,
        program: Sequence[bytes],
        numbers: Sequence[int],
        variables: dict[bytes, bytes],
        descriptors: Sequence[int],
        *,
        template: str = "",
    ) -> None:
        """Start a process, and do not wait until it runs.

        Args:
            name: of the process.
            program: its command line. ``numbers`` follow, and the numbers of its descriptors: those that are given,
                then a lifeline, and a pipe for its last words.
            numbers: see ``program``.
            variables: its environment.
            descriptors: that it inherits; the caller may close them.
            template: the key of the template that forks it. Without one, or where it is gone, it starts by itself.

        Raises:
            ResourceError: the system refuses another process. ``exits`` may raise this later.
        """
        error_read, error_write = os.pipe()
        os.set_blocking(error_read, False)
        self._errors[name] = error_read
        given = (*descriptors, self._lifeline.fd, error_write)
        details = list(program), list(numbers), variables, len(given)
        try:
            self._ask("start", name, template, *details, descriptors=given)
            self._pids[name] = None
        finally:
            os.close(error_write)

    def wait(self, timeout_s: float) -> None:
        """Return when the warden has said something, or after so long."""
        select.select([self._control], [], [], timeout_s)

    def exits(self) -> Sequence[Exit]:
        """Processes that have ended since the last call.

        Raises:
            ResourceError: a process could not be started; or the warden was killed, so that all processes end.
        """
        self._listen(0.0)
        ended = list(self._ended)
        self._ended.clear()
        return ended

    def running(self) -> Sequence[str]:
        """Groups whose process is running."""
        return tuple(self._pids)

    def pid(self, group: str) -> int:
        """The process of a group that runs.

        Raises:
            KeyError: the group has no running process.
        """
        while (pid := self._pids[group]) is None:
            self._listen(None)
        return pid

    def kill(self, group: str) -> None:
        """Kill a process and return when it is reaped. ``exits`` does not report it."""
        self._wake_warden()
        self._ask("signal", group, int(signal.SIGKILL))
        while group in self._pids:
            self._listen(None)
        self._ended = deque(ended for ended in self._ended if ended.group != group)

    def kill_all(self) -> None:
        """Kill all processes with everything that they have started, then end the warden. May be called twice."""
        if self._control.fileno() < 0:
            return
        self._wake_warden()
        self._control.shutdown(socket.SHUT_WR)
        begun = time.monotonic()
        # The socket's end of file says that the warden is done. Popen.wait with a time-out would poll instead.
        while select.select([self._control], [], [], max(0.0, begun + END_LIMIT_S - time.monotonic()))[0]:
            with contextlib.suppress(ConnectionResetError):
                if self._control.recv(65_536):
                    continue
            break
        else:
            # The kernel does not end one of the processes.
            self._warden.kill()
        self._warden.wait()
        self._control.close()
        self._pids.clear()
        for descriptor in self._errors.values():
            os.close(descriptor)
        self._errors.clear()
        self._lifeline.close()

    def _wake_warden(self) -> None:
        """Continue the warden: a user who stopped every process of a run (SIGSTOP) has stopped it, too."""
        self._warden.send_signal(signal.SIGCONT)

    def _ask(self, *message: Any, descriptors: Sequence[int] = ()) -> None:  # noqa: ANN401 - as marshal takes it
        content = warden.as_message(message)
        try:
            # Descriptors travel with the first bytes of their message.
            sent = socket.send_fds(self._control, [content], descriptors)
            self._control.sendall(content[sent:])
        except OSError as error:
            raise _no_warden() from error

    def _listen(self, timeout_s: float | None) -> None:
        """Read the messages of the warden; wait for the first one at most ``timeout_s``."""
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
        """What a process has written to its error pipe so far. A child of an environment may hold the pipe open."""
        reader, parts = self._errors[group], []
        with contextlib.suppress(BlockingIOError):
            while part := os.read(reader, 65_536):
                parts.append(part)
        return b"".join(parts).decode(errors="replace")


def in_a_file(content: bytes) -> int:
    """The descriptor of an unnamed file with this content. A pipe would hold 64 KB at most.

    Raises:
        ResourceError: the machine has no memory for it.
    """
    try:
        descriptor = anonymous_file("spec")
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
    except OSError as error:
        raise ResourceError(f"no memory for the {len(content)} bytes of a process's spec: {error.strerror}") from error
    return descriptor


def python(command: str, *arguments: str) -> list[bytes]:
    """The command line of a Python interpreter. It imports from the working directory only if this process does.

    Otherwise a user's file there, ``profile.py`` say, would be imported instead of a library's module of that name.
    """
    safe = () if _imports_from_here() else ("-P",)
    return [os.fsencode(part) for part in (sys.executable, *safe, "-c", command, *arguments)]


def _imports_from_here() -> bool:
    # A working directory that was removed holds nothing.
    with contextlib.suppress(OSError):
        return str(Path.cwd()) in map(os.path.realpath, sys.path)
    return False


def environment(threads: int) -> dict[bytes, bytes]:
    """The environment of this process, with bounds on the threads of numerical libraries and on how long they spin."""
    bound = dict.fromkeys((b"OMP_NUM_THREADS", b"OPENBLAS_NUM_THREADS", b"MKL_NUM_THREADS"), str(threads).encode())
    return {b"GOMP_SPINCOUNT": SPINS, **os.environb, **bound}


def _no_warden() -> ResourceError:
    return ResourceError("the warden, which starts and ends this run's processes, was killed; so all of them ended")
