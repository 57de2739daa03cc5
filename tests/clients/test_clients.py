"""The clients against servers that are away, silent, or talk nonsense. Both clients must behave alike."""

import asyncio
import contextlib
import gc
import json
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

import psutil
import pytest

from penstock.clients import AgentsClient, AsyncGameClient, EpisodeLostError, GameClient, RefusedError
from penstock.clients.session import pause_after, untrusted
from penstock.clients.wire import Address, HttpWire
from penstock.errors import ConfigError
from penstock.serving.server.protocols.gamecore.bases import Bases
from penstock.serving.server.server import Certificate
from tests.serving.server.harness import serving


def blocking(url, calls, **options):
    with GameClient(url, "g", **options) as client:
        return [getattr(client, name)(*arguments) for name, *arguments in calls]


def asynchronous(url, calls, **options):
    async def run():
        async with AsyncGameClient(url, "g", **options) as client:
            return [await getattr(client, name)(*arguments) for name, *arguments in calls]

    return asyncio.run(run())


both = pytest.mark.parametrize("run", [blocking, asynchronous])
schemes = pytest.mark.parametrize("scheme", ["http", "tcp"])
versions = pytest.mark.parametrize("version", [1, 2, None])


@both
@schemes
def test_over_tls(run, scheme: str, certificate: tuple[str, str]) -> None:
    chain, key = certificate
    with serving(certificate=Certificate(Path(chain), Path(key))) as server:
        address = f"127.0.0.1:{getattr(server, scheme)}"
        calls = [("start",), ("tick", [0.1, 0.2, 0.3]), ("stop",)]
        assert len(run(f"{scheme}s://{address}", calls, ca_file=chain)) == 3
        with pytest.raises(ConfigError, match=r"certificate is not trusted: .*self.signed.*; give ca_file"):
            run(f"{scheme}s://{address}", calls)
        # Nobody speaks TLS to a plain URL: the server closes the connection.
        with pytest.raises(EpisodeLostError):
            run(f"{scheme}://{address}", calls, patience=0.0)


