"""The warden's end of the launcher's socket: messages, and the descriptors that come with them."""

import os
from _socket import CMSG_SPACE, MSG_CTRUNC, SCM_RIGHTS, SOL_SOCKET, socket

from .messages import START_FDS, as_message, take_message

TYPE_CHECKING = False
if TYPE_CHECKING:  # which takes longer to import than all the rest
    from typing import Any

__all__ = ["Line"]


class Line:
    """Reads what the launcher asks for, and answers."""

    def __init__(self, control: socket) -> None:
        self._control = control
        self._received = b""
        self._given: list[list[int]] = []
        """The descriptors of each start that is asked for and not begun yet."""

    def fileno(self) -> int:
        """Descriptor of the socket, to poll."""
        return self._control.fileno()

    def read(self) -> "list[tuple[Any, ...]] | None":
        """The messages that have come; ``None`` when the socket is closed.

        Raises:
            OSError: the launcher died in the middle of a message.
        """
        # One call returns the descriptors of one message.
        content, ancillary, flags, _ = self._control.recvmsg(65_536, CMSG_SPACE(START_FDS * 4))
        given: list[int] = []
        for level, kind, data in ancillary:
            if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
                given += memoryview(data).cast("i").tolist()
        for descriptor in given:
            os.set_inheritable(descriptor, False)
        if given or flags & MSG_CTRUNC:
            self._given.append(given)
        self._received += content
        messages = []
        while (taken := take_message(self._received)) is not None:
            message, self._received = taken
            messages.append(message)
        return messages if content else None

    def take_given(self) -> list[int]:
        """The descriptors that came with the first start not begun yet."""
        return self._given.pop(0)

    def say(self, *message: str | int) -> None:
        """Tell the launcher."""
        self._control.sendall(as_message(message))
