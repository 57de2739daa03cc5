"""Agents of a server: clients of a served policy play through its agent, as they have played in training.

Sessions, hooks and bodies are those of training (`GameSteps`). Only the lanes differ: they ask the served policy, and
nothing is learned.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import NamedTuple

from penstock.envs.games import agent_maker, agent_name, game_spaces
from penstock.errors import ConfigError, PenstockError
from penstock.games.contract import SessionLane
from penstock.games.kept_rows import copied
from penstock.games.sessions import GameSteps
from penstock.serving.bundle.difference import difference
from penstock.serving.server.admission.refusal import FAILED, Refusal
from penstock.serving.server.endpoints.by_name import Endpoints
from penstock.serving.server.endpoints.endpoint import Endpoint
from penstock.serving.server.endpoints.recording import OpenEpisode, Recorder
from penstock.serving.server.protocols.gamecore.policy_steps import PolicySteps
from penstock.serving.server.sessions import SessionKey
from penstock.serving.server.steps import StepReply
from penstock.types import Array, Arrays, EnvRecipe

__all__ = ["AgentSteps", "ServedLane"]

log = logging.getLogger("penstock.serve")

_NAMESPACE = "lane"
"""Of the sessions that lanes begin at their endpoint."""


class _Waiting(NamedTuple):
    """Waits for the answer to one question of a lane."""

    action: asyncio.Future[Array]

    def answered(self, action: Array, version: int) -> None:
        del version
        if not self.action.done():
            self.action.set_result(action)

    def refused(self, refusal: Refusal) -> None:
        if not self.action.done():
            self.action.set_exception(refusal)


class ServedLane:
    """A lane that asks a served policy. Implements `SessionLane`.

    Args:
        endpoint: the policy.
        number: of the lane, unlike that of any other one of this policy.
        loop: calls this object.
    """

    def __init__(self, endpoint: Endpoint, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._endpoint = endpoint
        self._key: SessionKey = (_NAMESPACE, number)
        self._loop = loop
        self._obs: Arrays = {}

    async def begin(self, obs: Arrays) -> None:
        """See `SessionLane`.

        Raises:
            Refusal: too many sessions live (429).
        """
        self._endpoint.start(self._key)
        self._obs = obs

    async def act(self) -> Array:
        """See `SessionLane`.

        Raises:
            Refusal: the policy does not answer now.
        """
        waiting = _Waiting(self._loop.create_future())
        # The question may wait for its batch, and an agent may use its array again meanwhile.
        self._endpoint.tick(self._key, copied(self._obs), waiting)
        return await waiting.action

    async def go_on(self, obs: Arrays, reward: float) -> None:
        """See `SessionLane`."""
        del reward
        self._obs = obs

    def may_go_on_at_once(self) -> bool:
        """False: the policy answers in batches."""
        return False

    def go_on_at_once(self, obs: Arrays, reward: float) -> Array:
        """Not to be called, see `may_go_on_at_once`."""
        del obs, reward
        raise PenstockError("a served policy answers in batches, not at once")

    async def end(self, obs: Arrays, reward: float, info: object, *, terminated: bool) -> None:
        """See `SessionLane`."""
        del obs, reward, info, terminated
        self.cut_off()

    def cut_off(self) -> None:
        """See `SessionLane`."""
        self._endpoint.stop(self._key, _nothing)


class _Lanes:
    """The lanes of one policy: as many as it may have sessions. Implements `FreeLanes`."""

    flag = "--max_sessions"

    def __init__(self, endpoint: Endpoint, loop: asyncio.AbstractEventLoop) -> None:
        self.size = endpoint.limits.max_sessions
        self._endpoint = endpoint
        self._loop = loop
        self._free: list[int] = []
        self._made = 0

    def take(self) -> tuple[int, SessionLane] | None:
        if self._free:
            number = self._free.pop()
        elif self._made < self.size:
            number = self._made
            self._made += 1
        else:
            return None
        return number, ServedLane(self._endpoint, number, self._loop)

    def give_back(self, number: int, lane: SessionLane) -> None:
        del lane
        self._free.append(number)


class _Collected:
    """The rows of one session for ``--collect``; without it nothing is kept. Implements `Rows`."""

    def __init__(self, episode: OpenEpisode | None) -> None:
        self._episode = episode

    def add(self, fields: Arrays, action: Array, reward: float) -> Array:
        return action if self._episode is None else self._episode.add(copied(fields), action, reward)

    def end(self, fields: Arrays, reward: float, *, terminated: bool) -> None:
        if self._episode is not None:
            # An agent may say it by a numpy bool or by 1.
            self._episode.end(copied(fields), reward, bool(terminated))

    def vanish(self) -> None:
        if self._episode is not None:
            self._episode.vanish()

    give_up = vanish


class AgentSteps:
    """Answers the requests of a server with agents. Implements `penstock.serving.server.steps.Steps`.

    Args:
        loop: calls this object.
        endpoints: the policies.
        agents: of the policies that have one, by their names.
        idle_seconds: a session without a request for so long has vanished.
        recorders: keep the episodes of policies, by their names.
        others: answers for the policies without an agent.

    Raises:
        UsageError: an agent is not found, cannot be made, or sees or does other things than its policy.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoints: Endpoints,
        agents: Mapping[str, EnvRecipe],
        *,
        idle_seconds: float,
        recorders: Mapping[str, Recorder],
        others: PolicySteps,
    ) -> None:
        self._endpoints = endpoints
        self._others = others
        self._played = {
            name: _steps_of(loop, endpoints.find(name), agent, idle_seconds, recorders.get(name))
            for name, agent in agents.items()
        }
        self._all: tuple[PolicySteps | GameSteps, ...] = (others, *self._played.values())

    def stateless(self, policy: str, body: bytes, reply: StepReply) -> None:
        """See `Steps`."""
        self._of(policy).stateless(policy, body, reply)

    def start(self, key: SessionKey, policy: str, body: bytes, reply: StepReply) -> None:
        """See `Steps`. The name of a session is unique among all policies.

        A session of this name at another policy that has lost its connection ends: its client has crashed and is back.
        """
        steps = self._of(policy)
        for other in self._all:
            if other is steps or not other.has(key):
                continue
            if not other.has_parted(key):
                text = f"session {key[1]!r} has started already, with another policy; stop it first"
                raise Refusal(HTTPStatus.CONFLICT, text)
            other.drop(key)
        steps.start(key, policy, body, reply)

    def tick(self, key: SessionKey, body: bytes, reply: StepReply) -> None:
        """See `Steps`."""
        self._with(key).tick(key, body, reply)

    def stop(self, key: SessionKey, body: bytes, reply: StepReply) -> None:
        """See `Steps`."""
        self._with(key).stop(key, body, reply)

    def has(self, key: SessionKey) -> bool:
        """See `Steps`."""
        return any(steps.has(key) for steps in self._all)

    def parted(self, key: SessionKey) -> None:
        """See `Steps`."""
        self._with(key).parted(key)

    def sweep(self) -> None:
        """See `Steps`."""
        for steps in self._all:
            steps.sweep()

    async def close(self) -> None:
        """The server ends: open episodes end as if their clients had vanished."""
        for steps in self._played.values():
            await steps.close()

    def _of(self, policy: str) -> PolicySteps | GameSteps:
        return self._played.get(self._endpoints.find(policy).name, self._others)

    def _with(self, key: SessionKey) -> PolicySteps | GameSteps:
        """The object that answers this session. For an unknown session any of them will do: each refuses it."""
        return next((steps for steps in self._all if steps.has(key)), self._others)


