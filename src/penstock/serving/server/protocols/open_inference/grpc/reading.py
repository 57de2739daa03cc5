"""Reads messages of protobuf that anybody may have sent, by the table of their fields, within bounds.

Protobuf's own reader makes objects of whatever comes: up to forty times a message's bytes, all at once. This one reads
a bounded number of fields, and texts of a bounded length. What may be large stays bytes: tensors and repeated numbers.

Source: https://protobuf.dev/programming-guides/encoding. Groups, which protobuf has given up, are refused.
"""

from http import HTTPStatus
from typing import Any, NamedTuple

from penstock.messages import Fields
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.protocols.open_inference.grpc.numbers import FLOATS, WHOLE, Numbers, varint, whole

__all__ = ["MOST_FIELDS", "MOST_TEXT", "Reader"]

MOST_FIELDS = 4096
"""Of a message and all messages in it together. Fields that the table lacks count, too."""
MOST_TEXT = 1 << 16
"""Bytes of one text."""

_VARINT, _EIGHT, _SIZED, _FOUR = 0, 1, 2, 5
"""How a value stands on the wire."""
_NUMBERS = 1 << 29
_WIDTHS = {_FOUR: 4, _EIGHT: 8}
_OWN_WIRE = {**dict.fromkeys(WHOLE, _VARINT), "float": _FOUR, "double": _EIGHT}


class _Field(NamedTuple):
    name: str
    kind: str
    """A type of the table, or the message that is a pair of a map."""
    modifier: str
    """``repeated``, ``map``, or empty."""


class Reader:
    """Reads the messages of one table.

    Args:
        table: as `penstock.messages` describes it. Values of maps are messages.
    """

    def __init__(self, table: Fields) -> None:
        self._messages: dict[str, dict[int, _Field]] = {}
        for name, fields in table.items():
            own = self._messages[name] = {}
            for field, (number, words) in fields.items():
                *modifiers, kind = words.split()
                if "map" in modifiers:
                    pair = f"{name}.{field}"
                    self._messages[pair] = {1: _Field("key", "string", ""), 2: _Field("value", kind, "")}
                    own[number] = _Field(field, pair, "map")
                else:
                    own[number] = _Field(field, kind, "repeated" if "repeated" in modifiers else "")

    def read(self, name: str, data: bytes) -> dict[str, Any]:
        """The fields that are set in a message. One that is not repeated stands where it was set last.

        A message or map is a dict. Repeated numbers are `Numbers`, all else that is repeated is a list. Bytes are views
        of ``data``.

        Raises:
            Refusal: these bytes are no such message, or exceed the bounds (400).
        """
        try:
            return _Reading(self._messages).message(name, memoryview(data), {})
        except (IndexError, ValueError):
            raise Refusal(HTTPStatus.BAD_REQUEST, f"the request is no {name} of protobuf") from None


class _Reading:
    """Reads one message.

    Args:
        messages: message -> number of a field -> the field.
    """

    def __init__(self, messages: dict[str, dict[int, _Field]]) -> None:
        self._messages = messages
        self._left = MOST_FIELDS

    def message(self, name: str, data: memoryview, found: dict[str, Any]) -> dict[str, Any]:
        """Add what these bytes say to what is found already: a message may come in parts."""
        fields, at = self._messages[name], 0
        while at < len(data):
            if not self._left:
                raise Refusal(HTTPStatus.BAD_REQUEST, f"the request has more than {MOST_FIELDS} fields")
            self._left -= 1
            tag, at = varint(data, at)
            number, wire = tag >> 3, tag & 7
            if not 0 < number < _NUMBERS:
                raise ValueError("no field has this number")
            begin, at = _extent(data, at, wire)
            field = fields.get(number)
            if field is not None:
                self._add(found, field, wire, data[begin:at])
        return found

    def _add(self, found: dict[str, Any], field: _Field, wire: int, value: memoryview) -> None:
        """Add one value of a field. As in protobuf, another kind of value counts as an unknown field."""
        name, kind, modifier = field
        own = _OWN_WIRE.get(kind, _SIZED)
        if modifier == "repeated" and own != _SIZED:
            if wire in {own, _SIZED}:
                found.setdefault(name, Numbers(kind)).add(value)
        elif wire != own:
            return
        elif modifier == "map":
            pair = self.message(kind, value, {})
            found.setdefault(name, {})[pair.get("key", "")] = pair.get("value", {})
        elif kind in self._messages:
            if modifier == "repeated":
                found.setdefault(name, []).append(self.message(kind, value, {}))
            else:
                found[name] = self.message(kind, value, found.pop(name, {}))
        elif modifier == "repeated":
            found.setdefault(name, []).append(_scalar(field, value))
        else:
            found.pop(name, None)
            found[name] = _scalar(field, value)


def _scalar(field: _Field, value: memoryview) -> object:
    """What the bytes of a number, a text or bytes say."""
    kind = field.kind
    if kind in FLOATS:
        return FLOATS[kind].unpack(value)[0]
    if kind in WHOLE:
        return whole(kind, varint(value, 0)[0])
    if kind == "bytes":
        return value
    if len(value) > MOST_TEXT:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"{field.name} has {len(value)} bytes; the most is {MOST_TEXT}")
    return str(value, "utf-8")


def _extent(data: memoryview, at: int, wire: int) -> tuple[int, int]:
    """Where the value of a field begins and ends, whose tag ends at ``at``."""
    if wire == _SIZED:
        size, at = varint(data, at)
    elif wire == _VARINT:
        return at, varint(data, at)[1]
    elif wire in _WIDTHS:
        size = _WIDTHS[wire]
    else:
        raise ValueError("there is no such kind of value, or it is a group")
    if size > len(data) - at:
        raise ValueError("the value is cut off")
    return at, at + size
