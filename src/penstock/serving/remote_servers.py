"""Servers of one policy: which of them answers a call, and who answers it if that one fails. Opens no connection."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import SystemRandom
from typing import TypeVar

from penstock.clients.session import may_pass, pause_after
from penstock.clients.wire import EpisodeLostError, RefusedError
from penstock.errors import ConfigError, PenstockError
from penstock.serving.description import Description
from penstock.serving.remote_server import Access, RemoteServer, unlike

__all__ = ["RemoteServers"]

log = logging.getLogger("penstock.serving")

_RANDOM = SystemRandom()
"""Has no state that forked processes would share, and none that a seed of the user's belongs to."""

_Answer = TypeVar("_Answer")


class RemoteServers:
    """The servers of one policy, one or more.

    Attributes:
        each: all of them.
        urls: their addresses, for a sentence.
    """

    def __init__(self, urls: Sequence[str], access: Access) -> None:
        """No connection is made yet.

        Raises:
            ConfigError: there is no address, one stands twice or is none of a server, or an argument cannot be used.
        """
        if not urls:
            raise ConfigError("the list has no address; write those of the servers, such as tcp://localhost:8001")
        for number, url in enumerate(urls):
            if url in urls[:number]:
                raise ConfigError(f"{url} stands twice among the addresses; write each server once")
        self.each = [RemoteServer(url, access) for url in urls]
        self.urls = ", ".join(urls)
        self._access = access

    def __reduce__(self) -> tuple[type["RemoteServers"], tuple[list[str], Access]]:
        """Neither connections nor what was seen of the servers travels."""
        return RemoteServers, ([server.url for server in self.each], self._access)

    def connect(self) -> Description:
        """Ask each server what its policy is like. One that cannot be reached is asked again when a call is due.

        Returns:
            The policy, with the limits that all servers keep to.

        Raises:
            ConfigError: two servers have policies of different spaces or memory, or a certificate is not trusted.
            EpisodeLostError, RefusedError: no server can be reached, or one of them will never answer.
        """
        until, tries = time.monotonic() + self._access.patience, 0
        while True:
            found: list[tuple[RemoteServer, Description]] = []
            failed: list[tuple[RemoteServer, PenstockError]] = []
            for server in self.each:
                try:
                    found.append((server, server.tried(RemoteServer.describe)))
                except (RefusedError, EpisodeLostError) as error:
                    if not may_pass(error):
                        raise
                    failed.append((server, error))
            if found:
                self._tell(failed)
                return _agreed(found)
            _pause(failed, tries, is_late=time.monotonic() > until)
            tries += 1

    def answered(self, ask: Callable[[RemoteServer], _Answer], at: RemoteServer | None = None) -> _Answer:
        """The result of ``ask``: from the server that is expected to answer soonest; if that fails, from another one.

        Each server is tried once, then all again after a pause, until ``patience`` is over.

        Args:
            ask: asks a server. It may be called again, so a try that fails in the middle must do no harm.
            at: the only server that may be asked; ``None``: any.

        Raises:
            RefusedError: the request does not fit, or no server answers and at least one refuses.
            EpisodeLostError: no server can be reached.
            ConfigError: no server serves the policy any more.
        """
        until, tries = time.monotonic() + self._access.patience, 0
        while True:
            failed: list[tuple[RemoteServer, PenstockError]] = []
            for server in self._in_order() if at is None else [at]:
                try:
                    found = server.tried(ask)
                except PenstockError as error:
                    if not server.is_at_fault(error):
                        raise
                    failed.append((server, error))
                else:
                    self._tell(failed)
                    if server.is_told:
                        server.is_told = False
                        log.info("the server at %s answers again", server.url)
                    return found
            _pause(failed, tries, is_late=time.monotonic() > until)
            tries += 1

    def close(self) -> None:
        """Close the connections."""
        for server in self.each:
            server.close()

    def _in_order(self) -> list[RemoteServer]:
        now = time.monotonic()
        # Shuffled, so that not all clients begin with the same server.
        return sorted(_RANDOM.sample(self.each, len(self.each)), key=lambda server: server.times.place(now))

    def _tell(self, failed: Sequence[tuple[RemoteServer, PenstockError]]) -> None:
        """Tell the user once of each server whose calls go to others. One that is full for a moment is no news."""
        for server, error in failed:
            is_full = isinstance(error, RefusedError) and error.may_retry
            if not (is_full or server.is_told):
                server.is_told = True
                log.warning("%s; the other servers answer its calls, and it is tried again after growing pauses", error)


def _pause(failed: Sequence[tuple[RemoteServer, PenstockError]], tries: int, *, is_late: bool) -> None:
    """Wait before all servers are tried again.

    Raises:
        PenstockError: it is too late, or another try would fail as well. The text names each server.
    """
    errors = [error for _, error in failed]
    passing = [error for error in errors if isinstance(error, RefusedError | EpisodeLostError) and may_pass(error)]
    # What may pass decides about another try, and about the kind of the error in the end.
    first = next(iter(passing), errors[0])
    text = "; ".join(map(str, errors))
    error = RefusedError(first.status, text) if isinstance(first, RefusedError) else type(first)(text)
    if not isinstance(error, RefusedError | EpisodeLostError):
        raise error
    time.sleep(pause_after(error, tries, is_late=is_late))


def _agreed(found: Sequence[tuple[RemoteServer, Description]]) -> Description:
    """The policy of these servers, with the limits that all of them keep to.

    Raises:
        ConfigError: they serve policies that a client could not ask in the same way.
    """
    first, told = found[0]
    rows, body = min(one.max_rows for _, one in found), min(one.max_body for _, one in found)
    told = replace(told, max_rows=rows, max_body=body)
    for server, other in found[1:]:
        if why := unlike(other, told):
            raise ConfigError(f"the server at {server.url} serves another policy than that at {first.url}: {why}")
    return told
