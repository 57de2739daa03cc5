"""Sessions of games: which live, their lanes, and the order of their requests. `Ticks` does what a request asks for.

Knows no transport: `GameSteps` is what the protocols of `penstock.serving.server` call. The lanes train, or only act.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from http import HTTPStatus

from penstock.errors import BadDataError
from penstock.games.agent import Agent
from penstock.games.contract import FreeLanes, Rows
from penstock.games.lane import RunEndedError
from penstock.games.roster import Roster
from penstock.games.session import Request, Session
from penstock.games.ticks import Ticks
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.sessions import MOST_WAITING, SessionKey, no_session
from penstock.serving.server.steps import StepReply
from penstock.types import Spaces

__all__ = ["GameSteps"]

log = logging.getLogger("penstock.games")

_RECONNECT_S = 10.0
"""Seconds after which a session whose connection is gone has vanished."""
_SAY_S = 10.0
"""Seconds between two lines in the log about requests that do not fit."""
_CONTENT = "application/octet-stream"
_ENDED = Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the server has ended")


class GameSteps:
    """Answers the requests of games.

    Args:
        loop: calls this object.
        spaces: of one agent.
        make: makes an agent.
        lobby: the lanes.
        keep: who keeps the rows of a session of this name.
        idle_seconds: a session without a request for so long has vanished.
        stopping: whether the run is to end.
        expired: is called for each session that `sweep` ends.
        failed: is called with the error of an agent, and with the reply that its client still waits for, if any.
        purpose: what the server does, for error texts.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        spaces: Spaces,
        make: Callable[[], Agent],
        lobby: FreeLanes,
        keep: Callable[[str], Rows],
        idle_seconds: float,
        stopping: Callable[[], bool],
        expired: Callable[[], object],
        failed: Callable[[BaseException, StepReply | None], object],
        purpose: str,
    ) -> None:
        self._loop = loop
        self._ticks = Ticks(spaces)
        self._roster = Roster(make)
        self._lobby = lobby
        self._keep = keep
        self._idle_seconds = idle_seconds
        self._stopping = stopping
        self._expired = expired
        self._failed = failed
        self._purpose = purpose
        self._live: dict[SessionKey, Session] = {}
        self._tasks: dict[asyncio.Task[None], Session] = {}
        self.refusal = ""
        """Why the latest request that did not fit was refused; empty: a tick has fitted since."""
        self.refused_since = loop.time()
        """When the first request was refused that did not fit, since a tick has fitted."""
        self._said = -math.inf
        """When the log was last told of a request that did not fit."""

    def __len__(self) -> int:
        return len(self._live)

    def has(self, key: SessionKey) -> bool:
        """Whether this session lives and was not dropped."""
        session = self._live.get(key)
        return session is not None and not session.is_dropped

    def has_parted(self, key: SessionKey) -> bool:
        """Whether this session has lost its connection, and has asked nothing since."""
        session = self._live.get(key)
        return session is not None and session.parted is not None

    def drop(self, key: SessionKey) -> None:
        """End a session whose client is gone, once its lane answers. Its name is free at once, its lane only then."""
        session = self._live[key]
        session.is_dropped = True
        session.add(Request("vanish"))

    def stateless(self, policy: str, body: bytes, reply: StepReply) -> None:
        """Refused: experience belongs to a session."""
        del policy, body, reply
        text = f"{self._purpose}: every request needs a session and step_kind (start, tick or stop)"
        raise Refusal(HTTPStatus.BAD_REQUEST, text)

    def start(self, key: SessionKey, policy: str, body: bytes, reply: StepReply) -> None:
        """An episode begins. All sessions play with one policy, so its name does not count; the body may be empty.

        A session of this name that has lost its connection has vanished: its game has crashed and is back.
        """
        del policy, body
        self._check_running()
        former = self._live.get(key)
        if former is not None and former.parted is not None:
            former.parted, former.is_dropped = None, False
            former.add(Request("restart", reply=reply))
            return
        if former is not None and former.requests and former.requests[-1].kind == "stop":
            # The client has asked for both at once.
            former.add(Request("start", reply=reply))
            return
        if former is not None:
            raise _started_already(key)
        taken = self._lobby.take()
        if taken is None:
            text = f"all {self._lobby.size} sessions are taken ({self._lobby.flag})"
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after=1)
        try:
            agent, rows = self._roster.agent(key), self._keep(str(key[1]))
            session = Session(key, agent, *taken, rows=rows, now=self._loop.time())
        except Exception:  # of the user's class
            self._lobby.give_back(*taken)
            raise
        session.agent.game.join(session.agent)
        self._live[key] = session
        task = self._loop.create_task(self._run(session))
        self._tasks[task] = session
        task.add_done_callback(self._done)
        reply.answer(_CONTENT, b"{}")

    def tick(self, key: SessionKey, body: bytes, reply: StepReply) -> None:
        """The next action is wanted."""
        session = self._asked_by(key)
        answer = self._ticks.at_once(session, body)
        if answer is None:
            session.add(Request("tick", body, reply))
            return
        reply.answer(_CONTENT, answer)
        self.refusal = ""

    def stop(self, key: SessionKey, body: bytes, reply: StepReply) -> None:
        """The episode ends."""
        self._asked_by(key).add(Request("stop", body, reply))

    def asked(self) -> float:
        """When a session that lives has asked last. If one waits for a reply: now."""
        now = self._loop.time()
        if not all(session.is_idle for session in self._live.values()):
            return now
        return max((session.used for session in self._live.values()), default=-math.inf)

    def parted(self, key: SessionKey) -> None:
        """The session's connection is gone. Unless it comes back soon, it has vanished."""
        session = self._live.get(key)
        if session is not None:
            session.parted = self._loop.time()

    def sweep(self) -> None:
        """End the sessions that have vanished. Called several times a second."""
        now = self._loop.time()
        for session in list(self._live.values()):
            # A client that waits for a reply has not vanished.
            if not session.is_idle:
                continue
            gone = session.parted is not None and now - session.parted > _RECONNECT_S
            if gone or now - session.used > self._idle_seconds:
                session.add(Request("vanish"))
                self._expired()

    async def close(self) -> None:
        """End all sessions without taking further rows."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # One session.

    async def _run(self, session: Session) -> None:
        is_on = True
        while is_on:
            while not session.requests:
                # While its client waited for a reply, it was not silent.
                session.used = self._loop.time()
                session.came = self._loop.create_future()
                await session.came
                session.came = None
            request = session.requests.popleft()
            session.owed = request.reply
            try:
                is_on = await self._take(session, request)
                if request.kind == "tick":
                    # A game whose ticks are all refused can still begin and end its episodes.
                    self.refusal = ""
            except BadDataError as error:
                if request.reply is not None:
                    self._note_refusal(session, str(error))
                request.refuse(Refusal(HTTPStatus.BAD_REQUEST, str(error)))
                # Nobody is there to ask again. The episode's rows before its last action are kept.
                is_on = not request.vanishes
            except Refusal as refusal:  # of a lane that gets no answer now
                request.refuse(refusal)
            except asyncio.CancelledError:
                request.refuse(_ENDED)
                raise
            except RunEndedError:
                request.refuse(_ENDED)
                is_on = False
        self._hand_on(session)

    async def _take(self, session: Session, request: Request) -> bool:
        """Do what a request asks for. False: it was the session's last one.

        Raises:
            BadDataError: the request does not fit. Nothing has changed.
            RunEndedError: the run ends.
        """
        if request.kind == "tick":
            reply = await self._ticks.answer(session, request.body)
            if request.reply is not None:
                request.reply.answer(_CONTENT, reply)
            return True
        if request.kind == "start":
            # The stop before it was refused, so the episode goes on.
            raise _started_already(session.key)
        await self._ticks.end(session, request.body, vanished=request.vanishes)
        # Before the reply: the client may begin its next episode at once.
        self._release(session)
        if request.kind == "restart":
            session.requests.appendleft(request)
        elif request.reply is not None:
            request.reply.answer(_CONTENT, b"{}")
        return False

    def _hand_on(self, session: Session) -> None:
        """A session has ended: begin the next one if its client has started it again meanwhile.

        Race:

        1. A connection is lost while its session waits. The client starts the session again over another one.
        2. That connection is lost as well, or the client asks on without waiting for the reply.
        3. The session ends, and the start begins the next one. All that has happened since the start belongs to it.
        """
        self._release(session)
        while session.requests:
            request = session.requests.popleft()
            if request.kind not in {"start", "restart"} or request.reply is None:
                request.refuse(session.stopped())
                continue
            try:
                self.start(session.key, "", b"", request.reply)
            except Refusal as refusal:
                request.reply.refused(refusal)
                continue
            following = self._live[session.key]
            following.parted, following.is_dropped = session.parted, session.is_dropped
            following.requests.extend(session.requests)
            session.requests.clear()

    # Bookkeeping.

    def _note_refusal(self, session: Session, text: str) -> None:
        """Log why a request does not fit, because its client may not show it: at most once in `_SAY_S` seconds."""
        now = self._loop.time()
        if not self.refusal:
            self.refused_since = now
        self.refusal = text
        if now - self._said > _SAY_S:
            self._said = now
            log.warning("a request of session %s is refused: %s", session.key[1], text)

    def _asked_by(self, key: SessionKey) -> Session:
        """The session of this name, which has just asked for something.

        Raises:
            Refusal: there is none, or too many of its requests wait.
        """
        session = self._live.get(key)
        if session is None:
            self._check_running()
            raise no_session(key)
        if len(session.requests) >= MOST_WAITING:
            text = f"{len(session.requests)} requests of this session wait already"
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after=1)
        session.used, session.parted = self._loop.time(), None
        return session

    def _check_running(self) -> None:
        if self._stopping():
            raise _ENDED

    def _done(self, task: "asyncio.Task[None]") -> None:
        """A session is over: what it still asked for is refused."""
        session = self._tasks.pop(task)
        self._release(session)
        for request in session.requests:
            request.refuse(session.stopped())
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error, session.owed)

    def _release(self, session: Session) -> None:
        """Free the session's name and lane. Further calls change nothing."""
        if self._live.get(session.key) is not session:
            return
        del self._live[session.key]
        if session.has_begun:
            session.lane.cut_off()
            session.rows.give_up()
        self._lobby.give_back(session.number, session.lane)
        game = session.agent.game
        game.leave(session.agent)
        if len(self._roster) > 4 * self._lobby.size:
            self._roster.keep_only(self._live)


def _started_already(key: SessionKey) -> Refusal:
    return Refusal(HTTPStatus.CONFLICT, f"session {key[1]!r} has started already; stop it first")