def _steps_of(
    loop: asyncio.AbstractEventLoop,
    endpoint: Endpoint,
    agent: EnvRecipe,
    idle_seconds: float,
    recorder: Recorder | None,
) -> GameSteps:
    """What answers the clients of one policy."""
    name, make = agent_name(agent), agent_maker(agent)
    _check_spaces(endpoint, agent)

    def expired() -> None:
        endpoint.expired += 1

    def failed(error: BaseException, owed: StepReply | None) -> None:
        log.error("%s: agent %s has failed, and its episode has ended", endpoint.name, name, exc_info=error)
        if owed is not None:
            owed.refused(FAILED)

    return GameSteps(
        loop,
        spaces=endpoint.policy.spaces,
        make=make,
        lobby=_Lanes(endpoint, loop),
        keep=lambda session: _Collected(None if recorder is None else recorder.begin(session)),
        idle_seconds=idle_seconds,
        stopping=lambda: False,
        expired=expired,
        failed=failed,
        purpose=f"policy {endpoint.name} is served with its agent {name}",
    )


def _check_spaces(endpoint: Endpoint, agent: EnvRecipe) -> None:
    """Refuse an agent that sees or does other things than the policy. What a run ignores does not count."""
    wanted = endpoint.policy.spaces
    own, _ = game_spaces(agent, (), masks=wanted.mask is not None)
    seen = {name for name, _ in wanted.obs}
    own = replace(own, obs=tuple(part for part in own.obs if part[0] in seen))
    differs = difference(own, wanted)
    if differs:
        raise ConfigError(f"agent {agent_name(agent)} is not of policy {endpoint.name}: its spaces {differs}")


def _nothing() -> None:
    """A lane does not wait for the end of its session."""
