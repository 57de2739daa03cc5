"""The Open Inference Protocol: against ``tritonclient`` as it is, and requests written by hand."""

import gzip
import http.client
import json

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.service_pb2 as triton_messages
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from penstock.serving.server.protocols.open_inference.grpc.messages import FIELDS, SERVICE, message
from tests.serving.server.harness import Running, observations, policy_of, serving


@pytest.fixture(params=["http", "grpc"])
def triton(request: pytest.FixtureRequest):
    """The client package, and a function that connects it."""
    package = {"http": triton_http, "grpc": triton_grpc}[request.param]

    def connect(server: Running):
        port = server.http if request.param == "http" else server.grpc
        return package.InferenceServerClient(f"127.0.0.1:{port}")

    return package, connect


@pytest.fixture(scope="module")
def plain():
    """A server for requests that change nothing."""
    with serving() as server:
        yield server


def inputs(package, **arrays):
    found = []
    for name, values in arrays.items():
        dtype = {"float32": "FP32", "int64": "INT64", "uint8": "UINT8"}[str(values.dtype)]
        one = package.InferInput(name, list(values.shape), dtype)
        one.set_data_from_numpy(values)
        found.append(one)
    return found


def test_tritonclient_reads_health_and_metadata(triton) -> None:
    _, connect = triton
    with serving(grpc=True) as server, connect(server) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("toy")
        assert client.is_model_ready("toy", "7")
        assert not client.is_model_ready("nobody")
        about, model = client.get_server_metadata(), client.get_model_metadata("toy")
        if not isinstance(about, dict):
            about = {"name": about.name, "extensions": list(about.extensions)}
            model = {
                "name": model.name,
                "versions": list(model.versions),
                "inputs": [
                    {"name": one.name, "datatype": one.datatype, "shape": list(one.shape)} for one in model.inputs
                ],
            }
        assert about["name"] == "penstock"
        assert "binary_tensor_data" in about["extensions"]
        assert (model["name"], model["versions"]) == ("toy", ["7"])
        assert model["inputs"] == [{"name": "obs", "datatype": "FP32", "shape": [-1, 3]}]


def test_tritonclient_infers_the_policys_actions_bit_for_bit(triton) -> None:
    package, connect = triton
    obs = observations(5)
    with serving(grpc=True) as server, connect(server) as client:
        for settings in ({}, {"outputs": [package.InferRequestedOutput("action")]}, {"model_version": "7"}):
            result = client.infer("toy", inputs(package, obs=obs), request_id="one", **settings)
            np.testing.assert_array_equal(result.as_numpy("action"), policy_of("plain")(obs))
            response = result.get_response()
            assert (response["id"] if isinstance(response, dict) else response.id) == "one"


def test_tritonclient_sends_json_and_reads_json() -> None:
    obs = observations(3)
    one = triton_http.InferInput("obs", [3, 3], "FP32")
    one.set_data_from_numpy(obs, binary_data=False)
    with serving() as server, triton_http.InferenceServerClient(f"127.0.0.1:{server.http}") as client:
        wanted = [triton_http.InferRequestedOutput("action", binary_data=False)]
        result = client.infer("toy", [one], outputs=wanted)
        np.testing.assert_array_equal(result.as_numpy("action"), policy_of("plain")(obs))


@pytest.mark.parametrize("packed", ["gzip", "deflate"])
def test_tritonclient_packs_its_requests(packed: str) -> None:
    obs = observations(3)
    with serving(max_body=4096) as server, triton_http.InferenceServerClient(f"127.0.0.1:{server.http}") as client:
        result = client.infer("toy", inputs(triton_http, obs=obs), request_compression_algorithm=packed)
        np.testing.assert_array_equal(result.as_numpy("action"), policy_of("plain")(obs))
        whole = gzip.compress(b" " * 4097)
        for body, encoding, status in (
            (whole, "gzip", 413),
            (whole[:-1], "gzip", 413),
            (gzip.compress(b"{}")[:-1], "gzip", 400),
            (gzip.compress(b"{}") + b"x", "gzip", 400),
            (b"{}", packed, 400),
            (b"{}", "br", 415),
        ):
            headers = {"content-encoding": encoding}
            assert request(server, "POST", "/v2/models/toy/infer", body, **headers)[0] == status


