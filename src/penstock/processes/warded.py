"""Starts, signals and ends processes through a warden, which also ends whatever they have started.

Decides nothing about what the processes do: they inherit file descriptors, and write their last words into a pipe.
Imports nothing that takes time, so that the warden starts before the launcher imports the rest.
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
from array import array
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.errors import ResourceError
from penstock.memory.lifeline import Lifeline
from penstock.processes.command import calling, python
from penstock.processes.log_lines import ErrorPipe, LogLine
from penstock.processes.warden.messages import as_message, take_message
from penstock.supervision.lives import Exit, describe
from penstock.types import Cause

__all__ = ["Warded"]

KILL_LIMIT_S = 90.0
"""How long the system may take to end a process that was killed. One that is being forked is killed afterwards."""
CLEARED_LIMIT_S = 30.0
"""How long the warden may take to end all processes and say so. It gives each up after less."""
END_LIMIT_S = 5.0
"""How long the warden may take to end all that is left."""
WAITING_LINES = 1000
"""Log lines that wait for the next call of ``log_lines``; older ones are dropped."""
WARDEN = "import sys; sys.path.append(sys.argv[1]); from warden.warden import main; main()"
"""The warden imports its own package and nothing of penstock."""


_CRASH = "Fatal Python error: "
"""How ``faulthandler`` begins when a process crashes."""
_OPEN: "weakref.WeakSet[Warded]" = weakref.WeakSet()


def _let_go() -> None:
    """Runs in a child that the user's script forks. The child must not keep the run alive when the launcher is gone."""
    for processes in _OPEN:
        processes.let_go()


os.register_at_fork(after_in_child=_let_go)


