"""Reads JSON that anybody may have sent, if it holds no more values than a request of a policy may need."""

import math
from http import HTTPStatus
from typing import Any

import orjson

from penstock.serving.server.admission.refusal import Refusal
from penstock.types import Spaces

__all__ = ["most_values", "read_json"]

_BESIDE = 4096
"""Values that are no numbers of an observation."""


def most_values(spaces: Spaces, rows: int) -> int:
    """Most values of JSON in a request with ``rows`` observations: numbers, the arrays around them, a few more."""
    of_a_row = sum(math.prod(spec.shape) * (len(spec.shape) + 1) for spec in spaces.obs_specs())
    return rows * of_a_row + _BESIDE


def read_json(body: bytes, most: int) -> Any:  # noqa: ANN401 - any JSON
    """The value in a body.

    Args:
        body: from anybody.
        most: how many values it may hold. They are counted before the first one is made, because a value of two bytes
            may take seventy bytes of memory. What looks like a value within a text counts, too.

    Raises:
        Refusal: it is no JSON, or it holds more (400).
    """
    # Each value but the first of an array or object is behind a comma.
    if body.count(b",") + body.count(b"[") + body.count(b"{") > most:
        raise Refusal(
            HTTPStatus.BAD_REQUEST, f"the body holds more than {most} values, which no batch needs (--max_batch)"
        )
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        # Python's own module writes them.
        numbers = "; JSON has no NaN and no infinity" if b"NaN" in body or b"Infinity" in body else ""
        raise Refusal(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {error}{numbers}") from None