def test_fields_and_masks_are_inputs_and_parts_of_actions_are_outputs(triton) -> None:
    package, connect = triton
    dial, which = np.array([[0.5, -0.5], [0.1, 0.2]], np.float32), np.array([2, 3])
    with serving("nested", grpc=True) as server, connect(server) as client:
        result = client.infer("toy", inputs(package, **{"obs.dial": dial, "obs.which": which}))
        np.testing.assert_array_equal(result.as_numpy("action"), policy_of("nested")({"dial": dial, "which": which}))
    with serving("masked", grpc=True) as server, connect(server) as client:
        mask = np.eye(4, dtype=np.uint8)
        result = client.infer("toy", inputs(package, obs=observations(4), action_mask=mask))
        np.testing.assert_array_equal(result.as_numpy("action"), [0, 1, 2, 3])
    with serving("parts", grpc=True) as server, connect(server) as client:
        obs = observations(4)
        result, wanted = client.infer("toy", inputs(package, obs=obs)), policy_of("parts")(obs)
        np.testing.assert_array_equal(result.as_numpy("action.steer"), wanted["steer"])
        np.testing.assert_array_equal(result.as_numpy("action.gear"), wanted["gear"])


def test_a_field_that_only_the_critic_has_seen_is_no_input_and_may_still_be_sent(triton) -> None:
    package, connect = triton
    dial, which = np.array([[0.5, -0.5], [0.1, 0.2]], np.float32), np.array([2, 3])
    wanted = policy_of("critic")({"dial": dial, "which": which})
    with serving("critic", grpc=True) as server, connect(server) as client:
        taken = inputs(package, **{"obs.dial": dial, "obs.which": which})
        for more in ({}, {"obs.state": observations(2)}):
            result = client.infer("toy", [*taken, *inputs(package, **more)])
            np.testing.assert_array_equal(result.as_numpy("action"), wanted)


@pytest.mark.parametrize("identities", [(5, 6), ("left", "right")])
def test_sequences_have_a_memory_each(triton, identities) -> None:
    package, connect = triton
    obs = observations(6)
    with serving("memory", grpc=True) as server, connect(server) as client:
        session = {identity: policy_of("memory").session(1) for identity in identities}

        def infer(row, identity, start=False, end=False):
            return client.infer(
                "toy", inputs(package, obs=row[None]), sequence_id=identity, sequence_start=start, sequence_end=end
            ).as_numpy("action")

        for number, row in enumerate(obs):
            for identity in identities:
                found = infer(row, identity, start=number == 0, end=number == 5)
                np.testing.assert_array_equal(found, session[identity].act(row[None]))
                obs = obs[::-1]
        assert len(server.endpoint.sessions) == 0
        with pytest.raises(InferenceServerException, match="has not begun"):
            infer(obs[0], identities[0])
        fresh = infer(obs[0], identities[0], start=True)
        infer(obs[1], identities[0])
        np.testing.assert_array_equal(infer(obs[0], identities[0], start=True), fresh)
        with pytest.raises(InferenceServerException, match="answers in sessions only"):
            client.infer("toy", inputs(package, obs=obs))


def test_a_grpc_stream_answers_in_order() -> None:
    obs = observations(20)
    found: list[object] = []
    with (
        serving("memory", grpc=True) as server,
        triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client,
    ):
        client.start_stream(lambda result, error: found.append(error or result.as_numpy("action")[0]))
        for number, row in enumerate(obs):
            client.async_stream_infer(
                "toy", inputs(triton_grpc, obs=row[None]), sequence_id=9, sequence_start=number == 0
            )
        client.async_stream_infer("toy", inputs(triton_grpc, obs=obs[:1]), sequence_id=10)
        client.stop_stream()
    session = policy_of("memory").session(1)
    np.testing.assert_array_equal(found[:-1], [session.act(row[None])[0] for row in obs])
    assert "has not begun" in str(found[-1])


BAD = [
    ({"model_name": "chess"}, "there is no model 'chess'"),
    ({"model_version": "8"}, "has no version '8'"),
    ({"shape": [1, 4]}, r"has shape \[1, 4\], wanted \[n, 3\]"),
    ({"dtype": "float64"}, "has datatype FP64, wanted FP32"),
    ({"name": "observation"}, "there is no input 'observation'"),
    ({"rows": 65}, "takes up to 64"),
    ({"rows": 0}, "holds no rows"),
    ({"output": "value"}, "there is no output 'value'"),
    ({"nan": True}, "holds NaN or infinity"),
]


@pytest.mark.parametrize(("change", "text"), BAD, ids=[next(iter(change)) + str(text)[-4:] for change, text in BAD])
def test_what_does_not_fit_is_one_clear_line(triton, change, text) -> None:
    package, connect = triton
    obs = np.zeros(change.get("shape", (change.get("rows", 1), 3)), change.get("dtype", "float32"))
    if "nan" in change:
        obs[:] = np.nan
    one = package.InferInput(change.get("name", "obs"), list(obs.shape), "FP64" if "dtype" in change else "FP32")
    one.set_data_from_numpy(obs)
    outputs = [package.InferRequestedOutput(change["output"])] if "output" in change else None
    name, version = change.get("model_name", "toy"), change.get("model_version", "")
    refused = pytest.raises(InferenceServerException, match=text)
    with serving(grpc=True) as server, connect(server) as client, refused:
        client.infer(name, [one], outputs=outputs, model_version=version)


