"""What clients of a server do, good and bad ones: short visits, again and again, so many requests a second.

Each visit opens a connection of its own: sessions of both versions of Gamecore over TCP, one of them with deltas, one
whose client vanishes; requests over HTTP, sequences of the Open Inference Protocol with binary tensors, bytes that are
no request, and a connection that says nothing. Judges nothing but replies.
"""

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable

from penstock.clients import AsyncGameClient

HOST = "127.0.0.1"
TICKS = 8
"""Requests of a visit between its first and its last."""
_OBS = [0.125, -0.25, 0.5]
_BODY = json.dumps({"obs": _OBS}).encode()
_INPUT = {"name": "obs", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}


class Traffic:
    """Clients of one server, whose policy takes observations of three numbers and may have a memory.

    Args:
        http: port.
        tcp: port.
        policy: name of the policy.

    Attributes:
        requests: how many were answered so far.
    """

    def __init__(self, http: int, tcp: int, policy: str) -> None:
        self.requests = 0
        self._http = http
        self._tcp = tcp
        self._policy = policy
        self._visits = 0
        self._rate = float("inf")
        self._due = 0.0

    async def go_on(self, seconds: float, clients: int, rate: float = float("inf")) -> None:
        """Let so many clients make visits, which together ask at most ``rate`` times a second.

        Raises:
            RuntimeError: a reply was not as it must be.
        """
        loop = asyncio.get_running_loop()
        self._rate, self._due = rate, loop.time()
        until = loop.time() + seconds

        async def client(number: int) -> None:
            while loop.time() < until:
                visit = self._kinds[(number + self._visits) % len(self._kinds)]
                self._visits += 1
                await visit()

        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(client(number))

    @property
    def _kinds(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return (self._first, self._deltas, self._vanishes, self._requests, self._sequence, self._nonsense, self._silent)

    async def _turn(self) -> None:
        """Wait until a further request is due."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        # A client that was late does not make up for it.
        self._due = max(self._due, now - 1.0) + 1.0 / self._rate
        if self._due > now:
            await asyncio.sleep(self._due - now)
        self.requests += 1

    async def _first(self) -> None:
        await self._play(AsyncGameClient(*self._session(), policy=self._policy, version=1), stops=True)

    async def _deltas(self) -> None:
        await self._play(AsyncGameClient(*self._session(), policy=self._policy, delta=True), stops=True)

    async def _vanishes(self) -> None:
        await self._play(AsyncGameClient(*self._session(), policy=self._policy), stops=False)

    def _session(self) -> tuple[str, str]:
        """The URL and a name that no other visit has."""
        return f"tcp://{HOST}:{self._tcp}", f"soak-{self._visits}"

    async def _play(self, game: AsyncGameClient, *, stops: bool) -> None:
        async with game:
            await self._turn()
            await game.start()
            for _ in range(TICKS):
                await self._turn()
                await game.tick(_OBS)
            if stops:
                await self._turn()
                await game.stop()

    async def _requests(self) -> None:
        """Health and metadata, which every policy answers, and one request that is refused."""
        async with _Line(self._http) as line:
            for _ in range(TICKS):
                await self._turn()
                _expect(await line.ask("GET", f"/v2/models/{self._policy}", b""), 200)
            await self._turn()
            _expect(await line.ask("POST", "/step", b'{"obs": "nothing"}'), 400)

    async def _sequence(self) -> None:
        # Taken at once: `_visits` counts on while the connection is made.
        _, name = self._session()
        async with _Line(self._http) as line:
            for number in range(TICKS):
                parameters = {
                    "sequence_id": name,
                    "sequence_start": number == 0,
                    "sequence_end": number == TICKS - 1,
                    "binary_data_output": True,
                }
                head = json.dumps({"inputs": [_INPUT], "parameters": parameters}).encode()
                await self._turn()
                body = head + struct.pack("<3f", *_OBS)
                more = f"inference-header-content-length: {len(head)}"
                _expect(await line.ask("POST", f"/v2/models/{self._policy}/infer", body, more), 200)

    async def _nonsense(self) -> None:
        for port, said in ((self._tcp, b"\xff" * 48), (self._http, b"\x16\x03\x01\r\n\r\n")):
            await self._turn()
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(said)
            await reader.read()
            writer.close()

    async def _silent(self) -> None:
        await self._turn()
        _, writer = await asyncio.open_connection(HOST, self._tcp)
        writer.write(struct.pack("!6q", 1, 4, 0, 0, 0, 0)[:-3])
        await asyncio.sleep(0.01)
        writer.close()


class _Line:
    """A connection of HTTP."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> "_Line":
        self._reader, self._writer = await asyncio.open_connection(HOST, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, method: str, path: str, body: bytes, *more: str) -> int:
        """The status of the reply."""
        lines = (f"{method} {path} HTTP/1.1", "host: soak", f"content-length: {len(body)}", *more, "", "")
        self._writer.write("\r\n".join(lines).encode() + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
        await self._reader.readexactly(int(fields["content-length"]))
        return int(head.split(b" ", 2)[1])


def _expect(status: int, wanted: int) -> None:
    if status != wanted:
        raise RuntimeError(f"status {status} where {wanted} was due")
