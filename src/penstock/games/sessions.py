"""Sessions of games: each has an agent and a lane, and takes its requests in order. The lanes train, or only act.

Knows no transport: `GameSteps` is what the protocols of `penstock.serving.server` call.
"""

import asyncio
import inspect
import logging
import math
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple

import numpy as np

from penstock.envs.actions import cutter
from penstock.errors import BadDataError, EnvError
from penstock.gamecore.rows import read_row
from penstock.games.agent import Agent, State, Told, hooks_of
from penstock.games.contract import FreeLanes, Rows, SessionLane
from penstock.games.lane import RunEndedError
from penstock.games.roster import Roster
from penstock.serving.observations import FieldReader, flat_row
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.sessions import MOST_WAITING, SessionKey, no_session
from penstock.serving.server.steps import StepReply
from penstock.types import Array, Arrays, Discrete, Spaces

__all__ = ["GameSteps"]

log = logging.getLogger("penstock.games")

_RECONNECT_S = 10.0
"""Seconds after which a session whose connection is gone has vanished."""
_SAY_S = 10.0
"""Seconds between two lines in the log about requests that do not fit."""
_CONTENT = "application/octet-stream"
_LARGEST = float(np.finfo(np.float32).max)
_VANISHED = ("vanish", "restart")
_ENDED = Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the server has ended")


class _Request(NamedTuple):
    """A request of one session."""

    kind: str
    """``tick`` or ``stop``; ``restart``: a start after the connection was lost; ``vanish``: the server's own request to
    end the session."""
    body: bytes = b""
    reply: StepReply | None = None


