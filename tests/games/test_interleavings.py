"""Sessions of games whose lane waits for the learner, while time passes and clients come and go."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.envs.games import game_spaces
from penstock.games.lobby import Lobby
from penstock.games.sessions import GameSteps
from penstock.saved_runs.episodes import EpisodeFiles
from penstock.serving.server.refusal import Refusal
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

    async def end(self, *_: Any, **__: Any) -> None:
        await self.answers.wait()

    def cut_off(self) -> None:
        """No row is written."""


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
        self.steps = GameSteps(
            loop,
            spaces=game_spaces("gamecore://tests.games.agents:Plain", (), masks=False)[0],
            make=Plain,
            lobby=lobby,
            kept=EpisodeFiles(folder, 0),
            idle_seconds=IDLE_S,
            stopping=lambda: False,
        )

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
    server.loop.now += IDLE_S + 1.0
    server.steps.sweep()
    assert server.ask("tick", TICK).said == 404
