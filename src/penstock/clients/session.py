"""What clients know of their server and their sessions, and when a failed start is tried again. Sends nothing."""

import math
import ssl
from dataclasses import dataclass
from numbers import Real

from penstock.clients.wire import Address, EpisodeLostError, RefusedError, checked_version
from penstock.errors import ConfigError

__all__ = [
    "PATIENCE_S",
    "TIMEOUT_S",
    "GameSession",
    "Reach",
    "check_name",
    "may_pass",
    "pause_after",
    "trust",
    "untrusted",
]

TIMEOUT_S = 60.0
"""Longest time for one reply, if the caller gives no other."""
PATIENCE_S = 60.0
"""How long a client tries to reach its server, if the caller gives no other time."""
_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Between tries to begin an episode."""
_DELETE = 0x7F


@dataclass(frozen=True)
class Reach:
    """How a client reaches its server."""

    address: Address
    policy: str
    token: str
    timeout: float
    patience: float
    tls: ssl.SSLContext | None
    """How to verify the server; ``None`` without TLS."""

    @classmethod
    def read(
        cls, url: str, ca_file: str | None, *, policy: str, token: str, timeout: float, patience: float
    ) -> "Reach":
        """From the arguments of a client, see `GameSession`.

        Raises:
            ConfigError: ``url`` is no address of a server, the file or a number of seconds cannot be used, or a name
                holds a control character.
        """
        check_name(policy, "policy")
        check_name(token, "token")
        address = Address.read(url)
        if not _is_number(timeout) or not 0.0 < timeout < math.inf:
            raise ConfigError(f"timeout is {timeout!r}; give a number of seconds above 0")
        if not _is_number(patience) or not patience >= 0.0:
            raise ConfigError(f"patience is {patience!r}; give a number of seconds, or 0 to try once")
        return cls(address, policy, token, timeout, patience, trust(address, ca_file))


def _is_number(value: object) -> bool:
    """Whether this is a number, NumPy's included. To a type checker ``float`` is none of `Real`."""
    return isinstance(value, Real)


def check_name(name: str, what: str) -> None:
    """Refuse a name that would begin a new line of a request.

    Raises:
        ConfigError: it holds a control character.
    """
    if any(ord(sign) < ord(" ") or ord(sign) == _DELETE for sign in name):
        raise ConfigError(f"{what} {name!r} holds a control character")


class GameSession:
    """One agent of a game, without its connection."""

    def __init__(
        self,
        url: str,
        session: str,
        *,
        policy: str = "",
        token: str = "",
        timeout: float = TIMEOUT_S,
        patience: float = PATIENCE_S,
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
            ca_file: with TLS: certificates in PEM; one of them must have signed the server's. ``None``: those that
                this machine trusts.
        """
        self._reach = Reach.read(url, ca_file, policy=policy, token=token, timeout=timeout, patience=patience)
        check_name(session, "session")
        self._session = session
        self._version = checked_version(self._reach.address, version, delta=delta)
        self._delta = delta
        self._is_open = False

    def _pause_after(self, error: RefusedError | EpisodeLostError, tries: int, *, is_late: bool) -> float:
        """Seconds until `start` is tried again. Arguments and errors are those of `pause_after`."""
        # If the start was refused because the server still has the episode before: `start` stops that one first.
        self._is_open = isinstance(error, RefusedError) and error.has_begun
        return pause_after(error, tries, is_late=is_late)


def pause_after(error: RefusedError | EpisodeLostError, tries: int, *, is_late: bool) -> float:
    """Seconds until the next try to begin an episode.

    Args:
        error: of the last try.
        tries: how many failed before it.
        is_late: there is no time for another.

    Raises:
        RefusedError, EpisodeLostError: ``error`` itself, because it is too late or another try would fail as well.
    """
    if is_late or not may_pass(error):
        raise error
    has_begun = isinstance(error, RefusedError) and error.has_begun
    return 0.0 if has_begun else _PAUSES_S[min(tries, len(_PAUSES_S) - 1)]


def may_pass(error: RefusedError | EpisodeLostError) -> bool:
    """Whether another try to begin an episode may succeed."""
    return not isinstance(error, RefusedError) or error.may_retry or error.has_begun


def untrusted(error: ssl.SSLCertVerificationError) -> ConfigError:
    """The error for a server whose certificate does not verify. Another try would find the same one."""
    why = error.verify_message or str(error)
    is_other = "mismatch" in why
    advice = "connect by a name that it holds" if is_other else "give ca_file, a file that has its signer"
    return ConfigError(f"the server's certificate is not trusted: {why.removesuffix('.')}; {advice}")


def trust(address: Address, ca_file: str | None) -> ssl.SSLContext | None:
    """How to verify the server; ``None`` without TLS.

    Raises:
        ConfigError: the file cannot be used, or it is given for an address without TLS.
    """
    if not address.is_secure:
        if ca_file is not None:
            raise ConfigError(f"ca_file is for TLS; write {address.scheme}s:// instead of {address.scheme}://")
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(f"ca_file {ca_file} cannot be used: {error.strerror or error}") from None
