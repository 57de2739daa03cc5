"""The warden: starts processes by name, says how each ended, and ends all that they started.

The launcher asks over a socket; the warden starts, signals and reaps. It decides nothing. When the socket is closed,
for whatever reason, it ends every process below.

On Linux it is the subreaper of its descendants. The children of a process that died become its own children. A variable
in their environment tells whose they were, even if they left the process group. On other systems it ends process groups
only: a process that an environment started in a group of its own stays.
"""

import contextlib
import errno
import os
import select
import signal
import sys
import time
from _socket import socket, socketpair

from .descendants import MARK, adopt, children, kill, kill_group, marked, spawn
from .line import Line
from .templates import Start, Template

__all__ = ["Warden", "main"]

PAUSE_S = 0.002
CLEAR_LIMIT_S = 5.0
"""How long the kernel may take to end processes that were killed, before the warden does other things."""


def main() -> None:
    """Serve the socket whose number is the last argument until it is closed. Then end every process that is left."""
    # Handlers that do nothing. SIG_IGN would be inherited by the processes that are started.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    control = int(sys.argv[-1])
    # A process that inherited the socket would hide the warden's end from the launcher.
    os.set_inheritable(control, False)
    warden = Warden(Line(socket(fileno=control)), adopts=adopt())
    # The launcher may die in the middle of a message.
    with contextlib.suppress(OSError):
        warden.serve()
    warden.end()
    # The launcher waits for this end, and no exit handler is needed.
    os._exit(0)


