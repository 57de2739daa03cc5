"""GameClient: asks for actions and waits for them."""

import contextlib
import socket
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple

from penstock.clients.dialling import dialled, received, welcomed
from penstock.clients.frames import FrameWire
from penstock.clients.session import GameSession
from penstock.clients.wire import (
    NO_SECOND_VERSION,
    BaseMissingError,
    EpisodeLostError,
    RefusedError,
    Wire,
    closed,
    decoded,
    encoded,
    first_wire,
)

__all__ = ["GameClient"]


class _Line(NamedTuple):
    """An open connection."""

    socket: socket.socket
    wire: Wire


class GameClient(GameSession):
    """One agent of a game, in one thread.

    - `start` connects if need be, and tries again while the server is away or full.
    - `tick` and `stop` do not try again: nobody knows whether a request whose reply is lost was taken. They raise
      `EpisodeLostError`, and the next `start` begins a new episode. What was answered before is not lost.
    """

    _line: _Line | None = None

    def start(self, body: bytes = b"") -> None:
        """Begin an episode. One that is still open on the server ends as truncated.

        Raises:
            RefusedError: the server refuses, and goes on refusing.
            EpisodeLostError: the server cannot be reached.
        """
        until, tries = time.monotonic() + self._reach.patience, 0
        while True:
            try:
                if self._is_open:
                    self._end_former()
                self.send("start", body)
            except (RefusedError, EpisodeLostError) as error:
                time.sleep(self._pause_after(error, tries, is_late=time.monotonic() > until))
                tries += 1
            else:
                self._is_open = True
                return

    def tick(self, obs: Any, reward: float | None = None, *, action_mask: Any = None) -> Any:  # noqa: ANN401
        """The next action.

        Args:
            obs: the observation.
            reward: of the action before.
            action_mask: 1 where a choice is possible.

        Raises:
            RefusedError: the server refuses this tick; the episode is as it was before.
            EpisodeLostError: the connection broke. Begin a new episode.
        """
        return decoded(self.send("tick", encoded(obs, reward, None, action_mask)))

    def stop(
        self,
        obs: Any = None,  # noqa: ANN401
        reward: float | None = None,
        *,
        terminated: bool = False,
        info: Mapping[str, float] | None = None,
        action_mask: Any = None,  # noqa: ANN401
    ) -> None:
        """End the episode.

        Args:
            obs: the last observation. It may be left out of an episode that is terminated.
            reward: of the last action. If nothing at all is given, the last action counts as not taken.
            terminated: the episode has ended by itself. Otherwise it was cut off.
            info: numbers of the episode by their names, of which a run reports means and more (``--episode_metrics``).
            action_mask: 1 where a choice would be possible in the last observation. It may be left out.

        Raises:
            RefusedError: the server refuses; the episode is as it was before.
            EpisodeLostError: the connection broke.
        """
        nothing = obs is None and reward is None and not terminated and info is None
        self.send("stop", b"" if nothing else encoded(obs, reward, terminated, action_mask, info))
        self._is_open = False

    def send(self, kind: str, body: bytes) -> bytes:
        """Send a request of any encoding, and return the reply's body.

        Args:
            kind: ``start``, ``tick`` or ``stop``.
            body: any bytes that the agent understands.

        Raises:
            RefusedError: the server refuses.
            EpisodeLostError: the server cannot be reached, or the connection broke.
        """
        try:
            line = self._connected()
            try:
                return self._exchange(line, kind, body)
            except BaseMissingError:
                return self._exchange(line, kind, body)
        except RefusedError:
            raise
        except OSError as error:
            self.close()
            asked = f" to {kind}" if kind else ""
            raise EpisodeLostError(f"no reply{asked}: {str(error) or type(error).__name__}") from None
        except BaseException:
            # Also an interrupt: a reply that nobody waits for must not be taken for the next one.
            self.close()
            raise

    def close(self) -> None:
        """Close the connection. An open episode ends as truncated, unless its session connects again soon."""
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._line.socket.close()
            self._line = None

    def __enter__(self) -> "GameClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end_former(self) -> None:
        """End the episode that is open. The server may have ended it by itself."""
        self._is_open = False
        try:
            self.send("stop", b"")
        except RefusedError as error:
            if not error.has_ended:
                raise

    def _exchange(self, line: _Line, kind: str, body: bytes) -> bytes:
        line.socket.sendall(line.wire.request(kind, self._session, body))
        for data in received(line.socket, self._reach.timeout):
            reply = line.wire.feed(data)
            if reply is not None:
                return reply
        raise closed(line.wire.hint)

    def _connected(self) -> _Line:
        if self._line is None:
            is_tcp = self._reach.address.scheme == "tcp"
            line = self._greeted() if is_tcp and self._version != 1 else None
            if line is None:
                line = _Line(
                    dialled(self._reach), first_wire(self._reach.address, self._reach.token, self._reach.policy)
                )
            self._line = line
        return self._line

    def _greeted(self) -> _Line | None:
        """A connection that speaks version 2; ``None``: the server has closed it, as one of version 1 does."""
        connection = welcomed(self._reach)
        if connection is not None:
            return _Line(connection, FrameWire(delta=self._delta))
        if self._version is not None:
            raise EpisodeLostError(NO_SECOND_VERSION)
        return None
