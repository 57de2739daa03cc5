"""AsyncGameClient: as GameClient, for coroutines: a game with many agents needs no threads."""

import asyncio
import contextlib
import ssl
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any

from penstock.clients.frames import FrameWire, Greeting
from penstock.clients.line import ClosedLineError, Line
from penstock.clients.session import GameSession, untrusted
from penstock.clients.wire import (
    NO_SECOND_VERSION,
    BaseMissingError,
    EpisodeLostError,
    RefusedError,
    bracketed,
    decoded,
    encoded,
    first_wire,
)

__all__ = ["AsyncGameClient"]


class AsyncGameClient(GameSession):
    """One agent of a game. Arguments and errors are those of `penstock.clients.GameClient`."""

    _line: Line | None = None

    async def start(self, body: bytes = b"") -> None:
        """Begin an episode, as `GameClient.start`."""
        loop = asyncio.get_running_loop()
        until, tries = loop.time() + self._reach.patience, 0
        while True:
            try:
                if self._is_open:
                    await self._end_former()
                await self.send("start", body)
            except (RefusedError, EpisodeLostError) as error:
                await asyncio.sleep(self._pause_after(error, tries, is_late=loop.time() > until))
                tries += 1
            else:
                self._is_open = True
                return

    async def tick(self, obs: Any, reward: float | None = None, *, action_mask: Any = None) -> Any:  # noqa: ANN401
        """The next action, as `GameClient.tick`."""
        return decoded(await self.send("tick", encoded(obs, reward, None, action_mask)))

    async def stop(
        self,
        obs: Any = None,  # noqa: ANN401
        reward: float | None = None,
        *,
        terminated: bool = False,
        info: Mapping[str, float] | None = None,
        action_mask: Any = None,  # noqa: ANN401
    ) -> None:
        """End the episode, as `GameClient.stop`."""
        nothing = obs is None and reward is None and not terminated and info is None
        await self.send("stop", b"" if nothing else encoded(obs, reward, terminated, action_mask, info))
        self._is_open = False

    async def send(self, kind: str, body: bytes) -> bytes:
        """Send a request of any encoding, as `GameClient.send`."""
        try:
            line = self._line or await self._connected()
            try:
                return await self._exchange(line, kind, body)
            except BaseMissingError:
                return await self._exchange(line, kind, body)
        except RefusedError:
            raise
        except (EpisodeLostError, asyncio.CancelledError):
            # A reply that nobody waits for must not be taken for the next one.
            await self.close()
            raise
        except OSError as error:
            # A TimeoutError is an OSError, too.
            await self.close()
            raise EpisodeLostError(f"no reply to {kind}: {str(error) or type(error).__name__}") from None

    async def close(self) -> None:
        """Close the connection, as `GameClient.close`."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def __del__(self) -> None:
        # Otherwise the event loop would keep the connection of a client that is gone, and the server its session.
        if self._line is not None:
            self._line.forget()

    async def __aenter__(self) -> "AsyncGameClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _end_former(self) -> None:
        """End the episode that is open. The server may have ended it by itself."""
        self._is_open = False
        try:
            await self.send("stop", b"")
        except RefusedError as error:
            if not error.has_ended:
                raise

    def _exchange(self, line: Line, kind: str, body: bytes) -> Coroutine[Any, Any, bytes]:
        wire = line.wire
        return line.ask(lambda: wire.request(kind, self._session, body), wire.feed, wire.hint)

    async def _connected(self) -> Line:
        is_tcp = self._reach.address.scheme == "tcp"
        line = await self._greeted() if is_tcp and self._version != 1 else None
        if line is None:
            line = await self._dialled()
            line.wire = first_wire(self._reach.address, self._reach.token, self._reach.policy)
        self._line = line
        return line

    async def _greeted(self) -> Line | None:
        """A connection that speaks version 2; ``None``: the server has closed it, as one of version 1 does."""
        line, greeting = await self._dialled(), Greeting(self._reach.token, self._reach.policy)
        with contextlib.ExitStack() as unless_welcome:
            unless_welcome.callback(line.close)
            with contextlib.suppress(ConnectionError, ClosedLineError):
                await line.ask(lambda: greeting.request, lambda data: greeting.feed(data) or None, "")
                unless_welcome.pop_all()
                line.wire = FrameWire(delta=self._delta)
                return line
        if self._version is not None:
            raise EpisodeLostError(NO_SECOND_VERSION)
        return None

    async def _dialled(self) -> Line:
        loop = asyncio.get_running_loop()
        reach, host, port = self._reach, self._reach.address.host, self._reach.address.port
        try:
            async with asyncio.timeout(reach.timeout):
                _, line = await loop.create_connection(lambda: Line(reach.timeout), host, port, ssl=reach.tls)
        except ssl.SSLCertVerificationError as error:
            raise untrusted(error) from None
        except OSError as error:
            why = error.strerror or str(error) or f"none within {reach.timeout:g} s"
            raise EpisodeLostError(f"no server at {bracketed(host)}:{port}: {why}") from None
        return line
