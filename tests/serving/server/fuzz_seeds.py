"""Inputs from which the fuzzing of `fuzz_frames.py` begins: all that a good client would send.

Imports penstock in functions only, because atheris instruments what is imported after it.
"""

import json
import struct
from collections.abc import Mapping

from tests.envs import fuzz_dm_env_rpc, fuzz_mlagents

BODY = b'{"obs": [0.1, 0.2, 0.3]}'
PAIR = struct.Struct("!H")
"""Before a base and a delta: the size of the base."""
CALLS = ("ModelInfer", "ModelMetadata", "ModelReady", "ServerMetadata", "ServerLive", "ServerReady")
"""What the first byte of an input for ``grpc`` chooses from."""
_OBS = {"name": "obs", "shape": [1, 3], "datatype": "FP32"}


def seeds() -> Mapping[str, list[bytes]]:
    """The inputs of each target."""
    simulators = {"mlagents": fuzz_mlagents.seeds(), "dm_env_rpc": fuzz_dm_env_rpc.seeds()}
    return {"tcp": _tcp(), "http": _http(), "grpc": _grpc(), "delta": _delta(), **simulators}


def request(method: str, path: str, body: bytes, *headers: str) -> bytes:
    """A request of HTTP."""
    lines = (f"{method} {path} HTTP/1.1", "host: toy", *headers, f"content-length: {len(body)}", "", "")
    return "\r\n".join(lines).encode() + body


def _change() -> tuple[bytes, bytes]:
    """A body, and the delta from it to another one."""
    from penstock.gamecore.delta import encode

    longer = BODY.replace(b"0.3", b"0.25" + b" " * 60)
    change = encode(longer, longer.replace(b"0.1", b"0.9"))
    assert change is not None
    return longer, change


def _tcp() -> list[bytes]:
    from tests.serving.server.harness import GREETING, MAGIC, frame, second_frame

    longer, change = _change()
    first = [frame("a", "start"), frame("a", "tick", BODY, time=3), frame("a", "stop"), frame("", "", BODY, token="t")]
    second = [
        GREETING.pack(MAGIC, 2, 3, 0) + b"key",
        second_frame(1, "a", "start"),
        second_frame(2, "a", "tick", longer, encoding=1),
        second_frame(3, "a", "tick", change, base=2, encoding=2),
        second_frame(4, "a", "stop"),
    ]
    return [b"".join(first), b"".join(second), *first, *second[:1]]


def _http() -> list[bytes]:
    sequence = {"sequence_id": 5, "sequence_start": True}
    plain = json.dumps({"inputs": [{**_OBS, "data": [0.1, 0.2, 0.3]}], "parameters": sequence}).encode()
    sized = {**_OBS, "parameters": {"binary_data_size": 12}}
    head = json.dumps({"inputs": [sized], "parameters": {"binary_data_output": True}}).encode()
    infer = "/v2/models/toy/infer"
    return [
        request("POST", "/step", BODY, "session: a", "step_kind: start") + request("POST", "/step", BODY, "session: a"),
        request("POST", infer, plain),
        request("POST", infer, head + bytes(12), f"Inference-Header-Content-Length: {len(head)}"),
        b"POST /step HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
        request("GET", "/metrics", b""),
        request("GET", "/v2/models/toy", b""),
    ]


def _grpc() -> list[bytes]:
    from penstock.serving.server.protocols.open_inference.grpc.messages import message

    named = {"name": "toy", "version": "7"}
    infer, about = {"model_name": "toy", "id": "one"}, {"model_name": "toy", "model_version": "7"}
    numbers = {"contents": {"fp32_contents": [0.1, 0.2, 0.3]}}
    sequence = {"sequence_id": {"int64_param": 5}, "sequence_start": {"bool_param": True}}
    named_sequence = {"sequence_id": {"string_param": "a"}, "sequence_start": {"bool_param": True}}
    requests = [
        ("ModelInfer", {**infer, "inputs": [_OBS], "raw_input_contents": [struct.pack("<3f", 0.1, 0.2, 0.3)]}),
        ("ModelInfer", {**infer, "inputs": [{**_OBS, **numbers}], "outputs": [{"name": "action"}]}),
        ("ModelInfer", {**about, "inputs": [{**_OBS, **numbers}], "parameters": sequence}),
        ("ModelInfer", {**about, "inputs": [{**_OBS, **numbers}], "parameters": named_sequence}),
        ("ModelMetadata", named),
        ("ModelReady", named),
        ("ServerMetadata", {}),
        ("ServerLive", {}),
        ("ServerReady", {}),
    ]
    return [
        bytes((CALLS.index(name),)) + message(f"{name}Request")(**fields).SerializeToString()
        for name, fields in requests
    ]


def _delta() -> list[bytes]:
    longer, change = _change()
    return [PAIR.pack(len(longer)) + longer + change]
