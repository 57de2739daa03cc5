"""The Open Inference Protocol without its transport: a policy as a model of named tensors, and its sequences.

Source: KServe v2, "Open Inference Protocol", with Triton's extensions for binary tensors and sequences.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import numpy as np

from penstock import __version__
from penstock.envs.given_arrays import array_given
from penstock.serving.observations import observation_of
from penstock.serving.server.admission.json_reading import most_values
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.endpoints.endpoint import Endpoint
from penstock.types import Array, Arrays, Composite, Discrete, Spaces

__all__ = ["DATATYPES", "Inference", "Model", "Models", "Outcome", "Tensor", "server_metadata"]

DATATYPES: Mapping[str, str] = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
}
"""NumPy's names of number types, and the protocol's."""
_DTYPES = {datatype: np.dtype(dtype).newbyteorder("<") for dtype, datatype in DATATYPES.items()}
_MASK = "action_mask"
_MAX_SEQUENCE = 256


def server_metadata() -> dict[str, Any]:
    """What ``GET /v2`` says."""
    return {
        "name": "penstock",
        "version": __version__,
        "extensions": ["binary_tensor_data", "sequence"],
    }


class Tensor(NamedTuple):
    """A tensor's place in a model."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    """The first dimension is the batch: -1."""


class Inference(NamedTuple):
    """A request for actions."""

    inputs: Mapping[str, Array]
    """As `Model.read` gives them."""
    outputs: Sequence[str]
    """Names of wanted outputs; empty: all."""
    parameters: Mapping[str, object]
    version: str
    """The wanted one; empty: any."""


class Outcome(NamedTuple):
    """The answer to an `Inference`."""

    outputs: dict[str, Array]
    version: int


class _Asker:
    """Waits for the answer to one request."""

    __slots__ = ("_answered", "_model", "_outputs", "_refused", "_version")

    def __init__(
        self,
        model: "Model",
        inference: Inference,
        answered: Callable[[Outcome], None],
        refused: Callable[[Refusal], None],
    ) -> None:
        self._model = model
        # No more of the request is kept while it waits: a client may send any number of outputs and parameters.
        self._outputs = tuple(dict.fromkeys(inference.outputs))
        self._version = inference.version
        self._answered = answered
        self._refused = refused

    def answered(self, action: Array, version: int) -> None:
        wanted = self._version
        if wanted and wanted != str(version):
            text = f"version {wanted} was rolled back; version {version} answers for it"
            self._refused(Refusal(HTTPStatus.NOT_FOUND, text))
        else:
            self._answered(Outcome(self._model.outputs_of(action, self._outputs), version))

    def refused(self, refusal: Refusal) -> None:
        self._refused(refusal)


