"""The warden of a run: the parent of its processes. It ends them, and all that they started, with the launcher.

It is a script (``python -I -S warden.py FD``) that is ready in 20 ms, because it imports nothing that takes time. All
of it is in this file, because it imports nothing of penstock. The launcher asks over a socket; the warden starts,
signals and reaps. It decides nothing. When the socket is closed, for whatever reason, it ends every process below.

On Linux it is the subreaper of its descendants. The children of a process that died become its own children. A variable
in their environment tells whose they were, even if they left the process group. On other systems it ends process groups
only: a process that an environment started in a session of its own stays.
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
"""A message is the length of its body in so many bytes, least first, and its body: a tuple as ``marshal`` writes it."""
PID_BYTES = 8
"""A template answers with a process id in so many bytes, least first. The first answer is 0: it is ready."""
START_FDS = 16
"""At most so many descriptors are passed to a process."""
MARK = b"PENSTOCK_PROCESS"
"""Environment variable that identifies a process. What it starts inherits it."""
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform == "linux"
_PAUSE_S = 0.002
_TEMPLATE_LIMIT_S = 60.0
"""How long a template may take for its imports, and for a fork."""


def main() -> None:
    """Serve the socket whose number is the argument until it is closed. Then end every process that is left."""
    # Handlers that do nothing. SIG_IGN would be inherited by the processes that are started.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    # A sandbox may refuse to make it a subreaper.
    adopts = _LINUX and ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    control = int(sys.argv[1])
    # A process that inherited the socket would hide the warden's end from the launcher.
    os.set_inheritable(control, False)
    warden = Warden(socket(fileno=control), adopts=adopts)
    # The launcher may die in the middle of a message.
    with contextlib.suppress(OSError):
        warden.serve()
    warden.end()
    # The launcher waits for this end, and no exit handler is needed.
    os._exit(0)


class _Start:
    """A process to be started, with its command line, environment and descriptors."""

    def __init__(
        self, name: str, program: list[bytes], numbers: list[int], environment: dict[bytes, bytes], given: list[int]
    ) -> None:
        self.name = name
        self.program = program
        self.numbers = numbers
        self.environment = environment
        self.given = given
        self.killed = False
        """It was killed while it was being forked."""


class _Template:
    """A process that forks others, one after the other."""

    def __init__(self, pid: int, control: socket) -> None:
        self.pid: int | None = pid
        """``None`` once it is reaped: the system may give its number to another process."""
        self.control = control
        self.queue: list[_Start] = []
        self.forking: _Start | None = None
        self.hold = -1
        """Writing end of a pipe. The process that is being forked waits for a byte; it ends if the pipe is closed."""
        self.busy_since: float | None = time.monotonic()
        """Since when it imports or forks; ``None`` while it waits."""


class Warden:
    """Starts processes by name and says how each ended.

    Args:
        control: its end of the launcher's socket.
        adopts: it is a subreaper: orphans below become its children, so that templates may fork.
    """

    def __init__(self, control: socket, *, adopts: bool) -> None:
        self._control = control
        self._adopts = adopts
        self._names: dict[int, str] = {}
        """Process id -> name, of processes that are not yet reaped."""
        self._received = b""
        self._given: list[list[int]] = []
        """The descriptors of each start that is asked for and not begun yet."""
        self._marks: dict[int, bytes] = {}
        self._started = 0
        self._templates: dict[str, _Template] = {}
        self._poll = select.poll()

    def serve(self) -> None:
        """Obey the launcher's messages until its socket is closed."""
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
        """Kill every descendant. The children of a process that dies become the warden's, until none is left."""
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
        """Read and obey the messages that have come; false when the socket is closed."""
        # One call returns the descriptors of one message.
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
        """Take back a start that waits. A process that is being forked is killed once its number is known."""
        if template.forking is not None and template.forking.name == name:
            template.forking.killed = True
        for start in [start for start in template.queue if start.name == name]:
            template.queue.remove(start)
            self._give_up(start)

    def _give_up(self, start: _Start) -> None:
        _close(start.given)
        self._say("ended", start.name, -signal.SIGKILL)

    def _prepare(self, key: str, program: list[bytes], environment: dict[bytes, bytes]) -> None:
        """Start a template. Without one, processes start by themselves."""
        if not self._adopts:
            return
        try:
            own, other = socketpair()
        except OSError:
            return
        os.set_inheritable(other.fileno(), True)
        with contextlib.suppress(OSError):
            self._templates[key] = _Template(_spawn([*program, str(other.fileno()).encode()], environment), own)
            # A template is asked only while it waits. So a time-out means that it was stopped.
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
        """Start a process in a process group of its own. The numbers of its descriptors are its last arguments."""
        given = self._given.pop(0)
        if len(given) < count:
            # A process that has reached its limit of open files does not receive the rest of them.
            _close(given)
            self._say("failed", name, os.strerror(errno.EMFILE))
            return
        self._started += 1
        mark = f"{os.getpid()}.{self._started}".encode()
        start = _Start(name, program, numbers, {**environment, MARK: mark}, given)
        # Each start that waits keeps four descriptors open. An eighth of the limit may wait: half of all descriptors.
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
        """Ask a template that waits to fork the next process. One at a time, so that the warden never waits for it."""
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
            # Descriptors travel with the first bytes of their message.
            sent = template.control.sendmsg([message], [(SOL_SOCKET, SCM_RIGHTS, descriptors)])
            template.control.sendall(message[sent:])
        except OSError:
            self._drop(key)
        finally:
            os.close(held)

    def _take_answer(self, key: str, template: _Template) -> None:
        """A template has answered: it is ready, or it has forked a process. Or it is gone."""
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
                # The process may have been killed from outside.
                with contextlib.suppress(BrokenPipeError):
                    os.write(template.hold, b"1")
            elif pid in self._names:
                _kill_group(pid)
            os.close(template.hold)
            _close(start.given)
            template.forking = None
        self._ask_template(key)

    def _note(self, start: _Start, pid: int) -> None:
        """Note that a process runs, and tell the launcher."""
        self._say("started", start.name, pid)
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            # It was killed from outside, and reaped before the template told its number.
            self._say("ended", start.name, -signal.SIGKILL)
            return
        self._names[pid] = start.name
        self._marks[pid] = MARK + b"=" + start.environment[MARK]

    def _drop(self, key: str) -> None:
        """Use a template no more. Closing ``hold`` ends the process that it was forking before that does anything."""
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
        """How long to wait for the next event: until the first template is overdue."""
        limits = [-_overdue_s(one) for one in self._templates.values() if one.busy_since is not None]
        return 1e3 * max(0.0, min(limits)) + 1.0 if limits else None

    def _reap(self) -> None:
        """Reap the processes that have ended, and end what they left behind."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                # It is not reaped yet, so its number still names it and its group.
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
        """End the processes that a dead process started and that have left its group."""
        while left := [pid for pid in _children() if pid not in self._names and mark in _environment(pid)]:
            for pid in left:
                _kill(pid)
            for pid in left:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _say(self, *message: str | int) -> None:
        self._control.sendall(as_message(message))


def as_message(content: "tuple[Any, ...]") -> bytes:
    """The bytes of a message, for ``take_message``."""
    body = marshal.dumps(content)
    return len(body).to_bytes(HEAD_BYTES, "little") + body


def take_message(received: bytes) -> "tuple[tuple[Any, ...], bytes] | None":
    """The first message and the bytes behind it; ``None`` while it is incomplete."""
    if len(received) < HEAD_BYTES:
        return None
    end = HEAD_BYTES + int.from_bytes(received[:HEAD_BYTES], "little")
    return (marshal.loads(received[HEAD_BYTES:end]), received[end:]) if end <= len(received) else None


def _overdue_s(template: _Template) -> float:
    """By how many seconds a template is late; below 0 while it is not."""
    since = template.busy_since
    return -_TEMPLATE_LIMIT_S if since is None else time.monotonic() - since - _TEMPLATE_LIMIT_S


def _spawn(arguments: list[bytes], environment: dict[bytes, bytes]) -> int:
    return os.posix_spawn(
        arguments[0],
        arguments,
        environment,
        setpgroup=0,
        # Python ignores these two signals, and its children would inherit that.
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
