"""The warden of a run: parent of its processes, so that neither they nor what they started outlive the launcher.

A script of its own (``python -I -S warden.py FD``), ready in 20 ms: it imports nothing that takes time, penstock
included. It decides nothing: it starts, signals and reaps what the launcher asks for over a socket. The socket's end of
file, however it comes about, is the end of every process below.

On Linux it is the subreaper of its descendants: the children of a process that died become its own, and it knows whose
they were by a variable of their environment, also where they left the process group. Elsewhere it ends process groups
only: what an environment started in a session of its own stays.
"""

import contextlib
import ctypes
import marshal
import os
import select
import signal
import sys
from _socket import CMSG_SPACE, SCM_RIGHTS, SOL_SOCKET, socket, socketpair

TYPE_CHECKING = False
if TYPE_CHECKING:  # which takes longer to import than all the rest
    from typing import Any

__all__ = ["MARK", "PID_BYTES", "START_FDS", "Warden", "as_message", "main", "take_message"]

HEAD_BYTES = 4
"""A message is its length, in so many bytes, least first, and a tuple as ``marshal`` writes it."""
PID_BYTES = 8
"""The template answers with the number of the process that it forked, in so many bytes, least first."""
START_FDS = 16
"""A process is given at most so many descriptors."""
MARK = b"PENSTOCK_PROCESS"
"""Variable of a process's environment: which one it is, or was started by."""
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform == "linux"
_PAUSE_S = 0.002
_FORK_LIMIT_S = 60.0
"""What the template may take to its first fork, its imports included."""


def main() -> None:
    """Serve the socket whose number is the argument, until its end of file; then end what is left."""
    # Handlers that do nothing: unlike SIG_IGN they are not inherited by what is started.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    control = int(sys.argv[1])
    # Whoever else held it would hide this process's end from the launcher.
    os.set_inheritable(control, False)
    warden = Warden(socket(fileno=control))
    # The launcher may be gone in the middle of a message.
    with contextlib.suppress(OSError):
        warden.serve()
    warden.end()
    # Nothing needs an orderly shutdown, and somebody is waiting.
    os._exit(0)