class Model:
    """An endpoint as a v2 model.

    Attributes:
        endpoint: as given.
        inputs: the observation fields by name; the action mask is ``action_mask``.
        most_values: how many values the JSON of a request may hold.
        outputs: ``action``; for Dict and Tuple actions one output for each part, ``action.<path>``.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.name = endpoint.name
        spaces = endpoint.policy.spaces
        self._mask = spaces.mask
        self.most_values = most_values(spaces.sent(), endpoint.limits.max_batch)
        self.inputs = _inputs(spaces)
        self._by_name = {tensor.name: tensor for tensor in self.inputs}
        self._sent = {tensor.name: tensor for tensor in _inputs(spaces.sent())}
        """The inputs, and those that a client may still send though the policy does not take them."""
        none = endpoint.policy.session(1).answer(_zeros(endpoint))[:0]
        self.outputs = tuple(
            Tensor(name, DATATYPES[str(values.dtype)], (-1, *values.shape[1:]))
            for name, values in self._parts(none).items()
        )
        self._output_names = frozenset(tensor.name for tensor in self.outputs)

    def metadata(self) -> dict[str, Any]:
        """What ``GET /v2/models/NAME`` says."""
        tensors = {
            kind: [{"name": one.name, "datatype": one.datatype, "shape": list(one.shape)} for one in found]
            for kind, found in (("inputs", self.inputs), ("outputs", self.outputs))
        }
        versions = [number for number, version in self.endpoint.versions.items() if not version.is_retired]
        return {"name": self.name, "versions": versions, "platform": "penstock", **tensors}

    def ranges(self) -> dict[str, tuple[int, int]]:
        """Least and largest value of each input that is a choice."""
        seen = self.endpoint.policy.spaces.seen
        return {name: (space.start, space.start + space.n - 1) for name, space in seen if isinstance(space, Discrete)}

    def read(self, name: str, datatype: str, shape: Sequence[object], data: object) -> Array:
        """An input tensor of a request.

        Args:
            name: of the input.
            datatype: of the request; must be the model's.
            shape: of the request, with the batch.
            data: bytes, little-endian; or numbers, flat or nested as ``shape`` says; or a function that reads
                that count of numbers, and gives ``None`` if there are more or fewer.

        Raises:
            Refusal: it is no input of this model, or does not fit it (400).
        """
        tensor = self._sent.get(name)
        if tensor is None:
            raise _bad(f"there is no input {name[:80]!r}; the inputs are {', '.join(self._by_name)}")
        if datatype != tensor.datatype:
            raise _bad(f"input {name} has datatype {datatype[:20]}, wanted {tensor.datatype}")
        # Not `isinstance`: true and false are no sizes.
        sizes = [size for size in shape if type(size) is int and size >= 0]
        if len(sizes) != len(shape) or len(sizes) != len(tensor.shape) or tuple(sizes[1:]) != tensor.shape[1:]:
            text = f"input {name} has shape {_shown(shape[:16])}, wanted {_shown(('n', *tensor.shape[1:]))}"
            raise _bad(text)
        self.endpoint.limits.check_rows(sizes[0])
        dtype, count = _DTYPES[datatype], math.prod(sizes)
        if isinstance(data, bytes | memoryview):
            if len(data) != count * dtype.itemsize:
                raise _bad(f"input {name} has {len(data)} bytes, wanted {count * dtype.itemsize}")
            return np.frombuffer(data, dtype).reshape(sizes)
        try:
            values = array_given(data(count) if callable(data) else data)
        except ValueError:
            raise _bad(f"the data of input {name} has rows of different lengths") from None
        if values.dtype.kind not in "biuf" or values.size != count:
            raise _bad(f"the data of input {name} are not {count} numbers")
        # Rows of another length would be taken apart and put together anew.
        if values.shape not in {(count,), tuple(sizes)}:
            text = f"the data of input {name} are nested as {_shown(values.shape)}, wanted {_shown(sizes)}, or flat"
            raise _bad(text)
        return values.reshape(sizes)

    def infer(
        self, inference: Inference, answered: Callable[[Outcome], None], refused: Callable[[Refusal], None]
    ) -> None:
        """Answer a request. One of the two calls follows, unless this raises.

        The parameters ``sequence_id``, ``sequence_start`` and ``sequence_end`` select the memory of one sequence.

        Raises:
            Refusal: it is not answered.
        """
        if self.endpoint.agent is not None:
            text = f"policy {self.endpoint.name} is served with its agent {self.endpoint.agent}"
            raise _bad(f"{text}, which plays sessions of Gamecore only; penstock serve --agent off serves it alone")
        unknown = [name for name in inference.outputs if name not in self._output_names]
        if unknown:
            raise _bad(f"there is no output {unknown[0][:80]!r}; the outputs are {', '.join(self._output_names)}")
        missing = [name for name in self._by_name if name not in inference.inputs]
        if missing:
            raise _bad(f"input {missing[0]} is missing")
        seen = {name: values for name, values in inference.inputs.items() if name != _MASK or self._mask is None}
        mask = inference.inputs.get(_MASK) if self._mask is not None else None
        fields, _ = self.endpoint.check(observation_of(seen), mask)
        asker = _Asker(self, inference, answered, refused)
        sequence = inference.parameters.get("sequence_id", 0)
        if not isinstance(sequence, int | str) or isinstance(sequence, bool):
            raise _bad("sequence_id is neither a whole number nor a text")
        if isinstance(sequence, str) and len(sequence) > _MAX_SEQUENCE:
            raise _bad(f"sequence_id has {len(sequence)} characters; the most is {_MAX_SEQUENCE}")
        if sequence:
            self._in_sequence(sequence, inference, fields, asker)
        else:
            self.endpoint.ask(fields, asker, inference.version)

    def outputs_of(self, action: Array, wanted: Sequence[str]) -> dict[str, Array]:
        """Actions ``[n, ...]`` in the environment's own units as output tensors."""
        parts = self._parts(action)
        return {name: parts[name] for name in wanted} if wanted else parts

    def _in_sequence(self, sequence: int | str, inference: Inference, fields: Arrays, asker: _Asker) -> None:
        parameters, number = inference.parameters, inference.version
        key = ("sequence", sequence)
        begins, ends = _flag(parameters, "sequence_start"), _flag(parameters, "sequence_end")
        if begins:
            # As in Triton: a start of a sequence that lives begins it anew.
            if self.endpoint.sessions.has(key):
                self.endpoint.stop(key, _nothing)
            self.endpoint.start(key, number)
        elif not self.endpoint.sessions.has(key):
            raise _bad(f"sequence {sequence!r} has not begun, or was idle for too long; send sequence_start first")
        try:
            self.endpoint.tick(key, fields, asker, number)
        except Refusal:
            if begins:
                self.endpoint.stop(key, _nothing)
            raise
        if ends:
            self.endpoint.stop(key, _nothing)

    def _parts(self, action: Array) -> dict[str, Array]:
        space = self.endpoint.policy.spaces.action
        if not isinstance(space, Composite):
            return {"action": action}
        parts: dict[str, Array] = {}
        for path, _ in space.leaves:
            part: Any = self.endpoint.policy.batch(action)
            for key in path:
                part = part[key]
            parts[".".join(("action", *map(str, path)))] = part
        return parts


