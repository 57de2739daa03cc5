"""Fields of a config dataclass as data: the type, the bounds and the help text of each setting.

Flags, TOML keys, help and checks are all derived from these fields, so nothing about a setting is written twice. Knows
no particular setting.
"""

import dataclasses
import json
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

__all__ = [
    "AUTO",
    "BY_KL_COEF",
    "BY_LANES",
    "BY_NETWORKS",
    "BY_OPTIMIZER",
    "BY_PRIORITIES",
    "BY_PRIORITY_ALPHA",
    "BY_TARGET",
    "BY_TEMPERATURE",
    "REQUIRED",
    "Demands",
    "DependentDefaults",
    "Field",
    "Scalar",
    "Value",
    "Wrapping",
    "amounts_text",
    "field_table",
    "fields_of",
    "tunable",
]


@dataclasses.dataclass(frozen=True)
class Wrapping:
    """A wrapper by its name, and its keyword arguments. It is called as ``wrapper(env, **arguments)``."""

    use: str
    arguments: Mapping[str, Any]
    """Values that JSON can hold."""

    def __str__(self) -> str:
        return f"{self.use} {json.dumps(self.arguments)}" if self.arguments else self.use


@dataclasses.dataclass(frozen=True)
class Demands:
    """What a node of each kind asks of a cluster."""

    asked: Mapping[str, Mapping[str, float]]
    """Kind of node -> resource (``cpu``, ``gpu``, or a name of the cluster's own) -> amount."""

    def __str__(self) -> str:
        return ", ".join(f"{kind}: {self.of(kind)}" for kind in self.asked)

    def of(self, kind: str) -> str:
        """What one node of this kind asks for, as the user writes it."""
        return amounts_text(self.asked[kind])


def amounts_text(amounts: Mapping[str, float]) -> str:
    """Amounts of resources as the user writes them: ``{cpu: 1}``."""
    names = {name: name if re.fullmatch(r"[A-Za-z_][\w.-]*", name) else json.dumps(name) for name in amounts}
    return "{" + ", ".join(f"{names[name]}: {amount:.10g}" for name, amount in amounts.items()) + "}"


Scalar: TypeAlias = bool | int | float | str | dict[str, Any] | Wrapping | Demands
Value: TypeAlias = Scalar | tuple[Scalar, ...] | None
"""Values of settings: all that both a command line and TOML can write."""

_BOUNDS = ("min", "max", "choices", "pattern", "form", "adds", "alone", "fixed")
"""What `tunable` takes besides a default and a text."""

REQUIRED = dataclasses.MISSING
"""Marks a field without a default."""
AUTO = "auto"
"""Value of a setting that penstock decides, from the machine and from the run."""

BY_KL_COEF = "its checkpoints hold the weight of the penalty only if the run adapts it"
BY_LANES = "its lanes count rollouts of this length"
BY_NETWORKS = "its networks were made and trained with it"
BY_OPTIMIZER = "its checkpoints hold what this optimizer remembers"
BY_PRIORITIES = "its replay table was made with priorities, or without"
BY_PRIORITY_ALPHA = "priorities in its replay table are errors to this power"
BY_TARGET = "its checkpoints hold a target network, or none"
BY_TEMPERATURE = "its checkpoints hold its temperature"
"""Reasons why a resumed run keeps a setting, for ``fixed`` of fields."""

Base: TypeAlias = Literal["bool", "int", "float", "str", "table", "wrapping", "demands"]
_BASES: dict[Any, Base] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    dict[str, Any]: "table",
    Wrapping: "wrapping",
    Demands: "demands",
}


_SINGLE: dict[Base, str] = {
    "bool": "True or False",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "table": "a JSON object",
    "wrapping": "module:Wrapper",
    "demands": "resources for each kind of node",
}
_SEVERAL: dict[Base, str] = {**_SINGLE, "int": "whole numbers", "float": "numbers", "str": "texts"}


