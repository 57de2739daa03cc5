"""One server of a policy, and the connection over which it is asked. Knows no other server."""

import contextlib
import json
import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from penstock.clients.agents import AgentsClient
from penstock.clients.blocking import GameClient
from penstock.clients.wire import EpisodeLostError, RefusedError
from penstock.errors import ConfigError, PenstockError
from penstock.serving.answer_times import AnswerTimes
from penstock.serving.bundle.difference import difference
from penstock.serving.description import QUESTION, Description

__all__ = ["Access", "RemoteServer", "unlike"]

_VERSION = 2
"""Of Gamecore over TCP. Version 1 does not say why it refuses."""
_OF_THE_REQUEST = frozenset({400, 413})
"""Statuses of refusals for which every server would have the same reason: the observation does not fit."""

_Answer = TypeVar("_Answer")


class Access(NamedTuple):
    """How servers are asked: the arguments of `penstock.connect_policy` besides their addresses."""

    policy: str
    token: str
    timeout: float
    patience: float
    ca_file: str | None


class RemoteServer:
    """A server, and a connection to it for requests of no session.

    Attributes:
        url: its address.
        times: how long it took to answer.
        is_told: the user was told that it fails, and it has not answered since.
    """

    def __init__(self, url: str, access: Access) -> None:
        """No connection is made yet.

        Raises:
            ConfigError: ``url`` is no address of a server, or an argument cannot be used.
        """
        self.url = url
        self.times = AnswerTimes()
        self.is_told = False
        self._access = access
        self._client = GameClient(
            url,
            "",
            policy=access.policy,
            token=access.token,
            timeout=access.timeout,
            patience=access.patience,
            version=_VERSION,
            ca_file=access.ca_file,
        )
        weakref.finalize(self, self._client.close)
        self._process = os.getpid()
        """The one that uses the connection."""
        self._is_known = False
        """Whether the connection is open, and the server has said over it what its policy is like."""

    def describe(self) -> Description:
        """What its policy is like, over a new connection."""
        self.close()
        told = self._client.send("", QUESTION)
        try:
            found = Description.from_json(json.loads(told))
        except (ValueError, KeyError, TypeError) as error:
            raise PenstockError(f"the server at {self.url} does not describe its policy: {error!r}") from None
        self._is_known = True
        return found

    def check(self, wanted: Description) -> None:
        """Check over a new connection that it serves this policy, of whatever version.

        Raises:
            ConfigError: it serves another one.
        """
        if why := unlike(self.describe(), wanted):
            self._is_known = False
            raise ConfigError(f"it serves another policy than when it was connected to: {why}")

    def ask(self, body: bytes, wanted: Description) -> bytes:
        """The reply to a request of no session. It changes nothing on the server, so it may be asked again.

        Args:
            body: of the request.
            wanted: the policy that must answer. It is checked once on each connection.
        """
        if self._process != os.getpid():
            # Forked. The parent goes on with this connection, and both would take each other's replies.
            self.close()
            self._process = os.getpid()
        was_known, began = self._is_known, time.monotonic()
        try:
            return self._exchanged(body, wanted)
        except EpisodeLostError:
            # A connection that was kept says little about its server, which closes silent ones for new clients.
            if not was_known or time.monotonic() - began >= self._access.timeout:
                raise
        return self._exchanged(body, wanted)

    def tried(self, ask: Callable[["RemoteServer"], _Answer]) -> _Answer:
        """The result of ``ask`` for this server. A failure is noted in `times`, and its error names the server."""
        began = time.monotonic()
        try:
            with self._named():
                return ask(self)
        except PenstockError as error:
            if self.is_at_fault(error):
                now = time.monotonic()
                self.times.failed(now - began, now)
            raise

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Take the time of an answer."""
        began = time.monotonic()
        yield
        now = time.monotonic()
        self.times.answered(now - began, now)

    def is_at_fault(self, error: PenstockError) -> bool:
        """Whether another server may answer what has failed here."""
        return not (self._is_known and isinstance(error, RefusedError) and error.status in _OF_THE_REQUEST)

    def agents(self, game: str, names: Sequence[str]) -> AgentsClient:
        """A connection for the sessions of these agents. It tries once to begin an episode."""
        return AgentsClient(
            self.url,
            game,
            names,
            policy=self._access.policy,
            token=self._access.token,
            timeout=self._access.timeout,
            patience=0.0,
            ca_file=self._access.ca_file,
        )

    def close(self) -> None:
        """Close the connection."""
        self._is_known = False
        self._client.close()

    def _exchanged(self, body: bytes, wanted: Description) -> bytes:
        if not self._is_known:
            self.check(wanted)
        try:
            with self.timed():
                return self._client.send("", body)
        except RefusedError:
            raise
        except BaseException:
            # The client has closed the connection.
            self._is_known = False
            raise

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Let errors of its connections name the server."""
        try:
            yield
        except RefusedError as error:
            raise RefusedError(error.status, f"the server at {self.url} refuses: {error}") from None
        except EpisodeLostError as error:
            raise EpisodeLostError(f"the server at {self.url} does not answer: {error}") from None
        except ConfigError as error:
            raise ConfigError(f"the server at {self.url} cannot be used: {error}") from None


def unlike(found: Description, wanted: Description) -> str:
    """Why a client cannot ask one policy as it asks the other; empty: it can."""
    if spaces := difference(found.spaces, wanted.spaces):
        return f"its spaces {spaces}"
    if found.carry != wanted.carry:
        return f"of a lane it remembers {_memory(found)}, not {_memory(wanted)}"
    if found.max_rows < wanted.max_rows or found.max_body < wanted.max_body:
        return f"it takes {_limits(found)} of a request, not {_limits(wanted)}"
    return ""


def _memory(told: Description) -> str:
    return ", ".join(f"{spec.name} {spec.dtype}{[*spec.shape]}" for spec in told.carry) or "nothing"


def _limits(told: Description) -> str:
    return f"{told.max_rows:,} rows and {told.max_body:,} bytes"
