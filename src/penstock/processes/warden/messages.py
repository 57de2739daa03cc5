"""Messages between the launcher, the warden and its templates: each is a tuple of plain values."""

import marshal

TYPE_CHECKING = False
if TYPE_CHECKING:  # which takes longer to import than all the rest
    from typing import Any

__all__ = ["PID_BYTES", "START_FDS", "as_message", "take_message"]

HEAD_BYTES = 4
"""Bytes of a length, least first. A message is a length and a body: a tuple as ``marshal`` writes it."""
PID_BYTES = 8
"""Bytes of a process id, least first, with which a template answers. The first answer is 0: it is ready."""
START_FDS = 16
"""Most descriptors that are passed to a process."""


def as_message(content: "tuple[Any, ...]") -> bytes:
    """The bytes of a message, for ``take_message``."""
    body = marshal.dumps(content)
    return len(body).to_bytes(HEAD_BYTES, "little") + body


def take_message(received: bytes) -> "tuple[tuple[Any, ...], bytes] | None":
    """The first message and the bytes behind it; ``None`` while it is incomplete."""
    if len(received) < HEAD_BYTES:
        return None
    end = HEAD_BYTES + int.from_bytes(received[:HEAD_BYTES], "little")
    return (marshal.loads(received[HEAD_BYTES:end]), received[end:]) if end <= len(received) else None
