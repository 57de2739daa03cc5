"""Sessions of games whose lane waits for the learner, while time passes and clients come and go."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.envs.games import game_spaces
from penstock.games.kept_rows import KeptRows
from penstock.games.lobby import Lobby
from penstock.games.sessions import _RECONNECT_S as RECONNECT_S
from penstock.games.sessions import GameSteps
from penstock.saved_runs.episodes import EpisodeFiles
from penstock.serving.server.admission.refusal import Refusal
from tests.games.agents import Plain

KEY = ("gamecore", "g")
IDLE_S = 60.0
TICK = b'{"obs": [1.0]}'


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time the test sets."""

    now = 0.0

    def time(self) -> float:
        return self.now


class WaitingLane:
    """A lane whose policy answers once the test says so."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()

    def may_go_on_at_once(self) -> bool:
        return False

    async def begin(self, *_: Any) -> None:
        """The first row needs nothing."""

    go_on = begin

    async def act(self) -> np.ndarray:
        await self.answers.wait()
        return np.zeros(1, np.int64)

    def cut_off(self) -> None:
        """No row is written."""


class Late(Plain):
    """An agent whose episodes end when its lane answers."""

    def __init__(self, lane: WaitingLane) -> None:
        self._lane = lane

    async def on_episode(self, *_: Any) -> None:
        await self._lane.answers.wait()


class Reply:
    """Keeps what a client is told: ``taken``, or the status of its refusal."""

    said: Any = None

    def answer(self, *_: Any) -> None:
        self.said = "taken"

    def refused(self, refusal: Refusal) -> None:
        self.said = int(refusal.status)


class Server:
    """The sessions of a run with one lane, and a client."""

    def __init__(self, loop: Clock, folder: Path) -> None:
        self.loop = loop
        self.lane = WaitingLane()
        lobby = Lobby()
        lobby.bring(0, self.lane)  # type: ignore[arg-type]
        self.expired = 0
        self.steps = GameSteps(
            loop,
            spaces=game_spaces("gamecore://tests.games.agents:Plain", (), masks=False)[0],
            make=lambda: Late(self.lane),
            lobby=lobby,
            keep=lambda session: KeptRows(EpisodeFiles(folder, 0), session, "Late"),
            idle_seconds=IDLE_S,
            stopping=lambda: False,
            expired=self._count_expired,
            failed=lambda *_: None,
            purpose="this server trains",
        )

    def _count_expired(self) -> None:
        self.expired += 1

    def go_on(self) -> None:
        """Let the sessions do what they can do now."""
        for _ in range(20):
            self.loop.run_until_complete(asyncio.sleep(0))

    def ask(self, kind: str, body: bytes = b"") -> Reply:
        """Send a request, and let the sessions do what they can do now."""
        reply = Reply()
        try:
            if kind == "start":
                self.steps.start(KEY, "", body, reply)
            else:
                getattr(self.steps, kind)(KEY, body, reply)
        except Refusal as refusal:
            reply.refused(refusal)
        self.go_on()
        return reply


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    loop = Clock()
    asyncio.set_event_loop(loop)
    made = Server(loop, tmp_path)
    yield made
    loop.run_until_complete(made.steps.close())
    asyncio.set_event_loop(None)
    loop.close()


def test_a_client_that_waited_long_for_its_reply_was_not_silent(server: Server) -> None:
    server.ask("start")
    server.lane.answers.clear()
    tick = server.ask("tick", TICK)
    server.loop.now += IDLE_S + 1.0
    server.steps.sweep()
    server.lane.answers.set()
    server.go_on()
    assert tick.said == "taken"
    server.steps.sweep()
    assert server.ask("tick", TICK).said == "taken"
    assert server.expired == 0
    server.loop.now += IDLE_S + 1.0
    server.steps.sweep()
    assert server.ask("tick", TICK).said == 404
    assert server.expired == 1


def test_a_session_that_is_dropped_leaves_its_name_at_once_and_may_start_again(server: Server) -> None:
    """Its client has begun to play with another policy while the lane waits, and comes back."""
    server.ask("start")
    server.lane.answers.clear()
    server.ask("tick", TICK)
    server.steps.parted(KEY)
    assert server.steps.has_parted(KEY)
    server.steps.drop(KEY)
    assert not server.steps.has(KEY)
    again = server.ask("start")
    assert again.said is None
    assert server.steps.has(KEY)
    server.lane.answers.set()
    server.go_on()
    assert again.said == "taken"
    assert server.steps.has(KEY)
    assert server.ask("tick", TICK).said == "taken"
    assert len(server.steps) == 1


def test_a_session_that_is_dropped_ends(server: Server) -> None:
    server.ask("start")
    server.ask("tick", TICK)
    server.steps.parted(KEY)
    server.steps.drop(KEY)
    server.go_on()
    assert len(server.steps) == 0
    assert server.ask("tick", TICK).said == 404
    assert server.ask("start").said == "taken"
    assert server.expired == 0


def lose_two_connections(server: Server) -> None:
    """A tick waits for the lane when its connection is lost. So is that over which the client starts again."""
    server.ask("start")
    server.lane.answers.clear()
    server.ask("tick", TICK)
    server.steps.parted(KEY)
    server.ask("start")
    server.steps.parted(KEY)


def test_a_session_that_came_back_twice_starts_again(server: Server) -> None:
    """Two connections are lost while the lane waits, one after the other. Each client starts the session again."""
    lose_two_connections(server)
    again = server.ask("start")
    assert again.said is None
    server.lane.answers.set()
    server.go_on()
    assert again.said == "taken"
    assert server.ask("tick", TICK).said == "taken"
    assert len(server.steps) == 1


def test_a_session_that_comes_back_while_it_vanishes_starts_again(server: Server) -> None:
    """The end of its episode takes a while, because the user's coroutine waits."""
    server.ask("start")
    server.ask("tick", TICK)
    server.lane.answers.clear()
    server.steps.parted(KEY)
    server.loop.now += RECONNECT_S + 1.0
    server.steps.sweep()
    server.go_on()
    again = server.ask("start")
    assert again.said is None
    server.lane.answers.set()
    server.go_on()
    assert again.said == "taken"
    assert server.ask("tick", TICK).said == "taken"


def test_a_tick_behind_a_start_is_one_of_the_new_episode(server: Server) -> None:
    """The start waits for the end of the former session. The client sends its tick without waiting for the reply."""
    server.ask("start")
    server.ask("tick", TICK)
    server.steps.parted(KEY)
    start, tick = Reply(), Reply()
    server.steps.start(KEY, "", b"", start)
    server.steps.tick(KEY, TICK, tick)
    server.go_on()
    assert (start.said, tick.said) == ("taken", "taken")


def test_a_connection_that_is_lost_before_its_start_is_taken_leaves_a_session_that_may_start_again(
    server: Server,
) -> None:
    lose_two_connections(server)
    server.lane.answers.set()
    server.go_on()
    assert server.ask("start").said == "taken"
