"""The Open Inference Protocol over HTTP: health, metadata, and inference with JSON or binary tensors."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import numpy as np
import orjson

from penstock.serving.server.admission.json_reading import read_json
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.connections.http import JSON, HttpReply, HttpRequest
from penstock.serving.server.connections.service import Service
from penstock.serving.server.protocols.open_inference.models import (
    DATATYPES,
    Inference,
    Model,
    Models,
    Outcome,
    server_metadata,
)
from penstock.types import Array

__all__ = ["HEALTH", "PATH", "InferenceHttp"]

PATH = "/v2"
HEALTH = f"{PATH}/health"
PROTOCOL = "inference-http"
_HEAD_SIZE = b"inference-header-content-length"
_READS = ("GET", "HEAD")
"""Methods of requests that change nothing and ask for no action."""


class InferenceHttp:
    """Answers requests at and below `PATH`."""

    def __init__(self, service: Service, models: Models) -> None:
        self._service = service
        self._models = models

    def route(self, request: HttpRequest, reply: HttpReply) -> None:
        """Take one request.

        Raises:
            Refusal: it is not answered.
        """
        reply.protocol, reply.error_keys = PROTOCOL, ("error",)
        parts = request.path.removeprefix(PATH).strip("/").split("/")
        if parts[0] == "health":
            # Whoever watches over the server needs no token.
            self._health(parts, request, reply)
            return
        if not self._service.tokens.accept_headers(request.headers):
            raise Refusal(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")
        match parts:
            case [""]:
                _check_method(request, _READS)
                reply.send_json(server_metadata())
            case ["models", name, *rest]:
                version = ""
                if rest[:1] == ["versions"] and len(rest) > 1:
                    version, rest = rest[1], rest[2:]
                self._of_model(self._models.find(name, version), version, request, rest, reply)
            case _:
                raise _unknown(request)

    def _health(self, parts: list[str], request: HttpRequest, reply: HttpReply) -> None:
        match parts:
            case ["health", "live"]:
                _check_method(request, _READS)
                reply.send_json({"live": True})
            case ["health", "ready"]:
                _check_method(request, _READS)
                self._ready(reply, ready=self._service.is_ready)
            case _:
                raise Refusal(HTTPStatus.NOT_FOUND, "there are /v2/health/live and /v2/health/ready")

    def _ready(self, reply: HttpReply, *, ready: bool) -> None:
        reply.send_json({"ready": ready}, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)

    def _of_model(self, model: Model, version: str, request: HttpRequest, rest: list[str], reply: HttpReply) -> None:
        match rest:
            case []:
                _check_method(request, _READS)
                ranges = model.ranges()
                reply.send_json(model.metadata() | ({"parameters": {"ranges": ranges}} if ranges else {}))
            case ["ready"]:
                _check_method(request, _READS)
                self._ready(reply, ready=model.endpoint.is_ready and not self._service.is_ending)
            case ["infer"]:
                _check_method(request, ("POST",))
                self._infer(model, version, request, reply)
            case _:
                raise _unknown(request)

    def _infer(self, model: Model, version: str, request: HttpRequest, reply: HttpReply) -> None:
        head, binary = _parted(request, model.most_values)
        inputs, place = {}, 0
        for given in _list(head, "inputs"):
            name, size = str(given.get("name", "")), _mapping(given, "parameters").get("binary_data_size")
            data: object = given.get("data")
            if size is not None:
                if type(size) is not int or not 0 <= size <= len(binary) - place:
                    raise _bad(f"binary_data_size of input {name[:80]!r} is more than the bytes that follow")
                data, place = binary[place : place + size], place + size
            shape = given.get("shape")
            if not isinstance(shape, list) or data is None:
                raise _bad(f"input {name[:80]!r} lacks its shape or its data")
            if name in inputs:
                raise _bad(f"there are two inputs {name[:80]!r}")
            inputs[name] = model.read(name, str(given.get("datatype", "")), shape, data)
        if place != len(binary):
            raise _bad(f"{len(binary) - place} bytes follow after the last input")
        parameters = _mapping(head, "parameters")
        wanted = _list(head, "outputs")
        names = [str(one.get("name", "")) for one in wanted]
        asked = {name: _mapping(one, "parameters") for name, one in zip(names, wanted, strict=True)}
        by_default = parameters.get("binary_data_output") is True
        identity = head.get("id")

        def answered(outcome: Outcome) -> None:
            told = {"model_name": model.name, "model_version": str(outcome.version)}
            if isinstance(identity, str) and identity:
                told["id"] = identity
            in_binary = {name: asked.get(name, {}).get("binary_data", by_default) is True for name in outcome.outputs}
            _send(reply, told, outcome.outputs, in_binary)

        model.infer(Inference(inputs, names, parameters, version), answered, reply.refused)


def _send(
    reply: HttpReply, told: Mapping[str, str], outputs: Mapping[str, Array], in_binary: Mapping[str, bool]
) -> None:
    """Send outputs as JSON; those in binary follow it."""
    listed: list[dict[str, Any]] = []
    blobs = []
    for name, values in outputs.items():
        one: dict[str, Any] = {"name": name, "datatype": DATATYPES[str(values.dtype)], "shape": list(values.shape)}
        if in_binary[name]:
            blob = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
            one["parameters"] = {"binary_data_size": len(blob)}
            blobs.append(blob)
        else:
            one["data"] = np.ravel(values).tolist()
        listed.append(one)
    head = orjson.dumps({**told, "outputs": listed})
    if not blobs:
        reply.send(HTTPStatus.OK, JSON, head)
        return
    more = f"inference-header-content-length: {len(head)}\r\n"
    reply.send(HTTPStatus.OK, "application/octet-stream", b"".join((head, *blobs)), more)


def _parted(request: HttpRequest, most: int) -> tuple[dict[str, Any], memoryview]:
    """The JSON of a request, which may hold ``most`` values, and the bytes that follow it."""
    body, size = request.body, len(request.body)
    given = request.header(_HEAD_SIZE)
    if given:
        if not (given.isascii() and given.isdigit() and len(given) < 12 and int(given) <= size):
            raise _bad(f"Inference-Header-Content-Length is {given[:40]!r}, but the body has {size} bytes")
        size = int(given)
    head = read_json(body[:size], most)
    if not isinstance(head, dict):
        raise _bad("the request is no JSON object")
    return head, memoryview(body)[size:]


def _list(of: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """A list of JSON objects; empty if there is none."""
    found = of.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise _bad(f"{key} must be a list of objects")
    return found


def _mapping(of: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = of.get(key) or {}
    if not isinstance(found, dict):
        raise _bad(f"{key} is no object")
    return found


def _check_method(request: HttpRequest, taken: tuple[str, ...]) -> None:
    if request.method not in taken:
        text = f"{request.path[:120]} takes {' and '.join(taken)}, not {request.method}"
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, text)


def _unknown(request: HttpRequest) -> Refusal:
    return Refusal(HTTPStatus.NOT_FOUND, f"there is nothing at {request.path[:120]}")


def _bad(text: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, text)
