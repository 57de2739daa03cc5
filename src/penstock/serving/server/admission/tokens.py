"""Tokens: who may ask. Comparing takes the same time whether a token is nearly right or not at all."""

import hmac
from collections.abc import Mapping

from penstock.errors import ConfigError
from penstock.paths import expanded

__all__ = ["Tokens"]


class Tokens:
    """The tokens that are accepted. Without any, everybody is.

    Args:
        accepted: the tokens.
        origin: where they come from, for error texts.
    """

    def __init__(self, accepted: tuple[bytes, ...] = (), origin: str = "") -> None:
        self._accepted = accepted
        self._origin = origin

    @classmethod
    def read(cls, path: str | None, flag: str) -> "Tokens":
        """The lines of a file, without empty ones; ``None``: everybody is accepted.

        Args:
            path: of the file.
            flag: that gave it, for error texts.

        Raises:
            ConfigError: the file cannot be read, or holds no token.
        """
        if path is None:
            return cls()
        try:
            lines = expanded(path).read_bytes().split(b"\n")
        except OSError as error:
            raise ConfigError(f"{flag} {path} cannot be read: {error.strerror or error}") from error
        tokens = tuple(line.strip() for line in lines if line.strip())
        if not tokens:
            raise ConfigError(f"{flag} {path} holds no token; write one on a line of its own")
        return cls(tokens, f"{flag} {path}")

    @property
    def first(self) -> str:
        """One token that is accepted; empty if none is needed.

        Raises:
            ConfigError: it is not in UTF-8.
        """
        try:
            return self._accepted[0].decode() if self._accepted else ""
        except UnicodeDecodeError:
            raise ConfigError(f"{self._origin} is no text in UTF-8; save it as UTF-8") from None

    def accept(self, token: bytes) -> bool:
        """Whether a request with this token may be answered."""
        if not self._accepted:
            return True
        # Every token is compared, so that the time does not tell which one came close.
        found = [hmac.compare_digest(token, one) for one in self._accepted]
        return any(found)

    def accept_headers(self, headers: Mapping[bytes, bytes]) -> bool:
        """As `accept`, for the headers ``token: TOKEN`` or ``authorization: Bearer TOKEN``, in small letters."""
        if not self._accepted:
            return True
        token = headers.get(b"token")
        if token:
            return self.accept(token)
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        return self.accept(token.strip() if scheme.lower() == b"bearer" else b"")
