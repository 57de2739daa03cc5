"""One session of a game, and a request of it. What they hold is read and changed by `GameSteps` and `Ticks` alone."""

import asyncio
from collections import deque
from http import HTTPStatus
from typing import Any, NamedTuple

from penstock.games.agent import Agent, State, hooks_of
from penstock.games.contract import Rows, SessionLane
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.sessions import SessionKey
from penstock.serving.server.steps import StepReply

__all__ = ["Request", "Session"]


class Request(NamedTuple):
    """A request of one session."""

    kind: str
    """- ``tick`` or ``stop``;
    - ``start``: one that came behind a stop;
    - ``restart``: a start after the connection was lost;
    - ``vanish``: the server's own request to end the session.
    """
    body: bytes = b""
    reply: StepReply | None = None

    @property
    def vanishes(self) -> bool:
        """Whether it ends an episode because the client has vanished."""
        return self.kind in {"vanish", "restart"}

    def refuse(self, refusal: Refusal) -> None:
        """Tell the client that there is no answer, if it waits for one."""
        if self.reply is not None:
            self.reply.refused(refusal)


class Session:
    """One episode of one agent."""

    def __init__(
        self, key: SessionKey, agent: Agent, number: int, lane: SessionLane, *, rows: Rows, now: float
    ) -> None:
        self.key = key
        self.agent = agent
        self.number = number
        self.lane = lane
        self.used = now
        self.parted: float | None = None
        """Since when its connection is gone."""
        self.is_dropped = False
        """Its client is gone and has begun to play with another policy."""
        self.requests: deque[Request] = deque()
        self.came: asyncio.Future[None] | None = None
        """Set while the session waits for a request."""
        self.owed: StepReply | None = None
        """The reply to the request that is being answered."""
        self.has_begun = False
        own = type(agent)
        # Otherwise an episode without an end would fill the memory for nothing.
        self.wants_episode = own.on_episode is not Agent.on_episode
        self.is_plain = not hooks_of(own)
        """Nothing of the user runs at its ticks."""
        self.episode: list[State] = []
        self.rows = rows
        self.last: Any = None
        """The last observation, as the agent gave it."""
        self.mask: Any = None

    @property
    def is_idle(self) -> bool:
        """Whether it waits for its client to ask."""
        return self.came is not None and not self.requests

    def add(self, request: Request) -> None:
        """Let a request wait behind those that came before."""
        self.requests.append(request)
        if self.came is not None and not self.came.done():
            self.came.set_result(None)

    def stopped(self) -> Refusal:
        """The refusal of what is asked for after its end."""
        return Refusal(HTTPStatus.NOT_FOUND, f"session {self.key[1]!r} was stopped")
