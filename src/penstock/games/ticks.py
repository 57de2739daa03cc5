"""Ticks of games: what the body of a request means for the session's agent, its lane and the rows that are kept.

Knows no other sessions, no order of requests, and no connection.
"""

import inspect
from typing import Any

import numpy as np

from penstock.envs.actions import cutter
from penstock.errors import BadDataError, EnvError
from penstock.gamecore.rows import read_row
from penstock.games.agent import State, Told
from penstock.games.session import Session
from penstock.serving.observations import FieldReader, flat_row, tuples_in, with_tuples
from penstock.types import Array, Arrays, Discrete, Spaces

__all__ = ["Ticks"]

_LARGEST = float(np.finfo(np.float32).max)


class Ticks:
    """Lets agents and the policy act on ticks of their sessions.

    Args:
        spaces: of one agent.
    """

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces
        self._reader = FieldReader(spaces)
        self._tuples = tuples_in([name for name, _ in spaces.obs])
        self._row = flat_row(spaces)
        self._cut = cutter(spaces.action, 1)

    def at_once(self, session: Session, body: bytes) -> bytes | None:
        """Answer a tick in this call, if it runs no code of the user and waits for nothing: the usual case.

        Returns:
            The reply's body; ``None``: the tick is no such one, and nothing has changed.
        """
        size = self._row
        may = session.is_idle and session.is_plain and session.has_begun and session.lane.may_go_on_at_once()
        if size is None or not may or (read := read_row(body, size)) is None:
            return None
        row, given = read
        reward = 0.0 if given is None else given
        obs = np.ndarray((1, size), np.float32, row)
        fields = {self._spaces.obs[0][0]: obs}
        action = self._chosen(session, fields, session.lane.go_on_at_once(fields, reward), reward)
        session.last = obs[0]
        return session.agent.encode(action)

    async def answer(self, session: Session, body: bytes) -> bytes:
        """Let the policy act on a tick. Returns the reply's body.

        Raises:
            BadDataError: the body does not fit.
            EnvError: the agent's reply is no bytes.
        """
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

    async def act(self, session: Session, state: State) -> Any:  # noqa: ANN401 - as the action space has it
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

    async def end(self, session: Session, body: bytes, *, vanished: bool) -> None:
        """End the session's episode.

        Args:
            session: takes no more ticks, unless this raises.
            body: of the request that ends it; may be empty.
            vanished: the client is gone.

        Raises:
            BadDataError: the body does not fit.
        """
        # An empty body says nothing in any encoding.
        told = session.agent.decode(body) if body else Told()
        final = State(body, told)
        says_nothing = told.obs is None and told.reward is None and told.info is None
        final.vanished = vanished or (says_nothing and not told.terminated)
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
            fields = self._fields(final.obs, final.action_mask, nobody_acts=True)
            reward = _finite(final.reward)
            await session.lane.end(fields, reward, final.info, terminated=final.terminated)
            session.has_begun = False
            session.rows.end(fields, reward, terminated=final.terminated)

    def _chosen(self, session: Session, fields: Arrays, action: Array, reward: float) -> Any:  # noqa: ANN401
        """The action ``[1, ...]`` as the action space has it. It is kept with what led to it, if episodes are kept."""
        (one,) = self._cut(session.rows.add(fields, action, reward))
        # The array is used again for the next action, and an agent may keep this one.
        return int(one) if isinstance(self._spaces.action, Discrete) else one

    def _fields(self, obs: Any, action_mask: Any, *, nobody_acts: bool = False) -> Arrays:  # noqa: ANN401 - a client's
        fields, is_batch = self._reader.read(with_tuples(obs, self._tuples), action_mask, nobody_acts=nobody_acts)
        if is_batch:
            raise BadDataError("a session has one observation at a time")
        return fields


class _Acting:
    """Lets the policy act for one session."""

    __slots__ = ("_session", "_ticks")

    def __init__(self, ticks: Ticks, session: Session) -> None:
        self._ticks = ticks
        self._session = session

    async def act(self, state: State) -> Any:  # noqa: ANN401 - as the action space has it
        return await self._ticks.act(self._session, state)


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
