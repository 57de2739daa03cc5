"""Endpoint: one policy under one name, in one version or two. Protocols call it; it decides which version answers."""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from penstock.errors import BadDataError, UsageError
from penstock.serving.server.admission.limits import Limits
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.endpoints.share import Share
from penstock.serving.server.endpoints.version import Version
from penstock.serving.server.engines.batcher import Asker
from penstock.serving.server.policy.answering import ServedPolicy
from penstock.serving.server.sessions import MOST_WAITING, ClientSession, SessionKey, Sessions
from penstock.types import Arrays

__all__ = ["Endpoint"]

log = logging.getLogger("penstock.serve")

_NO_CANARY = Share(0.0)


class Endpoint:
    """A served policy.

    At most two versions are loaded: the stable one, and beside it a canary or one that is retired.

    - `switch`: a new version answers everything. Sessions go over to it with their memory.
    - `begin_canary`: a new version answers a share. Each session stays with its version until it ends.
    - `promote`: the canary becomes the stable version. `roll_back`: the stable version answers for it.

    Args:
        name: clients ask for it by this name.
        policy: gives spaces, and checks observations.
        limits: see `Limits`.
        loop: calls this object. All methods are called in its thread.

    Attributes:
        policy: as given; later that of the stable version.
        limits: as given.
        stable: answers what no canary answers. Set by `begin`.
        canary: answers a share; ``None``: there is none.
        versions: all that are loaded, by their numbers as clients write them.
        expired: how many sessions ended because they were idle.
        refused: how many newer versions were not taken.
        rollbacks: how many canaries were rolled back.
        on_end: is told the key of each session that has ended.
        agent: name of the agent through which clients play; ``None``: they ask the policy itself.
    """

    stable: Version

    def __init__(self, name: str, policy: ServedPolicy, limits: Limits, *, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self.policy = policy
        self.limits = limits
        self.canary: Version | None = None
        self.versions: dict[str, Version] = {}
        self.expired = 0
        self.refused = 0
        self.rollbacks = 0
        self.on_end: Callable[[SessionKey], object] | None = None
        self.agent: str | None = None
        self.sessions = Sessions(policy.session(1).carry, limits.max_sessions, limits.idle_seconds, self._parted)
        self.has_memory = self.sessions.has_memory
        self._loop = loop
        self._form = _form_of(policy)
        self._of_sessions = self._of_others = _NO_CANARY
        self._past_restarts = 0
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        """Nothing waits, and nothing is being answered."""
        return all(version.is_idle for version in self.versions.values())

    @property
    def is_ready(self) -> bool:
        """Whether the stable version is able to answer."""
        return self.stable.engine.is_ready()

    @property
    def restarts(self) -> int:
        """How often a worker was started again."""
        return self._past_restarts + sum(version.engine.restarts for version in self.versions.values())

    def share_of(self, version: Version) -> float:
        """The share of new sessions that a loaded version answers."""
        share = self._of_sessions.share
        if version is self.canary:
            return share
        return 1.0 - share if version is self.stable else 0.0

    # What protocols call.

    def check(self, obs: Any, action_mask: Any = None) -> tuple[Arrays, bool]:  # noqa: ANN401 - a client's
        """Checked observation fields ``[n, ...]``, and whether they are a batch.

        Raises:
            Refusal: the observation does not fit (400).
        """
        try:
            fields, batched = self.policy.fields(obs, action_mask)
        except BadDataError as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, str(error)) from None
        if batched and not len(next(iter(fields.values()))):
            raise Refusal(HTTPStatus.BAD_REQUEST, "the request holds no rows")
        return fields, batched

    def check_version(self, number: str) -> None:
        """Check that a version is loaded. Empty stands for any.

        Raises:
            Refusal: it is not (404).
        """
        if number and number not in self.versions:
            raise self._unknown(number)

    def ask(self, fields: Arrays, asker: Asker, number: str = "") -> None:
        """Answer rows that belong to no session.

        Args:
            fields: checked observation fields ``[n, ...]``.
            asker: gets the answer.
            number: the version that answers; empty: the stable one, or the canary.

        Raises:
            Refusal: the policy has a memory (400); the queue is full (503); there are too many rows (400); there is no
                such version (404).
        """
        if self.has_memory:
            how = "answers in sessions only (Open Inference: sequence_id, and sequence_start in its first request)"
            raise Refusal(HTTPStatus.BAD_REQUEST, f"policy {self.name} has a memory: it {how}")
        version = self._chosen(number, self._of_others)
        version.ask(fields, len(next(iter(fields.values()))), asker)

    def start(self, key: SessionKey, number: str = "") -> None:
        """Begin a session, which stays with one version as long as that answers.

        Args:
            key: of the session.
            number: the version; empty: the stable one, or the canary.

        Raises:
            Refusal: there is no such version (404); see also `Sessions.start`.
        """
        version = self._chosen(number, self._of_sessions)
        self.sessions.start(key, version, self._loop.time())
        version.sessions += 1

    def tick(self, key: SessionKey, fields: Arrays, asker: Asker, number: str = "") -> None:
        """Answer the next row of a session, after those that it asked before.

        Args:
            key: of the session.
            fields: checked observation fields ``[1, ...]``.
            asker: gets the answer.
            number: the version with which the session began; empty: not said.

        Raises:
            Refusal: there is no such session (404), it has asked for too much at once (429), it is at another version
                (400); see also `ask`.
        """
        session = self.sessions.find(key, self._loop.time())
        if len(next(iter(fields.values()))) != 1:
            raise Refusal(HTTPStatus.BAD_REQUEST, "a session asks for one row at a time")
        if number and number != str(session.version.number):
            text = f"this session is answered by version {session.version.number}, not by {number[:40]!r}"
            raise Refusal(HTTPStatus.BAD_REQUEST, text)
        if not session.asking:
            session.version.tick(session, fields, asker)
        elif len(session.waiting) < MOST_WAITING:
            session.waiting.append(lambda: _tick_late(session, fields, asker))
        else:
            raise Refusal(
                HTTPStatus.TOO_MANY_REQUESTS, f"{len(session.waiting)} requests of this session wait already", 1
            )

    def stop(self, key: SessionKey, done: Callable[[], None]) -> None:
        """End a session, and call ``done`` once all that it asked before is answered.

        Raises:
            Refusal: there is no such session (404).
        """
        session = self.sessions.find(key, self._loop.time())
        if session.asking:
            session.waiting.append(done)
            self.sessions.end(session)
        else:
            self.sessions.end(session)
            done()

    # Versions.

    def made(self, number: int, policy: ServedPolicy) -> Version:
        """A version that answers nobody yet. It needs its engine before it may.

        Raises:
            UsageError: its policy sees, does or remembers other things than this endpoint's.
        """
        if _form_of(policy) != self._form:
            raise UsageError(f"version {number} has other spaces or another memory than policy {self.name}")
        return Version(number, policy, self.sessions, self.limits, loop=self._loop, failed=self._version_failed)

    def begin(self, version: Version) -> None:
        """The first version answers everything."""
        self.versions[str(version.number)] = self.stable = version

    def switch(self, version: Version) -> None:
        """A newer version answers everything from now on. Sessions keep their memory, and no question is lost."""
        before = self.stable
        self.begin(version)
        self.policy = version.policy
        before.retire(version)
        for session in self.sessions:
            version.adopt(session)
        log.warning("%s: version %d answers in place of version %d", self.name, version.number, before.number)

    def begin_canary(self, version: Version, share: float) -> None:
        """A newer version answers a share of new sessions, and of requests that belong to none.

        Args:
            version: the newer one.
            share: more than 0, at most 1.
        """
        version.is_on_trial = True
        self.canary = self.versions[str(version.number)] = version
        # Two counts: otherwise sessions and other requests that take turns would get nothing but one version each.
        self._of_sessions, self._of_others = Share(share), Share(share)
        log.warning("%s: version %d answers %g of new sessions", self.name, version.number, share)

    def promote(self) -> None:
        """The canary becomes the stable version. Sessions of the version before stay there until they end.

        Raises:
            Refusal: there is no canary (409).
        """
        canary = self._end_canary()
        before = self.stable
        canary.is_on_trial = False
        self.stable, self.policy = canary, canary.policy
        before.retire(canary)
        log.warning("%s: version %d answers all new sessions", self.name, canary.number)

    def roll_back(self, why: str) -> None:
        """The stable version answers for the canary. Its sessions go over with their memory, and no question is lost.

        Raises:
            Refusal: there is no canary (409).
        """
        canary = self._end_canary()
        canary.retire(self.stable)
        for session in self.sessions:
            if session.version is canary:
                self.stable.adopt(session)
        canary.give_up()
        self.rollbacks += 1
        log.warning(
            "%s: version %d was rolled back, and version %d goes on: %s",
            *(self.name, canary.number, self.stable.number, why),
        )

    # What the server calls.

    def sweep(self) -> None:
        """Look after what is idle, hangs or is over. Called several times a second."""
        now = self._loop.time()
        self.expired += self.sessions.expire(now)
        for version in list(self.versions.values()):
            version.sweep(now)
            if version.is_retired and version.is_idle and not version.sessions:
                self._let_go(version)

    async def close(self) -> None:
        """End all engines."""
        await asyncio.gather(*(version.engine.close() for version in self.versions.values()), *self._closing)

    def _chosen(self, number: str, share: Share) -> Version:
        if number:
            version = self.versions.get(number)
            if version is None or version.is_retired:
                raise self._unknown(number)
            return version
        canary = self.canary
        return self.stable if canary is None or not share.takes() else canary

    def _unknown(self, number: str) -> Refusal:
        there = " and ".join(name for name, version in self.versions.items() if not version.is_retired)
        text = f"model {self.name!r} has no version {number[:40]!r}; it is at version {there}"
        return Refusal(HTTPStatus.NOT_FOUND, text)

    def _end_canary(self) -> Version:
        canary, self.canary = self.canary, None
        if canary is None:
            text = f"policy {self.name} has no canary; version {self.stable.number} answers everything"
            raise Refusal(HTTPStatus.CONFLICT, text)
        self._of_sessions = self._of_others = _NO_CANARY
        return canary

    def _version_failed(self, version: Version, why: str) -> None:
        if version is self.canary:
            self.roll_back(why)

    def _let_go(self, version: Version) -> None:
        """A retired version has nothing to do any more."""
        del self.versions[str(version.number)]
        self._past_restarts += version.engine.restarts
        task = self._loop.create_task(version.engine.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _parted(self, session: ClientSession) -> None:
        session.version.parted()
        if self.on_end is not None:
            self.on_end(session.key)


def _tick_late(session: ClientSession, fields: Arrays, asker: Asker) -> None:
    try:
        session.version.tick(session, fields, asker)
    except Refusal as refusal:
        asker.refused(refusal)


def _form_of(policy: ServedPolicy) -> object:
    """What all versions of a policy have in common."""
    return repr(policy.spaces), [(name, row.shape, str(row.dtype)) for name, row in policy.session(1).carry.items()]