class _Session:
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
        self.requests: deque[_Request] = deque()
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
        failed: is told of an error of an agent, and of the reply that the agent owes.
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
        self._spaces = spaces
        self._reader = FieldReader(spaces)
        self._row = flat_row(spaces)
        self._roster = Roster(make)
        self._lobby = lobby
        self._keep = keep
        self._idle_seconds = idle_seconds
        self._stopping = stopping
        self._expired = expired
        self._failed = failed
        self._purpose = purpose
        self._cut = cutter(spaces.action, 1)
        self._live: dict[SessionKey, _Session] = {}
        self._tasks: dict[asyncio.Task[None], _Session] = {}
        self.refusal = ""
        """Why the latest request that did not fit was refused; empty: a tick has fitted since."""
        self.taken = loop.time()
        """When a tick has last fitted."""
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
        """End a session whose client is gone, once its lane answers. Until then its lane is taken, its name is not."""
        session = self._live[key]
        session.is_dropped = True
        self._queue(session, _Request("vanish"))

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
            self._queue(former, _Request("restart", reply=reply))
            return
        if former is not None:
            raise Refusal(HTTPStatus.CONFLICT, f"session {key[1]!r} has started already; stop it first")
        taken = self._lobby.take()
        if taken is None:
            text = f"all {self._lobby.size} sessions are taken ({self._lobby.flag})"
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after=1)
        try:
            agent, rows = self._roster.agent(key), self._keep(str(key[1]))
            session = _Session(key, agent, *taken, rows=rows, now=self._loop.time())
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
        request = _Request("tick", body, reply)
        if not self._at_once(session, request):
            self._queue(session, request)

    def stop(self, key: SessionKey, body: bytes, reply: StepReply) -> None:
        """The episode ends."""
        self._queue(self._asked_by(key), _Request("stop", body, reply))

    def asked(self) -> float:
        """When a session that lives has asked last. If one waits for a reply: now."""
        now = self._loop.time()
        if any(session.came is None or session.requests for session in self._live.values()):
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
            if session.came is None or session.requests:
                continue
            gone = session.parted is not None and now - session.parted > _RECONNECT_S
            if gone or now - session.used > self._idle_seconds:
                self._queue(session, _Request("vanish"))
                self._expired()

    async def close(self) -> None:
        """End all sessions without taking further rows."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # One session.

    async def _run(self, session: _Session) -> None:
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
                    self.taken, self.refusal = self._loop.time(), ""
            except BadDataError as error:
                if request.reply is not None:
                    self._note_refusal(session, str(error))
                _refuse(request, Refusal(HTTPStatus.BAD_REQUEST, str(error)))
                # Nobody is there to ask again. The episode's rows before its last action are kept.
                is_on = request.kind not in _VANISHED
            except Refusal as refusal:  # of a lane that gets no answer now
                _refuse(request, refusal)
            except asyncio.CancelledError:
                _refuse(request, _ENDED)
                raise
            except RunEndedError:
                _refuse(request, _ENDED)
                is_on = False
        self._hand_on(session)

    async def _take(self, session: _Session, request: _Request) -> bool:
        """Do what a request asks for. False: it was the session's last one.

        Raises:
            BadDataError: the request does not fit. Nothing has changed.
            RunEndedError: the run ends.
        """
        if request.kind == "tick":
            reply = await self._ticked(session, request.body)
            if request.reply is not None:
                request.reply.answer(_CONTENT, reply)
            return True
        await self._end(session, request)
        # Before the reply: the client may begin its next episode at once.
        self._release(session)
        if request.kind == "restart":
            session.requests.appendleft(request)
        elif request.reply is not None:
            request.reply.answer(_CONTENT, b"{}")
        return False

    def _hand_on(self, session: _Session) -> None:
        """A session has ended: begin the next one if its client has started it again meanwhile.

        Race:

        1. A connection is lost while its session waits. The client starts the session again over another one.
        2. That connection is lost as well, or the client asks on without waiting for the reply.
        3. The session ends, and the start begins the next one. All that has happened since the start belongs to it.
        """
        self._release(session)
        while session.requests:
            request = session.requests.popleft()
            if request.kind != "restart" or request.reply is None:
                _refuse(request, _stopped(session))
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

    def _at_once(self, session: _Session, request: _Request) -> bool:
        """Answer a tick in this call, if it runs no code of the user and waits for nothing: the usual case.

        Returns:
            False: the tick is no such one, and nothing has changed.
        """
        size = self._row
        is_idle = session.came is not None and not session.requests
        may = is_idle and session.is_plain and session.has_begun and session.lane.may_go_on_at_once()
        if size is None or not may or request.reply is None or (read := read_row(request.body, size)) is None:
            return False
        row, given = read
        reward = 0.0 if given is None else given
        obs = np.ndarray((1, size), np.float32, row)
        fields = {self._spaces.obs[0][0]: obs}
        action = self._chosen(session, fields, session.lane.go_on_at_once(fields, reward), reward)
        session.last = obs[0]
        request.reply.answer(_CONTENT, session.agent.encode(action))
        self.taken, self.refusal = session.used, ""
        return True

    async def _ticked(self, session: _Session, body: bytes) -> bytes:
        """Let the policy act on a tick. Returns the reply's body."""
        agent = session.agent
        state = State(body, agent.decode(body), _Acting(self, session))
        called = agent.on_tick(state)
        if called is not None:
            await _called(called)
        if not state.has_acted:
            await state.act()
        if session.wants_episode:
            session.episode.append(state)
        reply: object = agent.encode(state.action) if state.reply is None else state.reply
        if not isinstance(reply, bytes):
            kind = type(reply).__name__
            raise EnvError(f"agent {type(agent).__qualname__} replies with a {kind}; encode and state.reply are bytes")
        return reply

    async def act(self, session: _Session, state: State) -> Any:  # noqa: ANN401 - as the action space has it
        """Store a state in the session's rollout and let the policy act on it."""
        fields = self._fields(state.obs, state.action_mask)
        reward = _finite(state.reward)
        if session.has_begun:
            await session.lane.go_on(fields, reward)
        else:
            await session.lane.begin(fields)
            session.has_begun = True
        action = self._chosen(session, fields, await session.lane.act(), reward)
        session.last, session.mask = state.obs, state.action_mask
        return action

    def _chosen(self, session: _Session, fields: Arrays, action: Array, reward: float) -> Any:  # noqa: ANN401
        """The action ``[1, ...]`` as the action space has it. It is kept with what led to it, if episodes are kept."""
        (one,) = self._cut(session.rows.add(fields, action, reward))
        # The array is used again for the next action, and an agent may keep this one.
        return int(one) if isinstance(self._spaces.action, Discrete) else one

    async def _end(self, session: _Session, request: _Request) -> None:
        # An empty body says nothing in any encoding.
        told = session.agent.decode(request.body) if request.body else Told()
        final = State(request.body, told)
        says_nothing = told.obs is None and told.reward is None
        final.vanished = request.kind in _VANISHED or (says_nothing and not told.terminated)
        if final.vanished:
            final.terminated = False
        elif told.obs is None and not told.terminated:
            raise BadDataError('stop needs "obs", unless the episode has terminated: the last state is bootstrapped')
        if final.obs is None:
            final.obs, final.action_mask = session.last, session.mask
        final.truncated = not final.terminated
        await _called(session.agent.on_episode(session.episode, final))
        if not session.has_begun:
            return
        if final.vanished:
            session.lane.cut_off()
            session.has_begun = False
            session.rows.vanish()
        else:
            fields, reward = self._fields(final.obs, final.action_mask), _finite(final.reward)
            await session.lane.end(fields, reward, terminated=final.terminated)
            session.has_begun = False
            session.rows.end(fields, reward, terminated=final.terminated)

    def _fields(self, obs: Any, action_mask: Any) -> Arrays:  # noqa: ANN401 - a client's
        fields, is_batch = self._reader.read(obs, action_mask)
        if is_batch:
            raise BadDataError("a session has one observation at a time")
        return fields

    # Bookkeeping.

    def _note_refusal(self, session: _Session, text: str) -> None:
        """Log why a request does not fit, because its client may not show it: at most once in `_SAY_S` seconds."""
        self.refusal, now = text, self._loop.time()
        if now - self._said > _SAY_S:
            self._said = now
            log.warning("a request of session %s is refused: %s", session.key[1], text)

    def _asked_by(self, key: SessionKey) -> _Session:
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

    def _queue(self, session: _Session, request: _Request) -> None:
        session.requests.append(request)
        if session.came is not None and not session.came.done():
            session.came.set_result(None)

    def _check_running(self) -> None:
        if self._stopping():
            raise _ENDED

    def _done(self, task: "asyncio.Task[None]") -> None:
        """A session is over: what it still asked for is refused."""
        session = self._tasks.pop(task)
        self._release(session)
        for request in session.requests:
            _refuse(request, _stopped(session))
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error, session.owed)

    def _release(self, session: _Session) -> None:
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


class _Acting:
    """Lets the policy act for one session."""

    __slots__ = ("_session", "_steps")

    def __init__(self, steps: GameSteps, session: _Session) -> None:
        self._steps = steps
        self._session = session

    async def act(self, state: State) -> Any:  # noqa: ANN401 - as the action space has it
        return await self._steps.act(self._session, state)


async def _called(result: Any) -> None:  # noqa: ANN401 - of a user's function
    """Await what a user's function returned, if it was a coroutine."""
    if inspect.isawaitable(result):
        await result


def _finite(reward: float) -> float:
    try:
        number = float(reward)
    except (TypeError, ValueError):
        raise BadDataError(f"reward is {str(reward)[:40]!r}, which is no number") from None
    except OverflowError:
        raise BadDataError("reward is a whole number too large for a float") from None
    if not abs(number) <= _LARGEST:
        raise BadDataError(f"reward is {reward}, which is not finite")
    return number


def _stopped(session: _Session) -> Refusal:
    return Refusal(HTTPStatus.NOT_FOUND, f"session {session.key[1]!r} was stopped")


def _refuse(request: _Request, refusal: Refusal) -> None:
    if request.reply is not None:
        request.reply.refused(refusal)