class Field(NamedTuple):
    """One setting. If ``many`` is true, bounds and choices hold for each element."""

    name: str
    base: Base
    many: bool
    """The value is a tuple of at least one element."""
    words: tuple[str, ...]
    """Words that are allowed instead of a value (``auto``)."""
    optional: bool
    """``None`` is allowed. TOML writes it by leaving the key out."""
    default: Value | object
    """The default, or ``REQUIRED``."""
    help: str
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    pattern: str
    """A regular expression that the whole text must match; empty: any text."""
    form: str
    """The pattern in words."""
    positional: bool
    """Given on a command line without a flag."""
    adds: bool
    """If the flag is given several times, all values count; otherwise the last one counts."""
    alone: bool
    """A value that is no list stands for a list of one."""
    fixed: str
    """Why a resumed run keeps its value; empty: it may change."""

    @property
    def required(self) -> bool:
        """True if there is no default."""
        return self.default is REQUIRED

    @property
    def takes(self) -> str:
        """The allowed values in words: ``a number from 0 to 1``."""
        if self.choices:
            kind = f"one of {', '.join(self.choices)}"
        elif self.form:
            kind = self.form
        else:
            kind = (_SEVERAL if self.many else _SINGLE)[self.base] + self._bounds()
            kind += ", separated by commas" if self.many else ""
        return " or ".join((*self.words, kind))

    def _bounds(self) -> str:
        if self.minimum is not None and self.maximum is not None:
            return f" from {_shown(self.minimum)} to {_shown(self.maximum)}"
        if self.minimum is not None:
            return f" of at least {_shown(self.minimum)}"
        return f" of at most {_shown(self.maximum)}" if self.maximum is not None else ""


@runtime_checkable
class DependentDefaults(Protocol):
    """A config class some of whose defaults depend on what the user gave."""

    @classmethod
    def defaults_beside(cls, given: Mapping[str, Any], num_envs: int) -> Mapping[str, Any]:
        """Setting -> default that takes the place of the field's own.

        Args:
            given: the algorithm's settings that the user gave.
            num_envs: lanes of the run.
        """
        ...


def _shown(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def tunable(default: Any, text: str, **bounds: object) -> Any:  # noqa: ANN401  (a field stands for its value)
    """A hyper-parameter: its default, and a text on what moves when you change it (with the usual range).

    ``bounds`` are:

    - ``min``, ``max``, ``choices``: what values are allowed.
    - ``pattern``: a regular expression for text. ``form``: the same in words, for error texts and the help.
    - ``adds``: a repeated flag adds to a list.
    - ``alone``: a value that is no list counts as a list of one.
    - ``fixed``: why a resumed run must keep its value.

    Raises:
        TypeError: there is no such bound.
    """
    unknown = [name for name in bounds if name not in _BOUNDS]
    if unknown:
        raise TypeError(f"tunable has no {unknown[0]}; it takes {', '.join(_BOUNDS)}")
    return dataclasses.field(default=default, metadata={"help": text, **bounds})


def fields_of(config: type) -> tuple[Field, ...]:
    """Every field of a config dataclass, in order.

    Raises:
        TypeError: a command line cannot write the type of a field; correct the config class.
    """
    hints = typing.get_type_hints(config)
    return tuple(_field(field, hints[field.name]) for field in dataclasses.fields(config))


def field_table(*configs: type) -> dict[str, Field]:
    """Name -> field of several config dataclasses, which share one namespace.

    Raises:
        TypeError: two of them have a field of the same name.
    """
    table: dict[str, Field] = {}
    for config in configs:
        for field in fields_of(config):
            if field.name in table:
                raise TypeError(f"{config.__name__}.{field.name} has the name of a setting that exists already")
            table[field.name] = field
    return table


def _field(field: "dataclasses.Field[Any]", hint: object) -> Field:
    members = typing.get_args(hint) if typing.get_origin(hint) in {typing.Union, types.UnionType} else (hint,)
    values = [member for member in members if member is not type(None) and typing.get_origin(member) is not Literal]
    words = tuple(
        word for member in members if typing.get_origin(member) is Literal for word in typing.get_args(member)
    )
    many = bool(values) and typing.get_origin(values[0]) is tuple
    element = typing.get_args(values[0])[0] if many else (values[0] if values else str)
    if len(values) > 1 or element not in _BASES or not all(isinstance(word, str) for word in words):
        raise TypeError(f"a setting cannot have the type {hint}: {field.name}")
    metadata = field.metadata
    return Field(
        name=field.name,
        base=_BASES[element],
        many=many,
        words=words if values else (),
        optional=type(None) in members,
        default=field.default if field.default_factory is dataclasses.MISSING else field.default_factory(),
        help=metadata.get("help", ""),
        minimum=metadata.get("min"),
        maximum=metadata.get("max"),
        choices=tuple(metadata.get("choices", () if values else words)),
        pattern=metadata.get("pattern", ""),
        form=metadata.get("form", ""),
        positional=metadata.get("positional", False),
        adds=metadata.get("adds", False),
        alone=metadata.get("alone", False),
        fixed=metadata.get("fixed", ""),
    )
