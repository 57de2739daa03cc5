"""The messages of the Open Inference Protocol over gRPC, as the public KServe and Triton definition numbers them.

Only the fields that this server reads or writes are listed.

Source: ``grpc_predict_v2.proto`` of KServe, ``grpc_service.proto`` of Triton.
"""

from typing import Any

from penstock.messages import Fields, message_classes

__all__ = ["FIELDS", "PACKAGE", "SERVICE", "message"]

PACKAGE = "inference"
SERVICE = "inference.GRPCInferenceService"

FIELDS: Fields = {
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": (1, "bool")},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": (1, "bool")},
    "ModelReadyRequest": {"name": (1, "string"), "version": (2, "string")},
    "ModelReadyResponse": {"ready": (1, "bool")},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {"name": (1, "string"), "version": (2, "string"), "extensions": (3, "repeated string")},
    "ModelMetadataRequest": {"name": (1, "string"), "version": (2, "string")},
    "ModelMetadataResponse": {
        "name": (1, "string"),
        "versions": (2, "repeated string"),
        "platform": (3, "string"),
        "inputs": (4, "repeated ModelMetadataResponse.TensorMetadata"),
        "outputs": (5, "repeated ModelMetadataResponse.TensorMetadata"),
    },
    "ModelMetadataResponse.TensorMetadata": {
        "name": (1, "string"),
        "datatype": (2, "string"),
        "shape": (3, "repeated int64"),
    },
    "InferParameter": {
        "bool_param": (1, "oneof bool"),
        "int64_param": (2, "oneof int64"),
        "string_param": (3, "oneof string"),
        "double_param": (4, "oneof double"),
        "uint64_param": (5, "oneof uint64"),
    },
    "InferTensorContents": {
        "bool_contents": (1, "repeated bool"),
        "int_contents": (2, "repeated int32"),
        "int64_contents": (3, "repeated int64"),
        "uint_contents": (4, "repeated uint32"),
        "uint64_contents": (5, "repeated uint64"),
        "fp32_contents": (6, "repeated float"),
        "fp64_contents": (7, "repeated double"),
    },
    "ModelInferRequest": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "parameters": (4, "map InferParameter"),
        "inputs": (5, "repeated ModelInferRequest.InferInputTensor"),
        "outputs": (6, "repeated ModelInferRequest.InferRequestedOutputTensor"),
        "raw_input_contents": (7, "repeated bytes"),
    },
    "ModelInferRequest.InferInputTensor": {
        "name": (1, "string"),
        "datatype": (2, "string"),
        "shape": (3, "repeated int64"),
        "contents": (5, "InferTensorContents"),
    },
    "ModelInferRequest.InferRequestedOutputTensor": {"name": (1, "string")},
    "ModelInferResponse": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "outputs": (5, "repeated ModelInferResponse.InferOutputTensor"),
        "raw_output_contents": (6, "repeated bytes"),
    },
    "ModelInferResponse.InferOutputTensor": {
        "name": (1, "string"),
        "datatype": (2, "string"),
        "shape": (3, "repeated int64"),
    },
    "ModelStreamInferResponse": {"error_message": (1, "string"), "infer_response": (2, "ModelInferResponse")},
}
"""The messages, nested as in the definition."""

_CLASSES = message_classes(PACKAGE, FIELDS)


def message(name: str) -> Any:  # noqa: ANN401 - a class that protobuf makes
    """The class of one message."""
    return _CLASSES[name]
