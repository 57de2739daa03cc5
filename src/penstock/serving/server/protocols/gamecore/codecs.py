"""Codecs: how the bodies of Gamecore requests hold observations and actions."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

import numpy as np
import orjson

from penstock.gamecore.rows import read_row
from penstock.serving.observations import flat_row, observation_of, tuples_in, with_tuples
from penstock.serving.server.admission.json_reading import most_values, read_json
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.endpoints.endpoint import Endpoint
from penstock.types import Array, Arrays, Composite, Spaces

__all__ = ["CODECS", "Codec", "Heard", "JsonCodec", "RawCodec", "plain"]

_LONGEST_QUESTION = 64
"""Bytes of a body that asks for a description. Longer ones hold observations, and are not searched."""


class Heard(NamedTuple):
    """What a body says."""

    fields: Arrays
    """Checked observation fields ``[n, ...]``; empty if the body of a ``stop`` holds none."""
    batched: bool
    """They are a batch."""
    reward: Any = None
    """Of the action before, unchecked: an answer does not need it. ``None``: the body holds none."""
    terminated: Any = None
    """Of a ``stop``: whether the episode has ended by itself, unchecked."""


class Codec(Protocol):
    """Translates bodies."""

    content_type: str
    empty: bytes
    """The reply to ``start`` and ``stop``."""

    def decode(self, body: bytes) -> Heard:
        """What the body of a tick, or of a request without a session, says.

        Raises:
            Refusal: the body does not hold an observation (400).
        """
        ...

    def decode_end(self, body: bytes) -> Heard:
        """What the body of a ``stop`` says. It may be empty.

        Raises:
            Refusal: it cannot be read (400).
        """
        ...

    def asks_for_description(self, body: bytes) -> bool:
        """Whether the body of a request without a session asks what the policy takes, and for no action.

        Raises:
            Refusal: it cannot be read (400).
        """
        ...

    def encode(self, action: Array, *, batched: bool) -> bytes:
        """Actions ``[n, ...]`` in the environment's own units; one row if they are no batch."""
        ...


class JsonCodec:
    """``{"obs": VALUE, "action_mask": VALUE, "reward": NUMBER, "terminated": BOOL}`` and ``{"action": VALUE}``.

    Only ``obs``, and the mask of a policy that has masks, must be there. Other keys are ignored.
    """

    content_type = "application/json"
    empty = b"{}"

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        sent = endpoint.policy.spaces.sent()
        self._tuples = tuples_in([spec.name for spec in sent.obs_specs()])
        self._row = flat_row(endpoint.policy.spaces)
        """Numbers of an observation, for `read_row`; ``None``: `read_row` cannot read this policy's observations."""
        self._most = most_values(sent, endpoint.limits.max_batch)
        self._has_parts = isinstance(endpoint.policy.spaces.action, Composite)

    def decode(self, body: bytes) -> Heard:
        """See `Codec`. For Dict observations VALUE is an object, for Tuple observations an array."""
        # The usual case: no object of Python for each number, and the same bits.
        if self._row is not None and (read := read_row(body, self._row)) is not None:
            row, reward = read
            return Heard({"obs": np.ndarray((1, self._row), np.float32, row)}, batched=False, reward=reward)
        given = read_json(body, self._most)
        if not isinstance(given, dict) or "obs" not in given:
            raise Refusal(HTTPStatus.BAD_REQUEST, 'the body is no JSON object with "obs"')
        obs = with_tuples(given["obs"], self._tuples) if self._tuples else given["obs"]
        fields, batched = self._endpoint.check(obs, given.get("action_mask"))
        return Heard(fields, batched, given.get("reward"), given.get("terminated"))

    def decode_end(self, body: bytes) -> Heard:
        """See `Codec`. All keys may be left out."""
        given = read_json(body, self._most) if body else {}
        if not isinstance(given, dict):
            raise Refusal(HTTPStatus.BAD_REQUEST, "the body is no JSON object")
        if given.get("obs") is not None:
            return self.decode(body)
        return Heard({}, batched=False, reward=given.get("reward"), terminated=given.get("terminated"))

    def asks_for_description(self, body: bytes) -> bool:
        """See `Codec`. Such a body is ``{"describe": true}``."""
        return (
            len(body) <= _LONGEST_QUESTION
            and b'"describe"' in body
            and bool(read_json(body, self._most) == {"describe": True})
        )

    def encode(self, action: Array, *, batched: bool) -> bytes:
        """See `Codec`. Numbers are written so that reading them gives the same bits."""
        actions = self._endpoint.policy.batch(action) if self._has_parts else action
        return orjson.dumps({"action": plain(actions, None if batched else 0)})


class RawCodec:
    """Little-endian float32: the fields in the order of the server's metadata, the action mask among them. No batches.

    A body may also hold the fields that only the critic has seen, each at its place by name.
    """

    content_type = "application/octet-stream"
    empty = b""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        spaces = endpoint.policy.spaces
        self._mask = spaces.mask
        self._wanted = _bytes_of(spaces)
        self._layouts = {_bytes_of(one): one.obs_specs() for one in (spaces.sent(), spaces)}

    def decode(self, body: bytes) -> Heard:
        """See `Codec`. There is no place for a reward."""
        layout = self._layouts.get(len(body))
        if layout is None:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"the body has {len(body)} bytes, wanted {self._wanted} of float32")
        values = np.frombuffer(body, "<f4")
        fields, start = {}, 0
        for spec in layout:
            fields[spec.name] = values[start : start + spec.size].reshape(spec.shape)
            start += spec.size
        mask = None if self._mask is None else fields.pop(self._mask)
        return Heard(*self._endpoint.check(observation_of(fields), mask))

    def decode_end(self, body: bytes) -> Heard:
        """See `Codec`."""
        return self.decode(body) if body else Heard({}, batched=False)

    def asks_for_description(self, body: bytes) -> bool:  # noqa: ARG002 - every body is numbers
        """See `Codec`: no body does."""
        return False

    def encode(self, action: Array, *, batched: bool) -> bytes:  # noqa: ARG002 - there are no batches
        """See `Codec`. The elements of Dict and Tuple actions stand one after the other."""
        return action.astype("<f4").tobytes()


CODECS: Mapping[str, type[JsonCodec] | type[RawCodec]] = {"json": JsonCodec, "raw": RawCodec}


def _bytes_of(spaces: Spaces) -> int:
    """Bytes of an observation as float32."""
    return 4 * sum(spec.size for spec in spaces.obs_specs())


def plain(actions: Any, row: int | None) -> Any:  # noqa: ANN401 - as the action space is
    """Batches ``[n, ...]`` of a Dict, Tuple or array as Python values: all rows, or one."""
    # The usual case first: whether something is a Mapping takes longer to find out.
    if isinstance(actions, np.ndarray):
        return (actions if row is None else actions[row]).tolist()
    if isinstance(actions, Mapping):
        return {str(key): plain(part, row) for key, part in actions.items()}
    return [plain(part, row) for part in actions]
