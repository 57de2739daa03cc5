"""The calls of the Open Inference Protocol over gRPC: bytes of a client in, messages out. Opens no connection.

A request's message is let go before its answer is awaited, because it may take thirty times the memory of its bytes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from google.protobuf.message import DecodeError

from penstock.messages import ONEOF
from penstock.serving.server.grpc_messages import message
from penstock.serving.server.inference import DATATYPES, Inference, Model, Models, Outcome, server_metadata
from penstock.serving.server.refusal import Refusal
from penstock.serving.server.service import Service

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
        _read("ServerLiveRequest", data)
        return message("ServerLiveResponse")(live=True)

    async def _ready(self, data: bytes) -> Any:  # noqa: ANN401
        _read("ServerReadyRequest", data)
        return message("ServerReadyResponse")(ready=self._service.is_ready)

    async def _model_ready(self, data: bytes) -> Any:  # noqa: ANN401
        request = _read("ModelReadyRequest", data)
        model = self._models.find(request.name, request.version)
        return message("ModelReadyResponse")(ready=model.endpoint.is_ready and not self._service.is_ending)

    async def _server_metadata(self, data: bytes) -> Any:  # noqa: ANN401
        _read("ServerMetadataRequest", data)
        return message("ServerMetadataResponse")(**server_metadata())

    async def _model_metadata(self, data: bytes) -> Any:  # noqa: ANN401
        request = _read("ModelMetadataRequest", data)
        return message("ModelMetadataResponse")(**self._models.find(request.name, request.version).metadata())

    async def _model_infer(self, data: bytes) -> Any:  # noqa: ANN401
        reply = message("ModelInferResponse")()
        await self.infer(data, reply)
        return reply

    def _asked(self, data: bytes, reply: Any) -> tuple[Model, "asyncio.Future[Outcome]"]:  # noqa: ANN401
        """The model that an inference asks, and its answer."""
        request = _read("ModelInferRequest", data)
        reply.id = request.id
        model = self._models.find(request.model_name, request.model_version)
        inference = Inference(
            _inputs(model, request),
            [one.name for one in request.outputs],
            {name: _value(value) for name, value in request.parameters.items()},
            request.model_version,
        )
        answer: asyncio.Future[Outcome] = self._service.loop.create_future()
        model.infer(
            inference,
            lambda outcome: _settle(answer, lambda: answer.set_result(outcome)),
            lambda refusal: _settle(answer, lambda: answer.set_exception(refusal)),
        )
        return model, answer


def _read(kind: str, data: bytes) -> Any:  # noqa: ANN401
    """The message in these bytes.

    Raises:
        Refusal: there is none (400).
    """
    try:
        return message(kind).FromString(data)
    except DecodeError:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"the request is no {kind} of protobuf") from None


def _inputs(model: Model, request: Any) -> Mapping[str, Any]:  # noqa: ANN401
    """The tensors of a ``ModelInferRequest``, as `Model.read` gives them."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        text = f"there are {len(request.inputs)} inputs, but raw_input_contents has {len(raw)}"
        raise Refusal(HTTPStatus.BAD_REQUEST, text)
    inputs: dict[str, Any] = {}
    for place, one in enumerate(request.inputs):
        if one.name in inputs:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"there are two inputs {one.name[:80]!r}")
        data = raw[place] if raw else list(getattr(one.contents, _CONTENTS.get(one.datatype, "fp32_contents")))
        inputs[one.name] = model.read(one.name, one.datatype, list(one.shape), data)
    return inputs


def _value(parameter: Any) -> object:  # noqa: ANN401
    """A parameter as a Python value; ``None`` if its kind is unknown."""
    kind = parameter.WhichOneof(ONEOF)
    return None if kind is None else getattr(parameter, kind)


def _settle(answer: "asyncio.Future[Outcome]", settle: Callable[[], None]) -> None:
    """Settle a future, unless the client has given up and so cancelled it."""
    if not answer.done():
        settle()
