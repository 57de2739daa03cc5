"""Clients that send nonsense over gRPC: each gets a code that says whose fault it is, and the connection goes on."""

import contextlib
from collections.abc import Iterator, Sequence

import grpc
import psutil
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.serving.server.admission.refusal import FAILED
from penstock.serving.server.protocols.open_inference.grpc.messages import SERVICE, message
from tests.serving.server.fuzz_seeds import CALLS, seeds
from tests.serving.server.harness import Running, halted, resume, serving, until
from tests.serving.server.protocols.open_inference.grpc.requests import REQUESTS, ROW, TENSOR, hostile, request

BAD, UNKNOWN_NAME = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
FULL = grpc.StatusCode.RESOURCE_EXHAUSTED
MAX_BODY = 4096
NO_MESSAGE = b"\xff"
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Client:
    """One connection, which sends bytes as they are."""

    def __init__(self, server: Running) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc}")

    def call(self, name: str, data: bytes) -> grpc.StatusCode | bytes:
        """The reply, or the code of a refusal."""
        return self.begun(name, data)()

    def begun(self, name: str, data: bytes):
        """Call, and give what waits for the end."""
        future = self._channel.unary_unary(f"/{SERVICE}/{name}").future(data, timeout=120.0)

        def ended() -> grpc.StatusCode | bytes:
            code = future.code()
            assert code is grpc.StatusCode.OK or future.details()
            return future.result() if code is grpc.StatusCode.OK else code

        return ended

    def stream(self, requests: Sequence[bytes]) -> list[object]:
        replies = self._channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")(iter(requests), timeout=120.0)
        return [message("ModelStreamInferResponse").FromString(data) for data in replies]

    def close(self) -> None:
        self._channel.close()


@contextlib.contextmanager
def connected(server: Running) -> Iterator[Client]:
    client = Client(server)
    try:
        yield client
    finally:
        client.close()


@pytest.fixture(scope="module")
def server():
    with serving(
        also={"masked": "masked", "memory": "memory"}, grpc=True, max_body=MAX_BODY, max_sessions=8
    ) as running:
        yield running
        assert all(endpoint.is_idle for endpoint in running.endpoints)


@pytest.fixture(scope="module")
def client(server: Running):
    with connected(server) as found:
        yield found
        # The same connection, after all that was sent over it.
        assert isinstance(found.call("ModelInfer", request()), bytes)


@pytest.mark.parametrize("name", CALLS)
def test_bytes_that_are_no_message_are_the_clients_fault(
    client: Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert client.call(name, NO_MESSAGE) is BAD
    assert not caplog.records


def test_a_stream_goes_on_behind_bytes_that_are_no_message(client: Client) -> None:
    replies = client.stream([request(), NO_MESSAGE, request(model_name="chess"), request()])
    assert [bool(reply.error_message) for reply in replies] == [False, True, True, False]
    # The id says which request was refused, as far as it could be read.
    assert [reply.infer_response.id for reply in replies] == ["one", "", "one", "one"]


def test_a_message_beyond_max_body_is_refused_unread(client: Client) -> None:
    assert client.call("ModelInfer", request(id="a" * MAX_BODY)) is FULL


@FUZZ
@given(data=st.data())
def test_fuzzed_messages(client: Client, data: st.DataObject) -> None:
    seed = data.draw(st.sampled_from(seeds()["grpc"]))
    name, base = CALLS[seed[0]], seed[1:]
    cut = data.draw(st.integers(0, len(base)))
    altered = base[:cut] + data.draw(st.binary(max_size=8)) + base[cut + data.draw(st.integers(0, 8)) :]
    found = client.call(name, altered)
    assert isinstance(found, bytes) or found in {BAD, UNKNOWN_NAME, FULL}


MASKS = [TENSOR, {"name": "action_mask", "shape": [1, 4], "datatype": "UINT8"}]


@FUZZ
@given(fields=REQUESTS)
@example(fields={"model_name": "toy", "inputs": [TENSOR], "raw_input_contents": [ROW]})
@example(fields={"model_name": "toy", "inputs": [{**TENSOR, "shape": [2**62, 3]}], "raw_input_contents": [ROW]})
@example(fields={"model_name": "toy", "inputs": [{**TENSOR, "shape": [-1, 3]}], "raw_input_contents": [ROW]})
@example(fields={"model_name": "masked", "inputs": MASKS, "raw_input_contents": [ROW, bytes(4)]})
def test_fuzzed_requests(client: Client, fields: dict[str, object]) -> None:
    data = message("ModelInferRequest")(**fields).SerializeToString()
    found = client.call("ModelInfer", data)
    assert isinstance(found, bytes) or found in {BAD, UNKNOWN_NAME, FULL}
    if len(data) <= MAX_BODY:
        first, second = client.stream([data, request()])
        assert first.error_message != FAILED.text
        assert not second.error_message


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"sequence_id": {"double_param": 1.0}}, BAD),
        ({"sequence_id": {"bool_param": True}}, BAD),
        ({"sequence_id": {}}, BAD),
        ({"sequence_id": {"string_param": "a" * 257}}, BAD),
        ({"sequence_id": {"int64_param": 404}}, BAD),
        ({}, BAD),
    ],
    ids=["number", "bool", "none", "long", "not begun", "no sequence"],
)
def test_parameters_of_a_wrong_kind_are_the_clients_fault(client: Client, parameters: object, code: object) -> None:
    assert client.call("ModelInfer", request(model_name="memory", parameters=parameters)) is code


def test_what_waits_takes_little_more_than_its_bytes() -> None:
    """Outputs and parameters may be many, and long. Each took a hundred bytes while its request waited."""
    outputs = [{"name": "action"}] * 1_000
    data = request(outputs=outputs, parameters={f"{number:1000}": {} for number in range(600)})
    with serving(workers=1, max_batch=1, grpc=True) as server, connected(server) as client, halted(server):
        client.call("ServerLive", b"")
        before = psutil.Process().memory_info().rss
        waiting = [client.begun("ModelInfer", data) for _ in range(20)]
        # The worker has two of them.
        until(lambda: server.endpoint.stable.queued == 18)
        grown = psutil.Process().memory_info().rss - before
        resume(server)
        assert all(isinstance(ended(), bytes) for ended in waiting)
        assert grown < 120 << 20


def test_a_small_request_is_answered_among_hostile_ones() -> None:
    with serving(grpc=True) as server, connected(server) as client, connected(server) as other:
        requests = [data for _ in range(4) for data in hostile(1 << 20).values()]
        begun = [client.begun("ModelInfer", data) for data in requests]
        assert isinstance(other.call("ModelInfer", request()), bytes)
        assert {ended() for ended in begun} == {BAD}
