"""The access log: one JSON object a line for each request."""

import contextlib
import sys
import time
from typing import TextIO

import orjson

from penstock.errors import ConfigError
from penstock.paths import expanded

__all__ = ["AccessLog"]


class AccessLog:
    """Writes lines to a file, or to standard output for ``-``.

    Lines are kept for up to a second (`flush`), because a write for each request would cost more than its answer.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(self, path: str) -> None:
        self._lines: list[str] = []
        try:
            self._file: TextIO = sys.stdout if path == "-" else expanded(path).open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--access_log {path} cannot be written: {error.strerror or error}") from error

    def add(self, *, protocol: str, peer: str, what: str, status: int, seconds: float, size: int) -> None:
        """Note a request.

        Args:
            protocol: as in the metrics.
            peer: address of the client.
            what: the request in a few words: ``POST /step``, ``tick``.
            status: of HTTP.
            seconds: from the whole request to its reply.
            size: bytes of the reply's body.
        """
        line = {
            "time": round(time.time(), 6),
            "protocol": protocol,
            "peer": peer,
            "request": what,
            "status": status,
            "seconds": round(seconds, 6),
            "bytes": size,
        }
        self._lines.append(orjson.dumps(line).decode())

    def flush(self) -> None:
        """Write what was noted. What cannot be written is lost: a full disk must not end the service."""
        if self._lines:
            text = "\n".join(self._lines) + "\n"
            self._lines.clear()
            with contextlib.suppress(OSError, ValueError):
                self._file.write(text)
                self._file.flush()

    def close(self) -> None:
        """Write the rest and close the file. What cannot be written is lost, as in `flush`."""
        self.flush()
        if self._file is not sys.stdout:
            # To close a file writes what an earlier try has left in its buffer.
            with contextlib.suppress(OSError):
                self._file.close()