def test_tokens_travel_as_a_header(triton) -> None:
    package, connect = triton
    with serving(grpc=True, token="secret") as server, connect(server) as client:
        assert client.is_server_ready()
        with pytest.raises(InferenceServerException, match="token is missing or wrong"):
            client.infer("toy", inputs(package, obs=observations(1)))
        headers = {"authorization": "Bearer secret"}
        found = client.infer("toy", inputs(package, obs=observations(1)), headers=headers)
        assert found.as_numpy("action").shape == (1, 2)


def test_our_messages_are_numbered_as_tritonclients() -> None:
    for name in FIELDS:
        public = triton_messages
        for part in name.split("."):
            public = getattr(public, part)
        theirs = public.DESCRIPTOR.fields_by_name
        for ours in message(name).DESCRIPTOR.fields:
            wanted = theirs[ours.name]
            found = [(one.number, one.type, one.is_repeated) for one in (ours, wanted)]
            assert found[0] == found[1], (name, ours.name)


def request(server: Running, method: str, path: str, body: bytes = b"", **headers: str):
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=120.0)
    connection.request(method, path, body, headers)
    reply = connection.getresponse()
    return reply.status, reply.read()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v2/models/toy/versions/7", b"", 200),
        ("GET", "/v2/models/toy/versions/7/ready", b"", 200),
        ("GET", "/v2/models/toy/versions/1", b"", 404),
        ("GET", "/v2/models/chess", b"", 404),
        ("GET", "/v2/models/toy/infer", b"", 405),
        ("DELETE", "/v2", b"", 405),
        ("POST", "/v2/health/live", b"", 405),
        ("PUT", "/v2/health/ready", b"", 405),
        ("POST", "/v2/models/toy", b"", 405),
        ("DELETE", "/v2/models/toy/versions/7/ready", b"", 405),
        ("DELETE", "/v2/elsewhere", b"", 404),
        ("GET", "/v2/models/toy/outfer", b"", 404),
        ("GET", "/v2/elsewhere", b"", 404),
        ("GET", "/nothing", b"", 404),
        ("POST", "/v2/models/toy/infer", b"{", 400),
        ("POST", "/v2/models/toy/infer", b"[]", 400),
        ("POST", "/v2/models/toy/infer", b"{}", 400),
        ("POST", "/v2/models/toy/infer", b'{"inputs": 3}', 400),
        ("POST", "/v2/models/toy/infer", b'{"inputs": [{"name": "obs"}]}', 400),
        (
            "POST",
            "/v2/models/toy/infer",
            b'{"inputs": [{"name": "obs", "shape": [1, 3], "datatype": "FP32", "data": [[1, 2], [3]]}]}',
            400,
        ),
    ],
)
def test_paths_and_bodies_by_hand(method: str, path: str, body: bytes, status: int) -> None:
    with serving() as server:
        found, reply = request(server, method, path, body)
        assert found == status
        if status >= 400:
            assert json.loads(reply)["error"]


@pytest.mark.parametrize("length", ["x", "-1", "1000", "99999999999999999999"])
def test_a_wrong_length_of_the_json_part_is_refused(length: str) -> None:
    with serving() as server:
        headers = {"Inference-Header-Content-Length": length}
        status, reply = request(server, "POST", "/v2/models/toy/infer", b"{}", **headers)
        assert status == 400
        assert "Inference-Header-Content-Length" in json.loads(reply)["error"]


