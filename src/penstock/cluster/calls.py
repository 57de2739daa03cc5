"""Calls: the relay's calls to its hosts, and the replies. A call for which an object store has no room is made again.

Knows the meaning of no call but `collect`: a host has the answer to that only once, so another call asks for it again.
"""

from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from ray.exceptions import RayTaskError

from penstock.cluster.machines import Machine
from penstock.cluster.no_room import HOME, NoRoom
from penstock.cluster.ray_errors import NO_ROOM

__all__ = ["COLLECT_AGAIN", "Calls", "Reply"]

COLLECT_AGAIN = "collect_again"


class Reply(NamedTuple):
    """What became of a call to a host."""

    machine: Machine
    call: str
    """Empty: the host has answered, and the answer is to come again."""
    about: str
    """The group, the board, or the number of the call."""
    result: Any
    error: BaseException | None


class _Call(NamedTuple):
    """A call, by which it is also known to `NoRoom`."""

    machine: Machine
    call: str
    about: str


class _Unmade(NamedTuple):
    """A call that is to be made again."""

    call: _Call
    arguments: tuple[Any, ...]


class _Answer(NamedTuple):
    """What came for a call."""

    made: _Unmade
    result: Any
    error: BaseException | None


class Calls:
    """The calls of one relay. Its methods are called by one thread at a time. Replies may come in any other thread.

    Args:
        no_room: notes the calls that wait for room.
        lost: the machines that are given up, at any time. No call to them is made again, and no reply of theirs counts.
        wake: called when there is a reply, mostly from another thread.
    """

    def __init__(self, no_room: NoRoom, lost: AbstractSet[Machine], wake: Callable[[], None]) -> None:
        self._no_room = no_room
        self._lost = lost
        self._wake = wake
        self._answers: deque[_Answer] = deque()
        self._unmade: list[_Unmade] = []

    def make(self, machine: Machine, call: str, about: str, *arguments: Any) -> None:  # noqa: ANN401 - of any method
        """Call a method of a host. A later call of `replies` has its reply."""
        self._make(_Unmade(_Call(machine, call, about), arguments))

    def _make(self, one: _Unmade) -> None:
        def replied(result: Any, error: BaseException | None) -> None:  # noqa: ANN401 - of any method
            self._answers.append(_Answer(one, result, error))
            self._wake()

        one.call.machine.call(one.call.call, replied, *one.arguments)

    def replies(self, now: float) -> Iterator[Reply]:
        """The replies that have come. A call that found no room is kept, to be made again."""
        while self._answers:
            made, result, error = self._answers.popleft()
            if made.call.machine in self._lost:
                continue
            if not isinstance(error, NO_ROOM):
                self._no_room.remove(made.call)
                yield Reply(*made.call, result, error)
                continue
            # A RayTaskError was raised on the host: its machine has no room for the answer. Any other error was raised
            # here: home has no room for the call, which never left.
            there = isinstance(error, RayTaskError)
            again = _once_more(made) if there else made
            if again.call != made.call:
                # It may have waited for room at home before it left.
                self._no_room.remove(made.call)
            self._no_room.add(again.call, made.call.machine.name if there else HOME, now)
            self._unmade.append(again)
            if there:
                yield Reply(made.call.machine, "", made.call.about, None, None)

    def make_again(self, now: float) -> None:
        """Make the calls that found no room, if it is time."""
        for name in self._no_room:
            if isinstance(name, _Call) and name.machine in self._lost:
                self._no_room.remove(name)
        waiting, self._unmade = [one for one in self._unmade if one.call.machine not in self._lost], []
        for one in waiting:
            if self._no_room.due(one.call, now):
                self._make(one)
            else:
                self._unmade.append(one)

    def keeps_back(self, machine: Machine) -> bool:
        """Whether a host has signs of life of its nodes that find no room on their way."""
        return _Call(machine, COLLECT_AGAIN, "") in self._no_room


def _once_more(made: _Unmade) -> _Unmade:
    """The call that brings an answer which its host could not send."""
    call = made.call
    return _Unmade(call._replace(call=COLLECT_AGAIN), ()) if call.call == "collect" else made
