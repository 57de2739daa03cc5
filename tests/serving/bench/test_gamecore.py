"""``penstock bench-serve``: what it sends fits the policy, and what fails is said."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock.cli import main
from penstock.clients.session import trust
from penstock.clients.wire import Address
from penstock.errors import ConfigError, ResourceError
from penstock.serving.bench.gamecore import Load, measure
from penstock.serving.bench.load import Measured
from penstock.serving.server.server import Certificate
from tests.serving.server.harness import Running, serving


def measured(server: Running, codec: str = "json", *, tcp: bool = False) -> Measured:
    load = Load(f"http://127.0.0.1:{server.http}", "toy", 2, 0.5, server.tcp if tcp else None, codec, "")
    while True:
        try:
            return measure(load)
        except ResourceError as error:
            # The machine was too busy for a single tick.
            if "give --seconds more" not in str(error):
                raise


def test_choices_that_do_not_begin_at_0_are_sent_in_their_range() -> None:
    with serving("nested") as server:
        found = measured(server)
        assert found.ticks
        assert (found.failures, found.reason) == (0, "")
        assert not len(server.endpoint.sessions)


@pytest.mark.parametrize("tcp", [False, True])
def test_a_server_with_tls_is_measured(tcp: bool, certificate: tuple[str, str]) -> None:
    chain, key = certificate
    with serving(certificate=Certificate(Path(chain), Path(key))) as server:
        url, port = f"https://127.0.0.1:{server.http}", server.tcp if tcp else None
        load = Load(url, "toy", 2, 2.0, port, "json", "", trust(Address.read(url), chain))
        assert measure(load).ticks
        with pytest.raises(ResourceError, match="certificate verify failed"):
            measure(load._replace(tls=trust(Address.read(url), None)))


@pytest.mark.parametrize(("tcp", "why"), [(False, "400: the body is no JSON"), (True, "closed the connection")])
def test_a_server_that_answers_no_tick_is_an_error_with_its_reason(tcp: bool, why: str) -> None:
    with serving() as server:
        with pytest.raises(ResourceError, match=f"has answered no tick: .*{why}"):
            measured(server, "raw", tcp=tcp)
        assert not len(server.endpoint.sessions)


@contextlib.contextmanager
def answering(data: bytes) -> Iterator[str]:
    """The URL of a server that gives one client these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(data)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>",
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 6\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]",
        b"220 ready\r\n",
    ],
)
def test_another_server_is_one_line(data: bytes) -> None:
    with answering(data) as url, pytest.raises(ResourceError, match=f"^{url} is no penstock server; give the address"):
        measure(Load(url, "toy", 1, 0.1, None, "json", ""))


def test_a_name_of_a_policy_that_nobody_serves_is_one_line() -> None:
    with serving() as server, pytest.raises(ConfigError, match="this server has 'toy'"):
        measure(Load(f"http://127.0.0.1:{server.http}", "a b", 1, 0.1, None, "json", ""))


def test_a_file_of_tokens_that_is_no_utf_8_is_one_line(tmp_path, capfd) -> None:
    file = tmp_path / "tokens"
    file.write_bytes("secret".encode("utf-16"))
    assert main(["bench-serve", "http://127.0.0.1:1", "--token_file", str(file)]) == 2
    assert capfd.readouterr().err == f"penstock: error: --token_file {file} is no text in UTF-8; save it as UTF-8\n"


def test_the_line_of_a_measurement_has_the_longest_tick_and_the_reason_of_the_first_failure() -> None:
    found = Measured(2, 1.0, 3, np.array([0.001, 0.002]), "the server has closed the connection", [0])
    why = "the first: the server has closed the connection"
    assert found.line().endswith(f"p99 1.990 ms, longest 2.000 ms, 3 failures, {why}")
