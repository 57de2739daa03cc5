"""What both clients know of their session, and when a failed start is tried again. Sends nothing."""

import ssl

from penstock.clients.wire import Address, EpisodeLostError, RefusedError, checked_version
from penstock.errors import ConfigError

__all__ = ["GameSession", "untrusted"]

_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Between tries to begin an episode."""


class GameSession:
    """One agent of a game, without its connection."""

    def __init__(
        self,
        url: str,
        session: str,
        *,
        policy: str = "",
        token: str = "",
        timeout: float = 60.0,
        patience: float = 60.0,
        version: int | None = None,
        delta: bool = False,
        ca_file: str | None = None,
    ) -> None:
        """No connection is made yet.

        Args:
            url: ``tcp://localhost:8001`` or ``http://localhost:8000``; for a server with TLS, ``tcps://`` or ``https://``.
            session: name of the session: ``<game>-agent-<agent>``, or any other. Two clients need two names.
            policy: name of the policy, of a server that has several; left out: its first one.
            token: for a server that wants one.
            timeout: longest time for one reply, in seconds.
            patience: how long `start` tries, in seconds.
            version: of Gamecore over TCP. ``None``: 2 if the server speaks it, else 1.
            delta: send of each tick only what changed since the one before. For large bodies; needs version 2.
            ca_file: with TLS: certificates in PEM that the server's is to be signed by. ``None``: those that this
                machine trusts.
        """
        self._address = Address.read(url)
        self._session = session
        self._token = token
        self._policy = policy
        self._timeout = timeout
        self._patience = patience
        self._version = checked_version(self._address, version, delta=delta)
        self._delta = delta
        self._tls = _tls(self._address, ca_file)
        self._is_open = False

    def _pause_after(self, error: RefusedError | EpisodeLostError, tries: int, *, is_late: bool) -> float:
        """Seconds until `start` is tried again.

        Args:
            error: of the last try.
            tries: how many failed before it.
            is_late: there is no time for another.

        Raises:
            RefusedError, EpisodeLostError: the given one: it is too late, or another try would fail as well.
        """
        if isinstance(error, RefusedError):
            # The episode before was lost with its connection, and the server still has it.
            self._is_open = error.status == 409
            if not (error.may_retry or error.status in {404, 409}):
                raise error
        if is_late:
            raise error
        return 0.0 if self._is_open else _PAUSES_S[min(tries, len(_PAUSES_S) - 1)]


def untrusted(error: ssl.SSLCertVerificationError) -> ConfigError:
    """The error for a server whose certificate does not verify. Another try would find the same one."""
    why = error.verify_message or str(error)
    return ConfigError(f"the server's certificate is not trusted: {why}; give ca_file, a file that has its signer")


def _tls(address: Address, ca_file: str | None) -> ssl.SSLContext | None:
    """How to verify the server; ``None`` without TLS.

    Raises:
        ConfigError: the file cannot be used, or nothing reads it.
    """
    if not address.is_secure:
        if ca_file is not None:
            raise ConfigError(f"ca_file is for TLS; write {address.scheme}s:// instead of {address.scheme}://")
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(f"ca_file {ca_file} cannot be used: {error.strerror or error}") from None
