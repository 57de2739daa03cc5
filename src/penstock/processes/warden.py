"""The warden of a run: parent of its processes, so that neither they nor what they started outlive the launcher.

A script of its own (``python -I -S warden.py FD``), ready in 20 ms: it imports nothing that takes time, penstock
included, so all of it is in this file. It decides nothing: it starts, signals and reaps what the launcher asks for over
a socket. The socket's end of file, however it comes about, is the end of every process below.

On Linux it is the subreaper of its descendants: the children of a process that died become its own, and it knows whose
they were by a variable of their environment, also where they left the process group. Elsewhere it ends process groups
only: what an environment started in a session of its own stays.
"""

import contextlib
import ctypes
import errno
import marshal
import os
import select
import signal
import sys
import time
from _socket import CMSG_SPACE, MSG_CTRUNC, SCM_RIGHTS, SOL_SOCKET, socket, socketpair

TYPE_CHECKING = False
if TYPE_CHECKING:  # which takes longer to import than all the rest
    from typing import Any

__all__ = ["MARK", "PID_BYTES", "START_FDS", "Warden", "as_message", "main", "take_message"]

HEAD_BYTES = 4
"""A message is its length, in so many bytes, least first, and a tuple as ``marshal`` writes it."""
PID_BYTES = 8
"""A template says the number of a process that it has forked in so many bytes, least first; once it is ready, 0."""
START_FDS = 16
"""A process is given at most so many descriptors."""
MARK = b"PENSTOCK_PROCESS"
"""Variable of a process's environment: which one it is, or was started by."""
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform == "linux"
_PAUSE_S = 0.002
_TEMPLATE_LIMIT_S = 60.0
"""What a template may take to its imports, and to a fork."""


def main() -> None:
    """Serve the socket whose number is the argument, until its end of file; then end what is left."""
    # Handlers that do nothing: unlike SIG_IGN they are not inherited by what is started.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    # A sandbox may refuse it.
    adopts = _LINUX and ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    control = int(sys.argv[1])
    # Whoever else held it would hide this process's end from the launcher.
    os.set_inheritable(control, False)
    warden = Warden(socket(fileno=control), adopts=adopts)
    # The launcher may be gone in the middle of a message.
    with contextlib.suppress(OSError):
        warden.serve()
    warden.end()
    # Nothing needs an orderly shutdown, and somebody is waiting.
    os._exit(0)


class _Start:
    """A process that is to be started, and what it is given."""

    def __init__(
        self, name: str, program: list[bytes], numbers: list[int], environment: dict[bytes, bytes], given: list[int]
    ) -> None:
        self.name = name
        self.program = program
        self.numbers = numbers
        self.environment = environment
        self.given = given
        self.killed = False
        """While it was being forked."""


class _Template:
    """A process that forks others, one after the other."""

    def __init__(self, pid: int, control: socket) -> None:
        self.pid: int | None = pid
        """``None`` once it is reaped: another process may have its number."""
        self.control = control
        self.queue: list[_Start] = []
        self.forking: _Start | None = None
        self.hold = -1
        """End of a pipe: what is being forked waits for a byte from it, and ends at its end of file."""
        self.busy_since: float | None = time.monotonic()
        """It imports or forks."""