def inferring(times: int = 1, **change: object) -> bytes:
    """A request for one action, with something in its input changed, which may come several times."""
    one = {"name": "obs", "shape": [1, 3], "datatype": "FP32", "data": [0, 0, 0], **change}
    return json.dumps({"inputs": [one] * times}).encode()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (inferring(shape=[True, 3]), "input obs has shape [True, 3], wanted [n, 3]"),
        (inferring(shape=[None, 3]), "input obs has shape [None, 3], wanted [n, 3]"),
        (inferring(shape=[-1, 3]), "input obs has shape [-1, 3], wanted [n, 3]"),
        (inferring(shape=[[1], 3]), "input obs has shape [[1], 3], wanted [n, 3]"),
        (inferring(shape=[1.0, 3]), "input obs has shape [1.0, 3], wanted [n, 3]"),
        (inferring(data=[None, 0, 0]), "the data of input obs are not 3 numbers"),
        (inferring(data=["A" * 100_000, *[0] * 4000]), "the data of input obs are not 3 numbers"),
        (inferring(data=[[0], [0], [0]]), "the data of input obs are nested as [3, 1], wanted [1, 3], or flat"),
        (inferring(shape=[2, 3], data=[[0, 0]] * 3), "are nested as [3, 2], wanted [2, 3], or flat"),
        (inferring(shape=[2, 3], data=[[[0, 0, 0]] * 2]), "are nested as [1, 2, 3], wanted [2, 3], or flat"),
        (inferring(parameters={"binary_data_size": True}), "binary_data_size of input 'obs' is more than"),
        (b'{"inputs": {}}', "inputs must be a list of objects"),
        (b'{"inputs": [1]}', "inputs must be a list of objects"),
        (b'{"inputs": null}', "input obs is missing"),
        (inferring(times=2), "there are two inputs 'obs'"),
        (inferring()[:-1] + b', "parameters": {"sequence_id": true}}', "sequence_id is neither a whole number nor"),
        (
            inferring()[:-1] + b', "parameters": {"sequence_id": 1, "sequence_start": "false"}}',
            "sequence_start is neither true nor false",
        ),
        (inferring()[:-1] + b', "parameters": {"sequence_id": "%b"}}' % (b"a" * 257), "has 257 characters"),
    ],
)
def test_what_json_calls_by_another_type_is_refused(plain: Running, body: bytes, text: str) -> None:
    status, reply = request(plain, "POST", "/v2/models/toy/infer", body)
    assert status == 400
    assert text in json.loads(reply)["error"]


def test_numbers_may_be_flat_or_nested_as_their_shape_says(plain: Running) -> None:
    bodies = [inferring(shape=[2, 3], data=data) for data in ([0.5] * 6, [[0.5] * 3] * 2)]
    flat, nested = (request(plain, "POST", "/v2/models/toy/infer", body) for body in bodies)
    assert flat == nested
    assert flat[0] == 200


def test_numbers_that_are_no_raw_bytes_over_grpc() -> None:
    dial, which = np.array([[0.5, -0.5], [0.1, 0.2]], np.float32), np.array([3, 1])
    tensors = [
        {"name": name, "datatype": kind, "shape": values.shape, "contents": {field: values.ravel().tolist()}}
        for name, kind, field, values in (
            ("obs.dial", "FP32", "fp32_contents", dial),
            ("obs.which", "INT64", "int64_contents", which),
        )
    ]
    with serving("nested", grpc=True) as server, grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        request = message("ModelInferRequest")(model_name="toy", inputs=tensors)
        reply = message("ModelInferResponse").FromString(infer(request.SerializeToString(), timeout=120.0))
    found = np.frombuffer(reply.raw_output_contents[0], np.int64)
    np.testing.assert_array_equal(found, policy_of("nested")({"dial": dial, "which": which}))


def test_an_input_comes_once_over_grpc() -> None:
    with serving(grpc=True) as server, triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        twice = inputs(triton_grpc, obs=observations(1)) * 2
        with pytest.raises(InferenceServerException, match="there are two inputs 'obs'"):
            client.infer("toy", twice)


def test_a_stream_that_is_refused_for_its_token_is_counted() -> None:
    with serving(grpc=True, token="secret") as server, grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        with pytest.raises(grpc.RpcError, match="token is missing or wrong"):
            next(channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")(iter(()), timeout=120.0))
        page = request(server, "GET", "/metrics", token="secret")[1]
    assert b'penstock_requests_total{protocol="inference-grpc",status="401"} 1.0' in page


def test_either_header_holds_the_token_everywhere() -> None:
    paths = (("GET", "/v2"), ("GET", "/metrics"), ("GET", "/admin/policies"), ("POST", "/step"))
    with serving(token="secret", admin_token="secret", grpc=True) as server:
        for headers in ({"token": "secret"}, {"authorization": "Bearer secret"}):
            for method, path in paths:
                assert request(server, method, path, b'{"obs": [0, 0, 0]}', **headers)[0] == 200, path
            client = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}")
            assert client.get_server_metadata(headers=headers).name == "penstock"
        assert request(server, "GET", "/v2", token="other", authorization="Bearer secret")[0] == 401


def test_an_error_that_nobody_has_foreseen_is_an_answer(
    triton, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection goes on, and the log holds one traceback."""
    package, connect = triton

    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    with serving(grpc=True) as server, connect(server) as client:
        with monkeypatch.context() as patch:
            patch.setattr(server.endpoint, "ask", fail)
            with pytest.raises(InferenceServerException, match="the server failed to answer this request"):
                client.infer("toy", inputs(package, obs=observations(1)))
        assert client.infer("toy", inputs(package, obs=observations(1))).as_numpy("action").shape == (1, 2)
        assert [bool(one.exc_info) for one in caplog.records if "failed" in one.getMessage()] == [True]
