"""Reads what nodes ask of a cluster: ``env: {cpu: 1}, learner: {gpu: 1}``. Knows no cluster."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from penstock.config.fields import Demands
from penstock.config.tables import shown
from penstock.errors import ConfigError, nearest

__all__ = ["DEMANDS_EXAMPLE", "demands_of"]

DEMANDS_EXAMPLE = "env: {cpu: 1}, learner: {gpu: 1}"
_KINDS = ("env", "learner", "policy")
_WORDS = re.compile(r'"[^"]*"|(?<![\w.+-])[A-Za-z_][\w.-]*')
_LEAST = 0.0001
"""Ray counts resources in parts of this size."""
_IN_BYTES = ("memory", "object_store_memory")
_BYTES_EXAMPLE = "env: {memory: 8000000000}"
_BYTES = re.compile(r'memory"?\s*(?::([^,{}]*)|(?=[,}]|$))')
"""The amount behind such a name; empty if there is none."""


def demands_of(value: object, label: str) -> Demands:
    """What a node of each kind asks for, from its text or from a table of tables. ``label``: its name in error texts.

    Raises:
        ConfigError: the text cannot be read, a kind of node is unknown, or an amount is no positive number.
    """
    if isinstance(value, Demands):
        return value
    found = _table(value, label) if isinstance(value, str) else value
    if not isinstance(found, Mapping) or not found:
        raise _unreadable(label, f"{shown(value)} names no kind of node")
    return Demands({str(kind): _amounts(kind, asked, label) for kind, asked in found.items()})


def _table(text: str, label: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """JSON whose words need no quotes, and whose outer braces may be left out."""
    quoted = _WORDS.sub(lambda word: word[0] if word[0].startswith('"') else f'"{word[0]}"', text.strip())
    try:
        return json.loads(quoted if quoted.startswith("{") else f"{{{quoted}}}", object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        if not all(_is_json(amount) for amount in _BYTES.findall(text)):
            raise _unreadable(label, f"{shown(text)}; memory is a number of bytes", _BYTES_EXAMPLE) from None
        raise _unreadable(label, f"{shown(text)} ({getattr(error, 'msg', error)})") from None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{min(twice)} is given twice")
    return dict(pairs)


def _amounts(kind: object, asked: object, label: str) -> dict[str, float]:
    if kind not in _KINDS:
        name, known = shown(kind), ", ".join(_KINDS)
        raise ConfigError(f"{label} names the kind of node {name}; there are {known}{nearest(name, _KINDS)}")
    if not isinstance(asked, Mapping) or not asked:
        raise _unreadable(label, f"{kind} takes resources with amounts, not {shown(asked)}")
    found: dict[str, float] = {}
    for name, amount in asked.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not _LEAST <= amount < math.inf:
            wanted = f'bytes, as in "{_BYTES_EXAMPLE}"' if name in _IN_BYTES else f"at least {_LEAST}"
            raise ConfigError(f"{label} asks for {shown(name)}: {shown(amount)} for {kind}; give a number of {wanted}")
        own = str(name).lower() if str(name).lower() in {"cpu", "gpu"} else str(name)
        if not own.strip() or own in found:
            raise _unreadable(label, f"{kind} names the resource {shown(name)} {'twice' if own in found else ''}")
        if own == "gpu" and amount > 1 and amount != int(amount):
            raise ConfigError(
                f"{label} asks for gpu: {amount:g} for {kind}; Ray shares out parts of one, or whole ones"
            )
        found[own] = float(amount)
    return found


def _unreadable(label: str, why: str, example: str = DEMANDS_EXAMPLE) -> ConfigError:
    return ConfigError(f'{label} cannot be read: {why.strip()}; write it as "{example}"')
