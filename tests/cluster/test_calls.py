"""What becomes of calls for which an object store has no room."""

from collections.abc import Callable
from typing import Any

import ray

from penstock.cluster.calls import COLLECT_AGAIN, Calls, Reply
from penstock.cluster.no_room import RETRY_S, NoRoom

FULL = ray.exceptions.ObjectStoreFullError("no room for 10 MB")
FULL_THERE: Any = ray.exceptions.RayTaskError("collect", "its traceback", FULL).as_instanceof_cause()


class Machine:
    """Answers a call once it is told to."""

    name = "a machine"

    def __init__(self) -> None:
        self.called: list[tuple[str, tuple[Any, ...]]] = []
        self.reply: Callable[[Any, Any], None] | None = None

    def call(self, name: str, replied: Callable[[Any, Any], None], *arguments: Any) -> None:
        self.called.append((name, arguments))
        self.reply = replied

    def answer(self, result: Any, error: BaseException | None = None) -> None:
        assert self.reply is not None
        self.reply(result, error)


class Home:
    """The calls of a relay, with a clock that is set by hand."""

    def __init__(self) -> None:
        self.no_room = NoRoom(stall_limit_s=100.0)
        self.lost: set[Any] = set()
        self.rung = 0
        self.now = 1000.0
        self.calls = Calls(self.no_room, self.lost, self.ring)

    def ring(self) -> None:
        self.rung += 1

    def turn(self, seconds: float = 0.0) -> list[Reply]:
        """What the relay hears after so long."""
        self.now += seconds
        heard = list(self.calls.replies(self.now))
        self.calls.make_again(self.now)
        return heard


def test_a_call_that_never_left_is_made_again_with_its_arguments() -> None:
    home, machine = Home(), Machine()
    far: Any = machine
    home.calls.make(far, "release", "", [("env.0", 1, 0)])
    machine.answer(None, FULL)
    assert home.rung == 1
    # Nothing is heard of it, and it waits for its time.
    assert home.turn() == []
    assert len(machine.called) == 1
    assert home.turn(RETRY_S) == []
    assert machine.called == [("release", ([("env.0", 1, 0)],))] * 2
    machine.answer(None)
    assert home.turn() == [Reply(far, "release", "", None, None)]
    assert list(home.no_room) == []
    assert home.turn(RETRY_S) == []
    assert len(machine.called) == 2


def test_what_was_collected_is_asked_for_again_and_no_slot_is_freed_twice() -> None:
    home, machine = Home(), Machine()
    far: Any = machine
    home.calls.make(far, "collect", "", [("env.0", 1, 0)])
    machine.answer(None, FULL)
    home.turn()
    home.turn(RETRY_S)
    machine.answer(None, FULL_THERE)
    # The host has answered, so it is not silent.
    assert home.turn() == [Reply(far, "", "", None, None)]
    assert home.calls.keeps_back(far)
    home.turn(RETRY_S)
    freed = ([("env.0", 1, 0)],)
    assert machine.called == [("collect", freed), ("collect", freed), (COLLECT_AGAIN, ())]
    machine.answer("a batch")
    assert home.turn() == [Reply(far, COLLECT_AGAIN, "", "a batch", None)]
    assert not home.calls.keeps_back(far)
    # Nothing waits any more, so the run does not end for want of room.
    assert list(home.no_room) == []


def test_nothing_is_asked_or_heard_of_a_machine_that_was_given_up() -> None:
    home, machine = Home(), Machine()
    far: Any = machine
    home.calls.make(far, "start", "env.0", "a task")
    machine.answer(None, FULL)
    home.turn()
    home.lost.add(far)
    home.turn(RETRY_S)
    assert len(machine.called) == 1
    assert list(home.no_room) == []
    machine.answer(1)
    assert home.turn() == []
