"""Messages between the launcher, the warden and its templates: each is a tuple of plain values."""

import marshal

TYPE_CHECKING = False
if TYPE_CHECKING:  # which takes longer to import than all the rest
    from typing import Any

__all__ = ["PID_BYTES", "START_FDS", "as_message", "take_message"]

HEAD_BYTES = 4
"""A message is the length of its body in so many bytes, least first, and its body: a tuple as ``marshal`` writes it."""
PID_BYTES = 8
"""A template answers with a process id in so many bytes, least first. The first answer is 0: it is ready."""
START_FDS = 16
"""At most so many descriptors are passed to a process."""


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
