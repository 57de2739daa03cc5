"""The frames of version 2 of Gamecore over TCP: greeting, welcome, requests and replies. Opens no socket.

docs/gamecore-tcp.md describes them. All integers are unsigned and big-endian.
"""

from enum import IntEnum
from struct import Struct

__all__ = [
    "BASE_MISSING",
    "GREETING",
    "KINDS",
    "MAGIC",
    "MAX_KEY",
    "MAX_SESSION",
    "REPLY",
    "REQUEST",
    "VERSION",
    "WELCOME",
    "Encoding",
]

MAGIC = b"\xffGAMCORE"
"""First word of a greeting and of a welcome. As the first size of version 1 it would be negative."""
VERSION = 2
"""The newest version that is spoken here."""
GREETING = Struct("!8sHHI")
"""`MAGIC`, the newest version that the client speaks, bytes of the key, bytes of the token. Key and token follow."""
WELCOME = Struct("!8sHHI")
"""`MAGIC`, the version that both sides speak from now on, the status, bytes of the text. The text follows."""
REQUEST = Struct("!QQQIBBH")
"""Request id, id of the base, bytes of body and session, step kind, encoding, 0. Session and body follow."""
REPLY = Struct("!QQHHI")
"""Request id, bytes of the body, status, seconds after which another try may succeed, 0. The body follows."""
KINDS = (b"", b"start", b"tick", b"stop")
"""Step kinds by their numbers. 0 is a stateless request."""
BASE_MISSING = 412
"""Status of a delta whose base the server does not have. The client sends the same request again as a key frame."""
MAX_SESSION = 256
"""Bytes of a session's name."""
MAX_KEY = 4096
"""Bytes of a key, and of a token."""


class Encoding(IntEnum):
    """How a frame holds the body of a request. Only ticks have another encoding than `PLAIN`."""

    PLAIN = 0
    """As it is."""
    KEY = 1
    """As it is, and the session's next delta may refer to it."""
    DELTA = 2
    """As a delta, see `penstock.gamecore.delta`. The session's next delta may refer to the whole body."""
