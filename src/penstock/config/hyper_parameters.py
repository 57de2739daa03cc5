"""The settings of an algorithm, from its config dataclass. A user's class may have mistakes: each is one line.

The line names the class, the setting and the file. Does not know what the settings do.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.algorithm_lookup import AlgorithmPackage
from penstock.config.fields import Field, field_table, fields_of
from penstock.config.schema import RunConfig
from penstock.config.values import from_value
from penstock.errors import ConfigError, UsageError

__all__ = ["algorithm_config", "algorithm_fields"]


def algorithm_fields(algorithm: AlgorithmPackage) -> tuple[Field, ...]:
    """The settings of an algorithm, in order.

    Raises:
        ConfigError: a command line cannot write the type of one, one has the name of a setting of the run, or a default
            or a bound cannot be used.
    """
    try:
        field_table(RunConfig, algorithm.config)
        fields = fields_of(algorithm.config)
    except (NameError, TypeError) as error:
        raise ConfigError(f"algorithm {algorithm.name}: {error}{_place(algorithm)}") from error
    for field in fields:
        for fault in _faults(field, f"{algorithm.config.__name__}.{field.name}"):
            raise ConfigError(f"algorithm {algorithm.name}: {fault}{_place(algorithm)}")
    return fields


def algorithm_config(algorithm: AlgorithmPackage, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - of any class
    """The config of an algorithm with these settings, the others at their defaults.

    Raises:
        ConfigError: the class itself refuses them.
    """
    try:
        return algorithm.config(**values)
    except UsageError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        raise ConfigError(
            f"algorithm {algorithm.name}: {algorithm.config.__name__} refuses its settings: {type(error).__name__}: "
            f"{text}{_place(algorithm)}"
        ) from error


def _faults(field: Field, name: str) -> Iterator[str]:
    """Faults of a setting's help, bounds and default. ``name`` is that of class and field."""
    text: object = field.help
    if not isinstance(text, str):
        yield f"the help of {name} is {text!r}; write a text: tunable(default, text, min=...)"
    for bound, value in (("min", field.minimum), ("max", field.maximum)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            yield f"{bound} of {name} is {value!r}; write a number"
    if not all(isinstance(choice, str) for choice in field.choices):
        yield f"choices of {name} are {field.choices!r}; write a tuple of texts"
    try:
        re.compile(field.pattern)
    except re.error as error:
        yield f"pattern of {name} is {field.pattern!r}, which is no regular expression: {error}"
    try:
        from_value(field, field.default, f"the default of {name}")
    except ConfigError as error:
        yield str(error)


def _place(algorithm: AlgorithmPackage) -> str:
    """The file of the config class."""
    module = sys.modules[algorithm.config.__module__]
    return f" ({module.__file__})"