class Warden:
    """Starts processes by name and says how each ended.

    Args:
        control: its end of the launcher's socket.
    """

    def __init__(self, control: socket) -> None:
        self._control = control
        self._names: dict[int, str] = {}
        """Process id -> name, of those that are not yet reaped."""
        self._received = b""
        self._fds: list[int] = []
        self._marks: dict[int, bytes] = {}
        self._started = 0
        self._template: socket | None = None

    def serve(self) -> None:
        """Do what is asked until the launcher lets go."""
        woken, wake = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self._control.fileno(), select.POLLIN)
        poll.register(woken, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if woken in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(woken, 4096)
                self._reap()
            if self._control.fileno() in ready and not self._receive():
                return

    def end(self) -> None:
        """End every descendant: what dies hands its children up to here, until nobody is left."""
        for pid in self._names:
            _kill_group(pid)
        while True:
            try:
                while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                    self._names.pop(pid, None)
            except ChildProcessError:
                return
            for pid in {*self._names, *_children()}:
                _kill(pid)
            select.select([], [], [], _PAUSE_S)

    def _receive(self) -> bool:
        """Take what has come; false at the end of file."""
        content, ancillary, _, _ = self._control.recvmsg(65_536, CMSG_SPACE(START_FDS * 4))
        for level, kind, data in ancillary:
            if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
                self._fds += memoryview(data).cast("i").tolist()
        for descriptor in self._fds:
            os.set_inheritable(descriptor, False)
        self._received += content
        while (taken := take_message(self._received)) is not None:
            message, self._received = taken
            self._obey(*message)
        return bool(content)

    def _obey(self, what: str, name: str, *details: object) -> None:
        if what == "start":
            self._start(name, *details)  # type: ignore[arg-type]
        elif what == "template":
            self._prepare(*details)  # type: ignore[arg-type]
        else:
            for pid, known in self._names.items():
                if known == name:
                    os.kill(pid, int(details[0]))  # type: ignore[call-overload]

    def _prepare(self, program: list[bytes], environment: dict[bytes, bytes]) -> None:
        """Start the template that further processes are forked from; where it cannot be, each starts by itself."""
        own, other = socketpair()
        os.set_inheritable(other.fileno(), True)
        with contextlib.suppress(OSError):
            _spawn([*program, str(other.fileno()).encode()], environment)
            self._template = own
            own.settimeout(_FORK_LIMIT_S)
        other.close()

    def _start(
        self, name: str, program: list[bytes], numbers: list[int], environment: dict[bytes, bytes], count: int
    ) -> None:
        """Start a process in a group of its own; its last arguments are the numbers of the descriptors it is given."""
        given, self._fds = self._fds[:count], self._fds[count:]
        self._started += 1
        mark = f"{os.getpid()}.{self._started}".encode()
        environment = {**environment, MARK: mark}
        try:
            pid = self._fork(numbers, environment, given)
            if pid is None:
                for descriptor in given:
                    os.set_inheritable(descriptor, True)
                pid = _spawn([*program, *(str(number).encode() for number in (*numbers, *given))], environment)
        except OSError as error:
            self._say("failed", name, error.strerror or str(error))
        else:
            self._names[pid] = name
            self._marks[pid] = MARK + b"=" + mark
            self._say("started", name, pid)
        finally:
            for descriptor in given:
                os.close(descriptor)

    def _fork(self, numbers: list[int], environment: dict[bytes, bytes], given: list[int]) -> int | None:
        """Have the template fork a process; ``None`` if there is none, or no more."""
        if self._template is None:
            return None
        descriptors = b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in given)
        message, answer = as_message((numbers, environment)), b""
        with contextlib.suppress(OSError):
            # Descriptors travel with the first bytes of what they belong to.
            sent = self._template.sendmsg([message], [(SOL_SOCKET, SCM_RIGHTS, descriptors)])
            self._template.sendall(message[sent:])
            answer = self._template.recv(PID_BYTES)
        if len(answer) == PID_BYTES:
            return int.from_bytes(answer, "little")
        self._template.close()
        self._template = None
        # It may have died, or been held up, when it had forked and not yet said so.
        for pid in _children():
            if pid not in self._names and not any(line.startswith(MARK + b"=") for line in _environment(pid)):
                _kill(pid)
        return None

    def _reap(self) -> None:
        """Take note of who has ended, and end what they left behind."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                # Not yet reaped, so its number is still its own, and its group's.
                if found.si_pid in self._names:
                    _kill_group(found.si_pid)
                pid, status = os.waitpid(found.si_pid, 0)
                if pid in self._names:
                    self._sweep(self._marks.pop(pid))
                    self._say("ended", self._names.pop(pid), os.waitstatus_to_exitcode(status))

    def _sweep(self, mark: bytes) -> None:
        """End what a dead process started and what has left its group."""
        while left := [pid for pid in _children() if pid not in self._names and mark in _environment(pid)]:
            for pid in left:
                _kill(pid)
            for pid in left:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _say(self, *message: str | int) -> None:
        self._control.sendall(as_message(message))


def as_message(content: "tuple[Any, ...]") -> bytes:
    """What ``take_message`` takes."""
    body = marshal.dumps(content)
    return len(body).to_bytes(HEAD_BYTES, "little") + body


def take_message(received: bytes) -> "tuple[tuple[Any, ...], bytes] | None":
    """The first message and what follows it, or ``None`` if it is not whole."""
    if len(received) < HEAD_BYTES:
        return None
    end = HEAD_BYTES + int.from_bytes(received[:HEAD_BYTES], "little")
    return (marshal.loads(received[HEAD_BYTES:end]), received[end:]) if end <= len(received) else None


def _spawn(arguments: list[bytes], environment: dict[bytes, bytes]) -> int:
    return os.posix_spawn(
        arguments[0],
        arguments,
        environment,
        setpgroup=0,
        # Python ignores these two, and what it starts would as well.
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
    )


def _children() -> list[int]:
    """The children of this process, adopted ones included."""
    if not _LINUX:
        return []
    own, found = os.getpid(), []
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib takes longer to import than all the rest
        if name.isdigit():
            # After the name, which may hold anything: state, parent.
            with contextlib.suppress(OSError, IndexError, ValueError):
                if int(_read(f"/proc/{name}/stat").rpartition(b")")[2].split()[1]) == own:
                    found.append(int(name))
    return found


def _environment(pid: int) -> list[bytes]:
    try:
        return _read(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return []


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - as above
        return file.read()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
