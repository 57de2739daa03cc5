"""AsyncGameClient: as GameClient, for coroutines: a game with many agents needs no threads."""

import asyncio
import contextlib
from types import TracebackType
from typing import Any, NamedTuple

from penstock.clients.frames import FrameWire, Greeting
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

__all__ = ["AsyncGameClient"]

_CHUNK = 1 << 16


class _Line(NamedTuple):
    """An open connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    wire: Wire


class AsyncGameClient(GameSession):
    """One agent of a game. Arguments and errors are those of `penstock.clients.GameClient`."""

    _line: _Line | None = None

    async def start(self, body: bytes = b"") -> None:
        """Begin an episode, as `GameClient.start`."""
        loop = asyncio.get_running_loop()
        until, tries = loop.time() + self._patience, 0
        while True:
            try:
                if self._is_open:
                    self._is_open = False
                    await self.send("stop", b"")
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

    async def stop(self, obs: Any = None, reward: float | None = None, *, terminated: bool = False) -> None:  # noqa: ANN401
        """End the episode, as `GameClient.stop`."""
        nothing = obs is None and reward is None and not terminated
        await self.send("stop", b"" if nothing else encoded(obs, reward, terminated, None))
        self._is_open = False

    async def send(self, kind: str, body: bytes) -> bytes:
        """Send a request of any encoding, as `GameClient.send`."""
        try:
            async with asyncio.timeout(self._timeout):
                line = await self._connected()
                try:
                    return await self._exchange(line, kind, body)
                except BaseMissingError:
                    return await self._exchange(line, kind, body)
        except RefusedError:
            raise
        except EpisodeLostError:
            await self.close()
            raise
        except OSError as error:
            # A TimeoutError is one, too.
            await self.close()
            raise EpisodeLostError(f"no reply to {kind}: {error or type(error).__name__}") from None

    async def close(self) -> None:
        """Close the connection, as `GameClient.close`."""
        if self._line is not None:
            self._line.writer.close()
            self._line = None

    async def __aenter__(self) -> "AsyncGameClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _exchange(self, line: _Line, kind: str, body: bytes) -> bytes:
        line.writer.write(line.wire.request(kind, self._session, body))
        while True:
            data = await line.reader.read(_CHUNK)
            if not data:
                raise closed(line.wire.hint)
            reply = line.wire.feed(data)
            if reply is not None:
                return reply

    async def _connected(self) -> _Line:
        if self._line is None:
            is_tcp = self._address.scheme == "tcp"
            line = await self._greeted() if is_tcp and self._version != 1 else None
            if line is None:
                line = _Line(*await self._dialled(), first_wire(self._address, self._token, self._policy))
            self._line = line
        return self._line

    async def _greeted(self) -> _Line | None:
        """A connection that speaks version 2; ``None``: the server has closed it, as one of version 1 does."""
        reader, writer = await self._dialled()
        greeting = Greeting(self._token, self._policy)
        with contextlib.ExitStack() as unless_welcome:
            unless_welcome.callback(writer.close)
            with contextlib.suppress(ConnectionError):
                writer.write(greeting.request)
                while data := await reader.read(_CHUNK):
                    if greeting.feed(data):
                        unless_welcome.pop_all()
                        return _Line(reader, writer, FrameWire(delta=self._delta))
        if self._version is not None:
            raise EpisodeLostError(NO_SECOND_VERSION)
        return None

    async def _dialled(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._address.host, self._address.port)
