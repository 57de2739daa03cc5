"""The calls of the Open Inference Protocol over gRPC: bytes of a client in, messages out. Opens no connection."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.connections.service import Service
from penstock.serving.server.protocols.open_inference.grpc.messages import FIELDS, message
from penstock.serving.server.protocols.open_inference.grpc.numbers import Numbers
from penstock.serving.server.protocols.open_inference.grpc.reading import Reader
from penstock.serving.server.protocols.open_inference.models import (
    DATATYPES,
    Inference,
    Model,
    Models,
    Outcome,
    server_metadata,
)
from penstock.types import Array

__all__ = ["Calls"]

_CONTENTS = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
"""Where an input's numbers stand if they are not raw bytes."""
_READER = Reader(FIELDS)
_MOST_SIZES = 32
"""Of a shape; more than an observation has."""


class Calls:
    """What a client may call. Each call may raise `Refusal`.

    Attributes:
        by_name: every call that has one request and one reply.
    """

    def __init__(self, service: Service, models: Models) -> None:
        self._service = service
        self._models = models
        self.by_name: Mapping[str, Callable[[bytes], Awaitable[Any]]] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._model_infer,
        }

    async def infer(self, data: bytes, reply: Any) -> None:  # noqa: ANN401
        """Answer an inference.

        Args:
            data: a ``ModelInferRequest``.
            reply: a ``ModelInferResponse`` to fill. A refusal leaves the request's id in it.
        """
        model, answer = self._asked(data, reply)
        outcome = await answer
        reply.model_name, reply.model_version = model.name, str(outcome.version)
        for name, values in outcome.outputs.items():
            reply.outputs.add(name=name, datatype=DATATYPES[str(values.dtype)], shape=values.shape)
            reply.raw_output_contents.append(values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())

    async def _live(self, data: bytes) -> Any:  # noqa: ANN401
        _READER.read("ServerLiveRequest", data)
        return message("ServerLiveResponse")(live=True)

    async def _ready(self, data: bytes) -> Any:  # noqa: ANN401
        _READER.read("ServerReadyRequest", data)
        return message("ServerReadyResponse")(ready=self._service.is_ready)

    async def _model_ready(self, data: bytes) -> Any:  # noqa: ANN401
        request = _READER.read("ModelReadyRequest", data)
        try:
            model = self._models.find(*_named(request))
        except Refusal:
            # A client may ask until there is one.
            return message("ModelReadyResponse")(ready=False)
        return message("ModelReadyResponse")(ready=model.endpoint.is_ready and not self._service.is_ending)

    async def _server_metadata(self, data: bytes) -> Any:  # noqa: ANN401
        _READER.read("ServerMetadataRequest", data)
        return message("ServerMetadataResponse")(**server_metadata())

    async def _model_metadata(self, data: bytes) -> Any:  # noqa: ANN401
        request = _READER.read("ModelMetadataRequest", data)
        return message("ModelMetadataResponse")(**self._models.find(*_named(request)).metadata())

    async def _model_infer(self, data: bytes) -> Any:  # noqa: ANN401
        reply = message("ModelInferResponse")()
        await self.infer(data, reply)
        return reply

    def _asked(self, data: bytes, reply: Any) -> tuple[Model, "asyncio.Future[Outcome]"]:  # noqa: ANN401
        """The model that an inference asks, and its answer."""
        request = _READER.read("ModelInferRequest", data)
        reply.id = request.get("id", "")
        version = request.get("model_version", "")
        model = self._models.find(request.get("model_name", ""), version)
        inference = Inference(
            _inputs(model, request.get("inputs", []), request.get("raw_input_contents", [])),
            [one.get("name", "") for one in request.get("outputs", [])],
            {name: _value(value) for name, value in request.get("parameters", {}).items()},
            version,
        )
        answer: asyncio.Future[Outcome] = self._service.loop.create_future()
        model.infer(
            inference,
            lambda outcome: _settle(answer, lambda: answer.set_result(outcome)),
            lambda refusal: _settle(answer, lambda: answer.set_exception(refusal)),
        )
        return model, answer


def _named(request: Mapping[str, str]) -> tuple[str, str]:
    """The model and version that a request is about."""
    return request.get("name", ""), request.get("version", "")


def _inputs(model: Model, inputs: Sequence[Mapping[str, Any]], raw: Sequence[memoryview]) -> Mapping[str, Array]:
    """The tensors of a ``ModelInferRequest``, as `Model.read` gives them.

    Args:
        model: reads them.
        inputs: their descriptions, and the numbers of those that are not raw.
        raw: bytes of all of them, or nothing.
    """
    if raw and len(raw) != len(inputs):
        text = f"there are {len(inputs)} inputs, but raw_input_contents has {len(raw)}"
        raise Refusal(HTTPStatus.BAD_REQUEST, text)
    found: dict[str, Array] = {}
    for place, one in enumerate(inputs):
        name, datatype = one.get("name", ""), one.get("datatype", "")
        if name in found:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"there are two inputs {name[:80]!r}")
        kind = _CONTENTS.get(datatype, "fp32_contents")
        data = raw[place] if raw else one.get("contents", {}).get(kind, Numbers("float")).array
        found[name] = model.read(name, datatype, _shape(one), data)
    return found


def _shape(one: Mapping[str, Any]) -> list[int]:
    """The shape of an input."""
    sizes = one["shape"].few(_MOST_SIZES) if "shape" in one else []
    if sizes is None:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"the shape of an input is not up to {_MOST_SIZES} whole numbers")
    return sizes


def _value(parameter: Mapping[str, object]) -> object:
    """The value of a parameter: of several the one that came last. ``None`` if its kind is unknown."""
    return next(reversed(list(parameter.values())), None)


def _settle(answer: "asyncio.Future[Outcome]", settle: Callable[[], None]) -> None:
    """Settle a future, unless the client has given up and so cancelled it."""
    if not answer.done():
        settle()