class Warded:
    """Processes by name, under a warden of their own. It starts with the first of them, and takes 20 ms to be ready."""

    def __init__(self) -> None:
        self._lifeline = Lifeline()
        self._pids: dict[str, int | None] = {}
        """``None`` until the warden has told the process id."""
        self._errors: dict[str, ErrorPipe] = {}
        self._ended: deque[Exit] = deque()
        self._log_lines: deque[LogLine] = deque(maxlen=WAITING_LINES)
        self._received = b""
        self._clearing = False
        self._control, self._other = socket.socketpair()
        self._warden: subprocess.Popen[bytes] | None = None
        _OPEN.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def let_go(self) -> None:
        """Close the descriptors that keep a run alive, and end no process. For a child that this process has forked."""
        self._control.close()
        self._other.close()
        self._lifeline.close()

    def ask_for(
        self,
        name: str,
        entry: str,
        numbers: Sequence[int],
        variables: dict[bytes, bytes],
        descriptors: Sequence[int],
        *,
        template: str,
    ) -> None:
        """Ask the warden for a process, and do not wait until it runs.

        Args:
            name: of the process.
            entry: the "module:function" that it runs. Its arguments are ``numbers``, and the numbers of its
                descriptors: those that are given, then a lifeline, and a pipe for its last words.
            numbers: see ``entry``.
            variables: its environment.
            descriptors: that it inherits; the caller may close them.
            template: the key of the template that forks it. Where there is none, it starts by itself.

        Raises:
            ResourceError: the system refuses another process. ``exits`` may tell this later.
        """
        try:
            error_read, error_write = os.pipe()
        except OSError as error:
            raise ResourceError(_refused(name, error.strerror or str(error))) from error
        self._errors[name] = ErrorPipe(name, error_read)
        given = (*descriptors, self._lifeline.fd, error_write)
        details = python(calling(entry)), entry, list(numbers), variables, len(given)
        try:
            self._ask("start", name, template, *details, descriptors=given)
            self._pids[name] = None
        finally:
            os.close(error_write)

    def wait(self, timeout_s: float) -> None:
        """Return when the warden has said something, or after so long."""
        self._poll(select.POLLIN, timeout_s)

    def exits(self) -> Sequence[Exit]:
        """Processes that have ended since the last call, or that the system refused to start (`Cause.REFUSED`).

        Raises:
            ResourceError: the warden was killed, so that all processes end.
        """
        self._listen(0.0)
        # A process that leaves a traceback waits until there is room for all of it.
        for pipe in self._errors.values():
            self._log_lines += pipe.read()
        ended = list(self._ended)
        self._ended.clear()
        return ended

    def log_lines(self) -> Sequence[LogLine]:
        """The log lines that processes had sent by the last call of ``exits``, without those returned before."""
        lines = list(self._log_lines)
        self._log_lines.clear()
        return lines

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
        """Kill a process and return when it is reaped. ``exits`` does not report it.

        Raises:
            ResourceError: the system does not end it, say because it waits for a disk or a driver.
        """
        self._wake_warden()
        self._ask("signal", group, int(signal.SIGKILL))
        until = time.monotonic() + KILL_LIMIT_S
        while group in self._pids:
            if (left := until - time.monotonic()) <= 0:
                raise ResourceError(
                    f"process {group} was killed, and the system has not ended it for {KILL_LIMIT_S:g} s"
                )
            self._listen(left)
        self._ended = deque(ended for ended in self._ended if ended.group != group)

    def clear(self) -> None:
        """Kill all processes with everything that they have started. The warden and its templates stay."""
        # Where the warden was killed, the lifeline ends the processes.
        with contextlib.suppress(ResourceError):
            if self._warden is not None:
                self._wake_warden()
                self._ask("clear", "")
                self._clearing = True
                until = time.monotonic() + CLEARED_LIMIT_S
                while self._clearing and (left := until - time.monotonic()) > 0:
                    self._listen(left)
                if self._clearing:
                    # It waits for the kernel. Without it the lifeline ends the processes that can be ended.
                    self._warden.kill()
        self._forget()

    def close(self) -> None:
        """Kill all processes with everything that they have started, then end the warden. May be called twice."""
        if self._control.fileno() < 0:
            return
        if self._warden is not None:
            self._wake_warden()
            # On macOS this is an error once the warden is gone.
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)
            self._await_end(self._warden)
        self._forget()
        self.let_go()

    def _await_end(self, process: "subprocess.Popen[bytes]") -> None:
        begun = time.monotonic()
        # The socket's end of file says that the warden is done. Popen.wait with a time-out would poll instead.
        while self._poll(select.POLLIN, begun + END_LIMIT_S - time.monotonic()):
            with contextlib.suppress(ConnectionResetError):
                if self._control.recv(65_536):
                    continue
            break
        else:
            # The kernel does not end one of the processes.
            process.kill()
        process.wait()

    def _forget(self) -> None:
        self._pids.clear()
        self._ended.clear()
        self._log_lines.clear()
        for pipe in self._errors.values():
            pipe.close()
        self._errors.clear()

    def _start_warden(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-I", "-S", "-c", WARDEN, str(Path(__file__).parent), str(self._other.fileno())]
        try:
            warden = subprocess.Popen(
                command,
                pass_fds=(self._other.fileno(),),
                stdin=subprocess.DEVNULL,
                # Ctrl-C at a terminal reaches the foreground group only, and must not reach the warden.
                start_new_session=True,
            )
        except OSError as error:
            raise ResourceError(f"no process can be started: {error.strerror or error}") from error
        self._other.close()
        return warden

    def _wake_warden(self) -> None:
        """Continue the warden: a user who stopped every process of a run (SIGSTOP) has stopped it, too."""
        if self._warden is not None:
            self._warden.send_signal(signal.SIGCONT)

    def _ask(self, *message: Any, descriptors: Sequence[int] = ()) -> None:  # noqa: ANN401 - as marshal takes it
        if self._warden is None:
            self._warden = self._start_warden()
        left = memoryview(as_message(message))
        while left:
            # The warden waits while its answers fill the socket, and reads nothing meanwhile. So answers are read here.
            events = self._poll(select.POLLIN | select.POLLOUT, None)
            if events & ~select.POLLOUT:
                self._listen(0.0)
            if events & select.POLLOUT and (sent := self._send(left, descriptors)):
                left, descriptors = left[sent:], ()

    def _send(self, content: memoryview, descriptors: Sequence[int]) -> int:
        """Send as much as there is room for. Returns how many bytes that were.

        Descriptors travel with the first byte.
        """
        # `socket.send_fds` of Python 3.11 leaves out the flag.
        given = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
        try:
            return self._control.sendmsg([content], given, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise _no_warden() from error

    def _poll(self, events: int, timeout_s: float | None) -> int:
        """Those of ``events`` that the socket to the warden is ready for, and its errors; 0 if it took too long."""
        # `select.select` takes no descriptor from 1,024 on.
        poll = select.poll()
        poll.register(self._control, events)
        ready = poll.poll(None if timeout_s is None else max(0.0, 1e3 * timeout_s))
        return ready[0][1] if ready else 0

    def _listen(self, timeout_s: float | None) -> None:
        """Read the messages of the warden; wait for the first one at most ``timeout_s``."""
        while self._poll(select.POLLIN, timeout_s):
            try:
                content = self._control.recv(65_536)
            except ConnectionResetError:  # it died before it had read the last message
                content = b""
            if not content:
                raise _no_warden()
            self._received += content
            while (taken := take_message(self._received)) is not None:
                message, self._received = taken
                self._note(*message)
            timeout_s = 0.0

    def _note(self, what: str, group: str, detail: Any) -> None:  # noqa: ANN401 - each message has its own
        match what:
            case "cleared":
                self._clearing = False
            case _ if self._clearing:
                # What becomes of these processes concerns nobody any more.
                return
            case "started":
                self._pids[group] = detail
            case "ended":
                del self._pids[group]
                ended = Exit(group, detail, self._said(group))
                self._errors.pop(group).close()
                self._ended.append(_with_signal(ended))
            case _:
                del self._pids[group]
                self._errors.pop(group).close()
                self._ended.append(Exit(group, 1, _refused(group, detail), Cause.REFUSED))

    def _said(self, group: str) -> str:
        """The text that a process has written to its error pipe, without log lines and without text returned before."""
        pipe = self._errors[group]
        self._log_lines += pipe.read()
        return pipe.take_text()


def _with_signal(ended: Exit) -> Exit:
    """The end of a process; before the stacks of a crash, a line that names the signal."""
    if ended.status >= 0 or not ended.detail:
        return ended
    # Python's own first line names the signal in its words.
    stacks = ended.detail.partition("\n\n")[2] if ended.detail.startswith(_CRASH) else ended.detail
    return ended._replace(detail=f"{describe(ended)}\n{stacks}")


def _refused(name: str, why: str) -> str:
    return f"process {name} cannot be started: {why}"


def _no_warden() -> ResourceError:
    return ResourceError("the warden, which starts and ends this run's processes, was killed; so all of them ended")