class Warden:
    """Starts processes by name and says how each ended.

    Args:
        line: to the launcher.
        adopts: it is a subreaper: orphans below become its children, so that templates may fork.
    """

    def __init__(self, line: Line, *, adopts: bool) -> None:
        self._line = line
        self._adopts = adopts
        self._names: dict[int, str] = {}
        """Process id -> name, of processes that are not yet reaped."""
        self._marks: dict[int, bytes] = {}
        self._started = 0
        self._templates: dict[str, Template] = {}
        self._poll = select.poll()

    def serve(self) -> None:
        """Obey the launcher's messages until its socket is closed."""
        woken, wake = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll.register(self._line.fileno(), select.POLLIN)
        self._poll.register(woken, select.POLLIN)
        while True:
            ready = dict(self._poll.poll(self._patience_ms()))
            for key, template in list(self._templates.items()):
                if template.control.fileno() in ready:
                    self._take_answer(key, template)
                elif template.patience_s() < 0:
                    self._drop(key)
            if woken in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(woken, 4096)
                self._reap()
            if self._line.fileno() in ready:
                messages = self._line.read()
                if messages is None:
                    return
                for message in messages:
                    self._obey(*message)

    def end(self) -> None:
        """Kill every descendant. The children of a process that dies become the warden's, until none is left."""
        for pid in self._names:
            kill_group(pid)
        while True:
            try:
                while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                    self._names.pop(pid, None)
            except ChildProcessError:
                return
            for pid in children().union(self._names):
                kill(pid)
            _pause()

    def _obey(self, what: str, name: str, *details: object) -> None:
        if what == "start":
            self._start(name, *details)  # type: ignore[arg-type]
        elif what == "template":
            self._prepare(name, *details)  # type: ignore[arg-type]
        elif what == "signal":
            self._signal(name, int(details[0]))  # type: ignore[call-overload]
        else:
            self._clear()

    def _signal(self, name: str, number: int) -> None:
        for pid, known in self._names.items():
            if known == name:
                os.kill(pid, number)
        if number == signal.SIGKILL:
            for template in self._templates.values():
                self._withdraw(name, template)

    def _withdraw(self, name: str, template: Template) -> None:
        """Take back a start that waits. A process that is being forked is killed once its number is known."""
        if template.forking is not None and template.forking.name == name:
            template.forking.killed = True
        for start in [start for start in template.queue if start.name == name]:
            template.queue.remove(start)
            self._give_up(start)

    def _give_up(self, start: Start) -> None:
        start.close()
        self._line.say("ended", start.name, -signal.SIGKILL)

    def _clear(self) -> None:
        """End all processes with all that they started, but no template that waits or imports. Then say so."""
        for key, template in list(self._templates.items()):
            for start in template.starts():
                start.killed = True
            if template.starts():
                self._drop(key)
        until = time.monotonic() + CLEAR_LIMIT_S
        for pid in self._names:
            kill_group(pid)
        while (left := self._processes()) and time.monotonic() < until:
            for pid in left:
                kill(pid)
            _pause()
            self._reap()
        # The kernel does not end those that are left. They are the warden's children and no part of the next program.
        self._names.clear()
        self._marks.clear()
        self._line.say("cleared", "", 0)

    def _processes(self) -> set[int]:
        """All children but the templates."""
        return children().union(self._names).difference(template.pid for template in self._templates.values())

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
            self._templates[key] = Template(spawn([*program, str(other.fileno()).encode()], environment), own)
            self._poll.register(own.fileno(), select.POLLIN)
        other.close()

    def _start(  # noqa: PLR0917 - as the message has them
        self,
        name: str,
        key: str,
        program: list[bytes],
        entry: str,
        numbers: list[int],
        environment: dict[bytes, bytes],
        count: int,
    ) -> None:
        """Start a process in a process group of its own.

        Args:
            name: of the process.
            key: the template that forks it.
            program: the command line that starts it where there is no template. ``numbers`` and the numbers of its
                descriptors follow.
            entry: the "module:function" that a template's fork calls with the same numbers.
            numbers: see ``program``.
            environment: its environment.
            count: how many descriptors it was given.
        """
        given = self._line.take_given()
        self._started += 1
        mark = f"{os.getpid()}.{self._started}".encode()
        start = Start(name, program, entry, numbers, {**environment, MARK: mark}, given)
        if len(given) < count:
            # A process that has reached its limit of open files does not receive the rest of them.
            start.close()
            self._line.say("failed", name, os.strerror(errno.EMFILE))
            return
        # Each start that waits keeps four descriptors open. An eighth of the limit may wait: half of all descriptors.
        waiting = sum(len(template.queue) for template in self._templates.values())
        if key in self._templates and 8 * waiting < os.sysconf("SC_OPEN_MAX"):
            self._templates[key].queue.append(start)
            self._ask_template(key)
        else:
            self._start_alone(start)

    def _start_alone(self, start: Start) -> None:
        """Start a process without a template."""
        for descriptor in start.given:
            os.set_inheritable(descriptor, True)
        numbers = (str(number).encode() for number in (*start.numbers, *start.given))
        try:
            pid = spawn([*start.program, *numbers], start.environment)
        except OSError as error:
            self._line.say("failed", start.name, error.strerror or str(error))
        else:
            self._note(start, pid)
        finally:
            start.close()

    def _ask_template(self, key: str) -> None:
        try:
            self._templates[key].ask()
        except OSError:
            self._drop(key)

    def _take_answer(self, key: str, template: Template) -> None:
        """A template has answered: it is ready, or it has forked a process. Or it is gone."""
        pid = template.answer()
        if pid is None:
            self._drop(key)
            return
        if (start := template.forking) is not None:
            self._note(start, pid)
            if _is_reaped(pid):
                # It was killed from outside, and reaped before the template told its number.
                self._tell_end(pid, -signal.SIGKILL)
            runs = pid in self._names and not start.killed
            if pid in self._names and start.killed:
                kill_group(pid)
            template.settle(run=runs)
        self._ask_template(key)

    def _note(self, start: Start, pid: int) -> None:
        """Note that a process runs, and tell the launcher."""
        self._line.say("started", start.name, pid)
        self._names[pid] = start.name
        self._marks[pid] = start.environment[MARK]

    def _drop(self, key: str) -> None:
        """Use a template no more. What it was asked for starts by itself."""
        template = self._templates.pop(key)
        self._poll.unregister(template.control.fileno())
        for start in template.end():
            if start.killed:
                self._give_up(start)
            else:
                self._start_alone(start)

    def _patience_ms(self) -> float | None:
        """How long to wait for the next event: until the first template is overdue."""
        patience_s = min((template.patience_s() for template in self._templates.values()), default=float("inf"))
        return None if patience_s == float("inf") else 1e3 * max(0.0, patience_s) + 1.0

    def _reap(self) -> None:
        """Reap the processes that have ended, and end what they left behind."""
        if not hasattr(os, "waitid"):
            self._reap_known()
            return
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                # It is not reaped yet, so its number still names it and its group.
                if found.si_pid in self._names:
                    kill_group(found.si_pid)
                pid, status = os.waitpid(found.si_pid, 0)
                for template in self._templates.values():
                    if template.pid == pid:
                        template.pid = None
                if pid in self._names:
                    self._sweep(self._marks[pid])
                    self._tell_end(pid, os.waitstatus_to_exitcode(status))

    def _reap_known(self) -> None:
        """The same on macOS before Python 3.13, where no process can be looked at before it is reaped.

        There no process adopts orphans, so all children are known.
        """
        for pid in list(self._names):
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if reaped:
                # The number still names the group, as long as a process is left in it.
                kill_group(pid)
                self._tell_end(pid, os.waitstatus_to_exitcode(status))

    def _tell_end(self, pid: int, status: int) -> None:
        del self._marks[pid]
        self._line.say("ended", self._names.pop(pid), status)

    def _sweep(self, mark: bytes) -> None:
        """End the processes that a dead process started and that have left its group.

        One that the kernel does not end in time stays a child of the warden, which reaps it later.
        """
        killed: set[int] = set()
        until = time.monotonic() + CLEAR_LIMIT_S
        while left := {pid for pid in children() if pid not in self._names and (pid in killed or marked(pid, mark))}:
            for pid in left:
                kill(pid)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            killed |= left
            if time.monotonic() > until:
                return
            _pause()


def _is_reaped(pid: int) -> bool:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _pause() -> None:
    select.select([], [], [], PAUSE_S)
