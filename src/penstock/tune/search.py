"""Reads which settings to search (``lr=loguniform:1e-5:1e-2``) into data. Imports no Ray."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from penstock.config.fields import Field, Value, field_table
from penstock.config.other_names import unknown
from penstock.config.schema import RunConfig
from penstock.config.values import from_text
from penstock.config.whole import Config
from penstock.errors import ConfigError, nearest

__all__ = ["Search", "read_search"]

Kind = Literal["choice", "uniform", "loguniform", "int"]
_KINDS = ("choice", "uniform", "loguniform", "int")
_FORM = "choice:A,B,... or uniform:LOW:HIGH or loguniform:LOW:HIGH or int:LOW:HIGH"


@dataclass(frozen=True)
class Search:
    """The values of one setting that trials try."""

    name: str
    kind: Kind
    values: tuple[Value, ...]
    """All choices; or the lowest and the highest value, both included."""


def read_search(words: Sequence[str], config: Config) -> tuple[Search, ...]:
    """The searched settings.

    Args:
        words: of ``--search``: ``name=kind:values``, one or several behind each other, separated by commas.
        config: of the runs. Its algorithm has the settings.

    Raises:
        ConfigError: nothing is searched, an unknown setting or kind, a value that the setting does not take, a setting
            named twice.
    """
    if not words:
        raise ConfigError("nothing is searched; for example: --search lr=loguniform:1e-5:1e-2")
    fields = field_table(RunConfig, type(config.algorithm))
    # A comma before ``name=`` begins the next setting. Other commas part choices.
    parts = re.split(r",\s*(?=[A-Za-z_][\w-]*=)", ",".join(words))
    found = tuple(_one(part, fields) for part in parts)
    names = [search.name for search in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--search names {name} twice; leave out one of the two")
    return found


def _one(text: str, fields: Mapping[str, Field]) -> Search:
    name, equals, rest = text.partition("=")
    name = name.strip().replace("-", "_")
    kind, colon, values = rest.partition(":")
    if not equals or not colon or not kind.strip() or not values.strip():
        raise ConfigError(f"--search {text} cannot be read; write NAME={_FORM}")
    if kind not in _KINDS:
        raise ConfigError(f"--search {text}: unknown kind {kind}; write NAME={_FORM}{nearest(kind, _KINDS)}")
    if name not in fields:
        raise ConfigError(f"--search {text}: unknown setting {name}{unknown(name, fields)}")
    # Each trial gets one value of it.
    field = fields[name]._replace(many=fields[name].many and not fields[name].alone)
    given = values.split("," if kind == "choice" else ":")
    if kind == "choice" and field.many:
        # Commas part choices, so within a choice another sign parts its values.
        given = [choice.replace("+", ",") for choice in given]
    read = tuple(from_text(field, value.strip(), f"--search {name}") for value in given)
    if kind != "choice":
        _check_range(text, kind, field, read)
    return Search(name, cast("Kind", kind), read)


def _check_range(text: str, kind: str, field: Field, read: Sequence[Any]) -> None:
    """Check the two ends of a range.

    Raises:
        ConfigError: there are not two, they are no numbers of this kind, or not in order.
    """
    wanted = "int" if kind == "int" else "float"
    if len(read) != 2:
        raise ConfigError(f"--search {text}: {kind} takes a lowest and a highest value, as {kind}:LOW:HIGH")
    if field.base != wanted or field.many:
        ranges = {"int": "int or choice", "float": "uniform, loguniform or choice"}
        kinds = "choice" if field.many else ranges.get(field.base, "choice")
        raise ConfigError(f"--search {text}: {field.name} takes {field.takes}; search it with {kinds}")
    if not all(isinstance(value, int | float) for value in read):
        raise ConfigError(f"--search {text}: {kind} takes two numbers, as {kind}:LOW:HIGH")
    low, high = read
    if not low < high:
        raise ConfigError(f"--search {text}: the lowest value comes first, and the highest is above it")
    if kind == "loguniform" and low <= 0:
        raise ConfigError(f"--search {text}: loguniform needs a lowest value above 0")