class Warden:
    """Starts processes by name and says how each ended.

    Args:
        control: its end of the launcher's socket.
        adopts: orphans below become its own, so that templates may fork them.
    """

    def __init__(self, control: socket, *, adopts: bool) -> None:
        self._control = control
        self._adopts = adopts
        self._names: dict[int, str] = {}
        """Process id -> name, of those that are not yet reaped."""
        self._received = b""
        self._given: list[list[int]] = []
        """What came with each start that is not yet begun."""
        self._marks: dict[int, bytes] = {}
        self._started = 0
        self._templates: dict[str, _Template] = {}
        self._poll = select.poll()

    def serve(self) -> None:
        """Do what is asked until the launcher lets go."""
        woken, wake = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll.register(self._control.fileno(), select.POLLIN)
        self._poll.register(woken, select.POLLIN)
        while True:
            ready = dict(self._poll.poll(self._patience_ms()))
            for key, template in list(self._templates.items()):
                if template.control.fileno() in ready:
                    self._take_answer(key, template)
                elif _overdue_s(template) > 0:
                    self._drop(key)
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
        # The system brings the descriptors of one message at a time.
        content, ancillary, flags, _ = self._control.recvmsg(65_536, CMSG_SPACE(START_FDS * 4))
        given: list[int] = []
        for level, kind, data in ancillary:
            if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
                given += memoryview(data).cast("i").tolist()
        for descriptor in given:
            os.set_inheritable(descriptor, False)
        if given or flags & MSG_CTRUNC:
            self._given.append(given)
        self._received += content
        while (taken := take_message(self._received)) is not None:
            message, self._received = taken
            self._obey(*message)
        return bool(content)

    def _obey(self, what: str, name: str, *details: object) -> None:
        if what == "start":
            self._start(name, *details)  # type: ignore[arg-type]
        elif what == "template":
            self._prepare(name, *details)  # type: ignore[arg-type]
        else:
            self._signal(name, int(details[0]))  # type: ignore[call-overload]

    def _signal(self, name: str, number: int) -> None:
        for pid, known in self._names.items():
            if known == name:
                os.kill(pid, number)
        if number == signal.SIGKILL:
            for template in self._templates.values():
                self._withdraw(name, template)

    def _withdraw(self, name: str, template: _Template) -> None:
        """Start a process no more; one that is being forked is killed when its number is known."""
        if template.forking is not None and template.forking.name == name:
            template.forking.killed = True
        for start in [start for start in template.queue if start.name == name]:
            template.queue.remove(start)
            self._give_up(start)

    def _give_up(self, start: _Start) -> None:
        _close(start.given)
        self._say("ended", start.name, -signal.SIGKILL)

    def _prepare(self, key: str, program: list[bytes], environment: dict[bytes, bytes]) -> None:
        """Start a template that processes are forked from; where it cannot be, each starts by itself."""
        if not self._adopts:
            return
        try:
            own, other = socketpair()
        except OSError:
            return
        os.set_inheritable(other.fileno(), True)
        with contextlib.suppress(OSError):
            self._templates[key] = _Template(_spawn([*program, str(other.fileno()).encode()], environment), own)
            # It is asked only while it waits, so that this is for one that was stopped.
            own.settimeout(_TEMPLATE_LIMIT_S)
            self._poll.register(own.fileno(), select.POLLIN)
        other.close()

    def _start(  # noqa: PLR0917 - as the message has them
        self,
        name: str,
        key: str,
        program: list[bytes],
        numbers: list[int],
        environment: dict[bytes, bytes],
        count: int,
    ) -> None:
        """Start a process in a group of its own; its last arguments are the numbers of the descriptors it is given."""
        given = self._given.pop(0)
        if len(given) < count:
            # The system keeps back what a process may not have more of.
            _close(given)
            self._say("failed", name, os.strerror(errno.EMFILE))
            return
        self._started += 1
        mark = f"{os.getpid()}.{self._started}".encode()
        start = _Start(name, program, numbers, {**environment, MARK: mark}, given)
        # Each that waits keeps four descriptors open: together at most half of those that there may be.
        waiting = sum(len(template.queue) for template in self._templates.values())
        if key in self._templates and 8 * waiting < os.sysconf("SC_OPEN_MAX"):
            self._templates[key].queue.append(start)
            self._ask_template(key)
        else:
            self._start_alone(start)

    def _start_alone(self, start: _Start) -> None:
        """Start a process without a template."""
        for descriptor in start.given:
            os.set_inheritable(descriptor, True)
        numbers = (str(number).encode() for number in (*start.numbers, *start.given))
        try:
            pid = _spawn([*start.program, *numbers], start.environment)
        except OSError as error:
            self._say("failed", start.name, error.strerror or str(error))
        else:
            self._note(start, pid)
        finally:
            _close(start.given)

    def _ask_template(self, key: str) -> None:
        """Have a template that waits fork what is next. One at a time: so asking never waits for what it does."""
        template = self._templates[key]
        if template.busy_since is not None or not template.queue:
            return
        try:
            held, template.hold = os.pipe()
        except OSError:
            self._drop(key)
            return
        template.forking = start = template.queue.pop(0)
        template.busy_since = time.monotonic()
        descriptors = b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in (*start.given, held))
        message = as_message((start.numbers, start.environment))
        try:
            # Descriptors travel with the first bytes of what they belong to.
            sent = template.control.sendmsg([message], [(SOL_SOCKET, SCM_RIGHTS, descriptors)])
            template.control.sendall(message[sent:])
        except OSError:
            self._drop(key)
        finally:
            os.close(held)

    def _take_answer(self, key: str, template: _Template) -> None:
        """A template is ready, or has forked a process, or is gone."""
        answer = b""
        with contextlib.suppress(OSError):
            answer = template.control.recv(PID_BYTES)
        if len(answer) < PID_BYTES:
            self._drop(key)
            return
        template.busy_since = None
        if (start := template.forking) is not None:
            pid = int.from_bytes(answer, "little")
            self._note(start, pid)
            if pid in self._names and not start.killed:
                # Who was killed from outside reads no more.
                with contextlib.suppress(BrokenPipeError):
                    os.write(template.hold, b"1")
            elif pid in self._names:
                _kill_group(pid)
            os.close(template.hold)
            _close(start.given)
            template.forking = None
        self._ask_template(key)

    def _note(self, start: _Start, pid: int) -> None:
        """A process is there."""
        self._say("started", start.name, pid)
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            # It was killed from outside and reaped before its number was known.
            self._say("ended", start.name, -signal.SIGKILL)
            return
        self._names[pid] = start.name
        self._marks[pid] = MARK + b"=" + start.environment[MARK]

    def _drop(self, key: str) -> None:
        """Do without a template from now on. What it was forking ends with ``hold``, before it has done anything."""
        template = self._templates.pop(key)
        self._poll.unregister(template.control.fileno())
        template.control.close()
        if template.pid is not None:
            _kill(template.pid)
        if template.forking is not None:
            os.close(template.hold)
            template.queue.insert(0, template.forking)
        for start in template.queue:
            if start.killed:
                self._give_up(start)
            else:
                self._start_alone(start)

    def _patience_ms(self) -> float | None:
        """How long to wait for anything to happen."""
        limits = [-_overdue_s(one) for one in self._templates.values() if one.busy_since is not None]
        return 1e3 * max(0.0, min(limits)) + 1.0 if limits else None

    def _reap(self) -> None:
        """Take note of who has ended, and end what they left behind."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                # Not yet reaped, so its number is still its own, and its group's.
                if found.si_pid in self._names:
                    _kill_group(found.si_pid)
                pid, status = os.waitpid(found.si_pid, 0)
                for template in self._templates.values():
                    if template.pid == pid:
                        template.pid = None
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


def _overdue_s(template: _Template) -> float:
    """By how much a template takes longer than it may; below 0 while it does not."""
    since = template.busy_since
    return -_TEMPLATE_LIMIT_S if since is None else time.monotonic() - since - _TEMPLATE_LIMIT_S


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


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
