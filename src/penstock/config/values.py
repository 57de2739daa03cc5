"""Parses and checks the value of one setting, from text, TOML or Python. Every error is one line."""

import math
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from penstock.config.demands import demands_of
from penstock.config.fields import Field, Scalar, Value
from penstock.config.tables import table_of, wrapping_of
from penstock.errors import ConfigError

__all__ = ["count_of", "from_text", "from_value"]

_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
_NONE = frozenset({"none"})
_BRACKETS = frozenset({"()", "[]"})
_BITS = {"int": 63, "float": 1023}
"""Type of a field -> the bits of the largest whole number that it can hold."""
_LONG = 199
"""Bits. A larger number has more than the 60 digits that an error text shows."""


def from_text(field: Field, text: str, label: str) -> Value:
    """Parse the text of a flag. ``label`` is its name in error texts (``--lr``).

    Raises:
        ConfigError: the text is not a value of this field, or is out of range.
    """
    if text in field.words:
        return text
    if field.optional and text.lower() in _NONE:
        return None
    if not field.many:
        return from_value(field, _scalar(field, text, label), label)
    parts = [part.strip() for part in _without_brackets(text).split(",")]
    if parts[-1] == "" and text.strip():
        parts.pop()  # Python writes a tuple of one element as (64,).
    return from_value(field, [_scalar(field, part, label) for part in parts], label)


def from_value(field: Field, value: object, label: str) -> Value:
    """Check a value and convert it to the field's type: a whole number becomes a float, a list becomes a tuple.

    Raises:
        ConfigError: the value has another type, or is out of range.
    """
    if field.optional and value is None:
        return None
    if isinstance(value, str) and value in field.words:
        return value
    if not field.many:
        return _checked(field, value, label)
    if field.optional and isinstance(value, list | tuple) and not value:
        return None
    if field.base == "wrapping" and isinstance(value, str | Mapping):
        # A text that begins with a bracket is refused as a whole, so it is not split.
        whole = not isinstance(value, str) or value.lstrip().startswith(("{", "["))
        value = [value] if whole else str(value).split(",")
    if getattr(value, "shape", None):
        value = getattr(value, "tolist", lambda: value)()
    if isinstance(value, str):
        parts = [part.strip() for part in _without_brackets(value).split(",")]
        if field.base in _BITS and any(map(str.isalpha, "".join(parts))):
            raise _refused(field, f'the text "{value}"', label)
        listed = ", ".join(f'"{part}"' if any(map(str.isalpha, part)) else part for part in parts)
        raise ConfigError(f'{label} takes a list, as [{listed}], not the text "{value[:60]}"')
    if not isinstance(value, Sequence) or not value:
        raise _refused(field, value, label)
    return tuple(_checked(field, element, label) for element in value)


def count_of(value: Any, label: str) -> int:  # noqa: ANN401 - whatever the user gave
    """Check a number that is an argument of a call and not a setting: a whole number of at least 1, NumPy's included.

    Raises:
        ConfigError: it is something else.
    """
    try:
        count = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = 0
    if count < 1:
        raise ConfigError(f"{label} takes a whole number of at least 1, not {repr(value)[:60]}")
    return count


def _without_brackets(text: str) -> str:
    """The text of a list without the brackets around all of it.

    Other brackets are part of an element: ``speed[m/s]``.
    """
    text = text.strip()
    while text[:1] + text[-1:] in _BRACKETS and _closes_at_end(text):
        text = text[1:-1].strip()
    return text


def _closes_at_end(text: str) -> bool:
    """True if the bracket with which a text begins is closed by its last character, and by none before."""
    opens, closes = text[0], text[-1]
    depth = 0
    for sign in text[:-1]:
        depth += (sign == opens) - (sign == closes)
        if depth == 0:
            return False
    return True


def _scalar(field: Field, text: str, label: str) -> Scalar:
    """One element of the field's base type."""
    text = text.strip() if field.base != "str" else text
    try:
        if field.base == "int":
            return _whole(text)
        if field.base == "float":
            return float(text)
    except (ValueError, OverflowError):
        raise _refused(field, text, label) from None
    if field.base == "bool":
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise _refused(field, text, label)
    return text


def _whole(text: str) -> int:
    """A whole number, also written as 1_000_000 or 1e6."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if number != int(number):
            raise ValueError(text) from None
        return int(number)


def _checked(field: Field, value: object, label: str) -> Scalar:
    """Check one element: its type and its bounds."""
    if field.base == "table":
        return table_of(value, label)
    if field.base == "wrapping":
        return wrapping_of(value, label)
    if field.base == "demands":
        return demands_of(value, label)
    if getattr(value, "shape", None) == ():
        # A number of NumPy's, which computed settings often are.
        value = getattr(value, "tolist", lambda: value)()
    if field.base in _BITS and isinstance(value, int) and not isinstance(value, bool):
        if value.bit_length() > _BITS[field.base]:
            raise _refused(field, value, label)
        value = float(value) if field.base == "float" else value
    expected = {"bool": bool, "int": int, "float": float, "str": str}[field.base]
    if not isinstance(value, expected) or (field.base == "int" and isinstance(value, bool)):
        raise _refused(field, f'the text "{value}"' if isinstance(value, str) else value, label)
    if field.choices and value not in field.choices:
        raise _refused(field, value, label)
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= sign <= "\udfff" for sign in value):
        # Python makes such characters of bytes that its locale cannot decode. No UTF-8 file can hold them.
        shown = value.encode(errors="replace").decode()
        raise ConfigError(f"{label} {shown} is not UTF-8 text; give another name, or set PYTHONUTF8=1")
    if isinstance(value, str) and field.pattern and not re.fullmatch(field.pattern, value):
        raise _refused(field, value, label)
    if isinstance(value, int | float):
        low, high = field.minimum, field.maximum
        # The comparisons are written so that NaN is refused too.
        if not (math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high)):
            raise _refused(field, value, label)
    return cast("Scalar", value)


def _refused(field: Field, value: object, label: str) -> ConfigError:
    if isinstance(value, int) and value.bit_length() > _LONG:
        value = f"a number of {value.bit_length()} bits"
    # 64.0 is no whole number, so its point is shown.
    shown = f"{value:g}" if isinstance(value, float) and field.base != "int" else str(value)
    return ConfigError(f"{label} takes {field.takes}, not {shown[:60] or 'nothing'}")