class Models:
    """The models of one server, by name."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._models = {endpoint.name: Model(endpoint) for endpoint in endpoints}

    def find(self, name: str, version: str) -> Model:
        """The model that a request names.

        Args:
            name: the model's.
            version: must be loaded; empty for any.

        Raises:
            Refusal: it is unknown here (404).
        """
        model = self._models.get(name)
        if model is None:
            there = ", ".join(map(repr, self._models))
            raise Refusal(HTTPStatus.NOT_FOUND, f"there is no model {name[:80]!r}; this server has {there}")
        model.endpoint.check_version(version)
        return model


def _inputs(spaces: Spaces) -> tuple[Tensor, ...]:
    """One input for each field of these spaces."""
    return tuple(
        Tensor(_MASK if spec.name == spaces.mask else spec.name, DATATYPES[spec.dtype], (-1, *spec.shape))
        for spec in spaces.obs_specs()
    )


def _zeros(endpoint: Endpoint) -> Arrays:
    """One row of zeros that begins an episode: only the form of its answer matters."""
    specs = endpoint.policy.spaces.obs_specs()
    return {"first": np.ones(1, np.bool_), **{spec.name: np.zeros((1, *spec.shape), spec.dtype) for spec in specs}}


def _nothing() -> None:
    """A sequence's end needs no reply of its own."""


def _shown(shape: Sequence[object]) -> str:
    return f"[{', '.join(str(size)[:20] for size in shape)}]"


def _flag(parameters: Mapping[str, object], name: str) -> bool:
    given = parameters.get(name, False)
    if not isinstance(given, bool):
        raise _bad(f"{name} is neither true nor false")
    return given


def _bad(text: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, text)