def test_the_files_that_the_docs_copy_to_a_game_are_enough(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    text = (root / "docs" / "game-clients.md").read_text()
    commands = [line.strip() for line in text.splitlines() if line.startswith(("    mkdir -p game", "    cp "))]
    assert len(commands) == 4
    (tmp_path / "src").symlink_to(root / "src")
    subprocess.run(" && ".join(commands), shell=True, cwd=tmp_path, check=True)
    code = "import sys; sys.path.insert(0, 'game'); import penstock.clients; print(penstock.clients.__file__)"
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(("game", str(tmp_path / "game")))


def test_a_certificate_of_another_name_is_said_to_be_that() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "IP address mismatch, certificate is not valid for '127.0.0.1'."
    assert str(untrusted(error)).endswith("for '127.0.0.1'; connect by a name that it holds")


def test_a_certificate_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ca_file is for TLS; write tcps:// instead of tcp://"):
        GameClient("tcp://localhost:8001", "g", ca_file="ca.pem")
    for path in (tmp_path / "none.pem", tmp_path / "text.pem"):
        (tmp_path / "text.pem").write_text("no certificate")
        with pytest.raises(ConfigError, match=f"ca_file {path} cannot be used"):
            GameClient("tcps://localhost:8001", "g", ca_file=str(path))


class Double:
    """A server that takes one connection after the other, in a thread of its own."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._kept: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._kept.append(connection)
            # The client may have given up.
            with contextlib.suppress(OSError):
                self.converse(connection)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # To close it would not wake the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        for one in self._kept:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for one in (self._listener, *self._kept):
            one.close()


class Answering(Double):
    """A server that answers each connection with fixed bytes, and then says no more."""

    def __init__(self, answer: bytes, *, closes: bool) -> None:
        super().__init__()
        self._answer, self._closes = answer, closes

    def converse(self, connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(self._answer)
        if self._closes:
            connection.close()


@both
@schemes
def test_the_clients_ask_a_served_policy(run, scheme):
    with serving() as running:
        calls = [
            ("start",),
            ("tick", [0.1, 0.2, 0.3]),
            ("tick", [0.3, 0.2, 0.1], 1.0),
            ("stop",),
            ("start",),
            ("stop",),
        ]
        _, first, second, *_ = run(f"{scheme}://127.0.0.1:{getattr(running, scheme)}", calls)
    assert len(first) == len(second) == 2
    assert first != second


@both
@versions
def test_every_version_over_tcp_gives_the_same_actions(run, version):
    calls = [("start",), ("tick", [0.1, 0.2, 0.3]), ("tick", [0.3, 0.2, 0.1]), ("stop",)]
    with serving() as running:
        wanted = run(f"http://127.0.0.1:{running.http}", calls)
        assert run(f"tcp://127.0.0.1:{running.tcp}", calls, version=version) == wanted


@both
def test_version_2_says_why_a_request_is_refused_and_goes_on(run):
    with serving() as running:
        url = f"tcp://127.0.0.1:{running.tcp}"
        with pytest.raises(RefusedError, match="there is no session 'g'") as refused:
            run(url, [("tick", [0.1, 0.2, 0.3])])
        assert refused.value.status == 404
        with pytest.raises(EpisodeLostError, match="the server's log says why"):
            run(url, [("tick", [0.1, 0.2, 0.3])], version=1)


class OnlyFirst(Double):
    """A server that speaks version 1 only: it answers whole requests, and closes the connection on anything else."""

    def converse(self, connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1 << 16):
                if data[0] != 0:
                    break
                connection.sendall(bytes(8) + (12).to_bytes(8, "big") + data[40:48] + b'{"action":3}')


@both
def test_a_server_that_speaks_only_version_1_is_asked_in_version_1(run):
    with OnlyFirst() as server:
        url = f"tcp://{server.address}"
        assert run(url, [("start",), ("tick", [0.0]), ("stop",)])[1] == 3
        with pytest.raises(EpisodeLostError, match="version 1 only"):
            run(url, [("tick", [0.0])], version=2)


@both
@pytest.mark.parametrize(
    "answer", [b"", b"\xffGAMCORE\x00\x02", b"\xffGAMCORE\x00\x02\x00\xc8\xff\xff\xff\xff", b"x" * 16]
)
def test_a_server_whose_welcome_is_none(run, answer):
    with Answering(answer, closes=False) as server, pytest.raises(EpisodeLostError):
        run(f"tcp://{server.address}", [("tick", [1.0])], timeout=0.1)


@both
def test_deltas_give_the_same_actions(run):
    """The bodies are JSON whose numbers become longer and shorter."""
    ticks = [("tick", [0.1, value, 0.3]) for value in (0.2, 0.25, -0.125, 0.0, 0.2)]
    calls = [("start",), *ticks, ("stop",), ("start",), *ticks, ("stop",)]
    with serving() as running:
        wanted = run(f"http://127.0.0.1:{running.http}", calls)
        assert run(f"tcp://127.0.0.1:{running.tcp}", calls, delta=True) == wanted


@both
def test_a_server_that_has_forgotten_the_base_gets_the_whole_body(run, monkeypatch):
    asked = []
    monkeypatch.setattr(Bases, "keep", lambda _, request, body: asked.append(len(request.body)))
    large = {"obs": [0.1, 0.2, 0.3], "more": "x" * 3000}
    calls = [("start",), *[("send", "tick", json.dumps({"at": at, **large}).encode()) for at in range(4)]]
    with serving() as running:
        assert len(set(run(f"tcp://127.0.0.1:{running.tcp}", calls, delta=True)[1:])) == 1
    # Each delta was refused, and its tick came again as a key frame.
    assert len(asked) == 4
    assert min(asked) > 3000


@pytest.mark.parametrize("options", [{"url": "http://localhost:8000"}, {"url": "tcp://localhost:8001", "version": 1}])
def test_deltas_need_version_2(options):
    with pytest.raises(ConfigError, match="needs version 2 over TCP"):
        GameClient(session="g", delta=True, **options)


@pytest.mark.parametrize("name", ["игра", "café"])
def test_a_name_and_a_token_are_the_same_over_http_and_tcp(name: str) -> None:
    with serving(token=name) as running:
        urls = f"http://127.0.0.1:{running.http}", f"tcp://127.0.0.1:{running.tcp}"
        web, game = (GameClient(url, name, token=name, patience=0.0) for url in urls)
        with web, game:
            web.start()
            assert len(game.tick([0.1, 0.2, 0.3])) == 2


@both
@schemes
def test_a_token_opens_the_door(run, scheme):
    with serving(token="secret") as running:
        url = f"{scheme}://127.0.0.1:{getattr(running, scheme)}"
        with pytest.raises(RefusedError, match="token") as refused:
            run(url, [("start",)])
        assert refused.value.status == 401
        run(url, [("start",), ("stop",)], token="secret")


@both
@schemes
def test_a_refused_tick_leaves_the_episode_as_it_was(run, scheme):
    async def ticks():
        async with AsyncGameClient(url, "h") as client:
            await client.start()
            with pytest.raises(RefusedError, match="obs"):
                await client.tick([1.0])
            return await client.tick([0.1, 0.2, 0.3])

    with serving() as running:
        url = f"{scheme}://127.0.0.1:{getattr(running, scheme)}"
        (_, wanted) = run(url, [("start",), ("tick", [0.1, 0.2, 0.3])])
        assert asyncio.run(ticks()) == wanted


@schemes
def test_two_tasks_do_not_share_a_client(scheme: str) -> None:
    async def ask() -> None:
        async with AsyncGameClient(f"{scheme}://127.0.0.1:{getattr(running, scheme)}", "g") as client:
            await client.start()
            found = await asyncio.gather(*(client.tick([0.1, 0.2, 0.3]) for _ in range(2)), return_exceptions=True)
            assert isinstance(found[0], list), found[0]
            assert "one thing at a time" in str(found[1])

    with serving() as running:
        asyncio.run(ask())


@schemes
def test_a_client_that_is_closed_waits_for_no_reply(scheme: str) -> None:
    async def ask() -> None:
        client = AsyncGameClient(f"{scheme}://{server.address}", "g", version=1 if scheme == "tcp" else None)
        # More than the server reads: the rest is not sent.
        waiting = asyncio.ensure_future(client.send("tick", bytes(30_000_000)))
        await asyncio.sleep(0.2)
        await client.close()
        with pytest.raises(EpisodeLostError, match="the client was closed"):
            await waiting

    with Answering(b"", closes=False) as server:
        asyncio.run(ask())


@schemes
def test_after_an_interrupt_the_next_reply_is_that_of_the_next_request(scheme: str, monkeypatch) -> None:
    """As when a cell of a notebook is interrupted while the policy computes."""

    class Interrupting:
        """A number of bytes that interrupts whoever wants to know how many they are."""

        def __index__(self) -> int:
            monkeypatch.undo()
            raise KeyboardInterrupt

    with serving() as running, GameClient(f"{scheme}://127.0.0.1:{getattr(running, scheme)}", "g") as client:
        client.start()
        wanted = client.tick([0.3, 0.2, 0.1])
        first = client._line.socket
        monkeypatch.setattr("penstock.clients.dialling._CHUNK", Interrupting())
        with pytest.raises(KeyboardInterrupt):
            client.tick([0.1, 0.2, 0.3])
        assert client._line is None
        assert first.fileno() == -1
        assert client.tick([0.3, 0.2, 0.1]) == wanted


def test_a_client_that_is_forgotten_leaves_no_connection() -> None:
    async def ask() -> None:
        client = AsyncGameClient(f"tcp://127.0.0.1:{running.tcp}", "g")
        await client.start()
        assert connections() == 1
        del client
        gc.collect()
        while connections():
            await asyncio.sleep(0.01)

    def connections() -> int:
        return sum(one.status == psutil.CONN_ESTABLISHED and one.raddr.port == running.tcp for one in mine())

    def mine():
        return [one for one in psutil.Process().net_connections() if one.raddr]

    with serving() as running:
        asyncio.run(asyncio.wait_for(ask(), 60.0))


@both
@schemes
def test_nobody_there(run, scheme):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"{scheme}://127.0.0.1:{probe.getsockname()[1]}"
        with pytest.raises(EpisodeLostError):
            run(url, [("start",)], patience=0.1)


@both
@schemes
def test_a_server_that_says_nothing(run, scheme):
    with (
        Answering(b"", closes=False) as server,
        pytest.raises(EpisodeLostError, match="no reply to tick"),
    ):
        run(f"{scheme}://{server.address}", [("tick", [1.0])], timeout=0.5)


@both
@schemes
def test_a_server_that_closes(run, scheme):
    with Answering(b"", closes=True) as server, pytest.raises(EpisodeLostError, match=r"closed|reset"):
        run(f"{scheme}://{server.address}", [("tick", [1.0])])


@both
@pytest.mark.parametrize(
    ("scheme", "answer"),
    [
        ("tcp", b"\xff" * 24),
        ("tcp", (0).to_bytes(8, "big") + (1 << 40).to_bytes(8, "big") + (1).to_bytes(8, "big")),
        ("http", b"nonsense\r\n\r\n"),
        ("http", b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n"),
        ("http", b"x" * 70000),
    ],
)
def test_a_server_that_talks_nonsense(run, scheme, answer):
    with Answering(answer, closes=False) as server, pytest.raises(EpisodeLostError):
        run(f"{scheme}://{server.address}", [("tick", [1.0])])


@both
@schemes
def test_start_waits_for_a_server_that_is_full(run, scheme):
    with serving(max_sessions=1) as running:
        url = f"{scheme}://127.0.0.1:{getattr(running, scheme)}"
        with GameClient(url, "other") as other:
            other.start()
            leaves = threading.Timer(0.2, other.stop)
            leaves.start()
            run(url, [("start",), ("stop",)], patience=90.0)
            leaves.join()


def test_a_start_with_a_policy_that_nobody_serves_is_not_tried_again() -> None:
    with pytest.raises(RefusedError, match="no policy"):
        pause_after(RefusedError(404, "there is no policy 'tyo'"), 0, is_late=False)


@both
@schemes
def test_start_begins_anew_if_the_server_has_ended_the_episode(run, scheme) -> None:
    with serving() as running:
        # Version 1 would close the connection for a stop that is refused.
        calls = [("start",), ("send", "stop", b""), ("start",), ("tick", [0.1, 0.2, 0.3])]
        assert len(run(f"{scheme}://127.0.0.1:{getattr(running, scheme)}", calls, patience=0.0)[-1]) == 2


def test_an_address_of_ipv6_is_in_brackets() -> None:
    address = Address.read("http://[::1]:8000")
    assert address.host == "::1"
    assert b"\r\nhost: [::1]:8000\r\n" in HttpWire(address, "", "").request("start", "g", b"")
    # Nobody listens there, or this machine has no IPv6.
    with pytest.raises(EpisodeLostError, match=r"no server at \[::1\]:1: "):
        GameClient("tcp://[::1]:1", "g").tick([0.0])


def test_a_version_that_nobody_speaks_is_one_line():
    with pytest.raises(ConfigError, match="give 1 or 2"):
        GameClient("tcp://localhost:8001", "g", version=3)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://localhost:8000", "tcp://localhost", "tcp://localhost:port", "http://[::1:8000"]
)
def test_a_wrong_address_is_one_line(url):
    with pytest.raises(ConfigError, match="write tcp://localhost:8001"):
        GameClient(url, "g")


def test_agents_that_act_together_get_the_actions_of_clients_of_their_own():
    seen = {"0": [0.1, 0.2, 0.3], "1": [0.3, 0.2, 0.1]}
    with serving() as running:
        url = f"tcp://127.0.0.1:{running.tcp}"
        wanted = {agent: blocking(url, [("start",), ("tick", obs), ("stop",)])[1] for agent, obs in seen.items()}
        with AgentsClient(url, "g", seen) as client:
            client.start()
            assert client.tick(seen) == wanted
            # One goes on, the other begins anew.
            client.stop({"1": [0.0, 0.0, 0.0]}, {"1": 1.0}, terminated={"1"})
            assert client.tick({"0": seen["1"]}, {"0": 1.0}) == {"0": wanted["1"]}
            client.start(["1"])
            # Both of them have episodes, which end before the next ones begin.
            client.start()
            assert client.tick(seen) == wanted


def test_a_refused_agent_is_named_and_the_others_go_on():
    with serving() as running, AgentsClient(f"tcp://127.0.0.1:{running.tcp}", "g", ["0", "1"]) as client:
        client.start()
        with pytest.raises(RefusedError, match=r"agent '1': .*obs") as refused:
            client.tick({"0": [0.1, 0.2, 0.3], "1": [0.1]})
        assert refused.value.status == 400
        assert len(client.tick({"0": [0.1, 0.2, 0.3], "1": [0.1, 0.2, 0.3]})) == 2
        replies = client.send([("tick", "0", b"nonsense"), ("stop", "1", b""), ("stop", "1", b"")])
        assert [getattr(reply, "status", reply) for reply in replies] == [400, b"{}", 404]


def test_agents_whose_connection_was_lost_begin_anew():
    with serving() as running, AgentsClient(f"tcp://127.0.0.1:{running.tcp}", "g", ["0", "1"]) as client:
        client.start()
        client.close()
        # The server still has their episodes.
        client.start()
        assert len(client.tick({"0": [0.1, 0.2, 0.3], "1": [0.1, 0.2, 0.3]})) == 2


def test_agents_wait_for_a_server_that_is_full():
    with serving(max_sessions=2) as running:
        url = f"tcp://127.0.0.1:{running.tcp}"
        with GameClient(url, "other") as other, AgentsClient(url, "g", ["0", "1"], patience=90.0) as client:
            other.start()
            leaves = threading.Timer(0.2, other.stop)
            leaves.start()
            client.start()
            leaves.join()
            with AgentsClient(url, "h", ["0"], patience=0.0) as late, pytest.raises(RefusedError, match="sessions"):
                late.start()


@pytest.mark.parametrize("answer", [b"", b"x" * 16, b"\xffGAMCORE\x00\x02\x00\xc8" + bytes(4) + b"y" * 24])
def test_agents_of_a_server_that_talks_nonsense(answer):
    with Answering(answer, closes=False) as server:
        client = AgentsClient(f"tcp://{server.address}", "g", ["0", "1"], timeout=0.2)
        with client, pytest.raises(EpisodeLostError):
            client.tick({"0": [1.0], "1": [1.0]})


def test_agents_need_version_2():
    with OnlyFirst() as server, pytest.raises(EpisodeLostError, match="version 1 only"):
        AgentsClient(f"tcp://{server.address}", "g", ["0"]).tick({"0": [1.0]})


def test_agents_that_cannot_act_together_are_refused():
    with pytest.raises(ConfigError, match="need a tcp:// address"):
        AgentsClient("http://localhost:8000", "g", ["0"])
    for agents in ([], [str(number) for number in range(65)]):
        with pytest.raises(ConfigError, match=f"{len(agents)} agents share a connection; wanted 1 to 64"):
            AgentsClient("tcp://localhost:8001", "g", agents)
    with pytest.raises(ConfigError, match="no agent '2'; its agents are 0, 1"):
        AgentsClient("tcp://localhost:8001", "g", ["0", "1"]).tick({"2": [1.0]})
    with pytest.raises(RefusedError, match="wanted start, tick or stop"):
        AgentsClient("tcp://localhost:8001", "g", ["0"]).send([("jump", "0", b"")])
    with pytest.raises(ConfigError, match="65 requests are sent together; the most is 64"):
        AgentsClient("tcp://localhost:8001", "g", ["0"]).send([("tick", "0", b"")] * 65)


def test_the_info_of_an_episode_goes_with_its_end(monkeypatch):
    info, ended = {"won": True, "laps": 2.5}, b'{"obs": [1.0], "terminated": true, "info": {"won": true, "laps": 2.5}}'
    sent: list[bytes] = []

    async def send(kind: str, body: bytes) -> None:
        sent.append(body)

    one, waiting = GameClient("tcp://localhost:1", "g"), AsyncGameClient("tcp://localhost:1", "g")
    monkeypatch.setattr(one, "send", lambda kind, body: sent.append(body))
    monkeypatch.setattr(waiting, "send", send)
    one.stop([1.0], terminated=True, info=info)
    asyncio.run(waiting.stop([1.0], terminated=True, info=info))
    together = AgentsClient("tcp://localhost:1", "g", ["0", "1"])
    monkeypatch.setattr(together, "send", lambda requests: [sent.append(body) or b"{}" for _, _, body in requests])
    together.stop({"0": [1.0], "1": [1.0]}, terminated=["0"], info={"0": info})
    assert sent == [ended, ended, ended, b'{"obs": [1.0], "terminated": false}']


def test_an_info_alone_is_sent_so_that_the_server_refuses_it(monkeypatch):
    sent: list[bytes] = []

    async def send(kind: str, body: bytes) -> None:
        sent.append(body)

    one, waiting = GameClient("tcp://localhost:1", "g"), AsyncGameClient("tcp://localhost:1", "g")
    monkeypatch.setattr(one, "send", lambda kind, body: sent.append(body))
    monkeypatch.setattr(waiting, "send", send)
    for info in ({"won": 1}, None):
        one.stop(info=info)
        asyncio.run(waiting.stop(info=info))
    alone = b'{"terminated": false, "info": {"won": 1}}'
    assert sent == [alone, alone, b"", b""]
