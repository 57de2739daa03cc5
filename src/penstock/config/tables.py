"""Settings that are more than a number or a text: a table of arguments, a wrapper with its arguments, or a network.

A command line writes a table as JSON. TOML and Python use their own tables, or JSON too. Imports no wrapper.
"""

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.config.fields import Demands, Wrapping
from penstock.errors import ConfigError
from penstock.paths import expanded

__all__ = ["as_toml", "inlined", "shown", "table_of", "wrapping_of"]


def table_of(value: object, label: str) -> dict[str, Any]:
    """A table of JSON values, from a mapping or from JSON text. ``label`` is its name in error texts.

    Raises:
        ConfigError: the text is not JSON, is no JSON object, or a value has no JSON form.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f'{label} is not JSON: {error}; an example: \'{{"render_mode": "human"}}\'') from None
    if not isinstance(value, Mapping):
        raise ConfigError(
            f'{label} takes a table of keyword arguments, such as \'{{"render_mode": "human"}}\' in JSON '
            f'or {{render_mode = "human"}} in TOML, not {shown(value)}'
        )
    return {_key(key, label): _plain(inner, label) for key, inner in value.items()}


def wrapping_of(value: object, label: str) -> Wrapping:
    """A wrapper from its name, or from ``{"use": name, "arguments": {...}}``.

    Raises:
        ConfigError: the value is neither.
    """
    if isinstance(value, Wrapping):
        return value
    if isinstance(value, str) and value.strip() and not set(value) & set("(){}[]\"'="):
        return Wrapping(value.strip(), {})
    if isinstance(value, Mapping) and isinstance(value.get("use"), str) and value.keys() <= {"use", "arguments"}:
        arguments = value.get("arguments", {})
        if not isinstance(arguments, Mapping | str):
            raise ConfigError(
                f"{label}: arguments of {value['use']} are a table, such as {{size = 84}}, not {shown(arguments)}"
            )
        return Wrapping(value["use"].strip(), table_of(arguments, f"{label}: arguments of {value['use']}"))
    if isinstance(value, Mapping) and (stray := next((key for key in value if key not in {"use", "arguments"}), None)):
        raise ConfigError(f"{label} takes use and arguments, not {stray}")
    raise ConfigError(
        f"{label} takes module:Wrapper; one with arguments stands in a file for --config: "
        f'wrap = [{{use = "module:Wrapper", arguments = {{size = 84}}}}]; not {shown(value)}'
    )


def as_toml(value: Any) -> Any:  # noqa: ANN401  (whatever a setting is)
    """A setting in a form that TOML can hold. `table_of` and `wrapping_of` read it back."""
    if isinstance(value, tuple):
        parts = [as_toml(part) for part in value]
        tables = [part for part in parts if isinstance(part, dict)]
        # A TOML array of this config holds either names or tables, never both.
        return [part if isinstance(part, dict) else {"use": part} for part in parts] if tables else parts
    if isinstance(value, Wrapping):
        return {"use": value.use, "arguments": as_toml(value.arguments)} if value.arguments else value.use
    if isinstance(value, Demands):
        return {kind: dict(asked) for kind, asked in value.asked.items()}
    if isinstance(value, Mapping):
        # TOML has no null.
        return json.dumps(value) if _holds_none(value) else dict(value)
    return value


def inlined(model: str) -> str:
    """The table of a file ``--model my_net.toml`` as JSON, so that a run keeps it; any other model as it is.

    Raises:
        ConfigError: the file cannot be read, or is no TOML.
    """
    if not model.endswith(".toml"):
        return model
    try:
        return json.dumps(tomllib.loads(expanded(model).read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"--model {model} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--model {model} is no TOML: {error}") from error
    except TypeError:
        raise ConfigError(f"--model {model} holds a date or a time, and no key takes one") from None


def _plain(value: object, label: str) -> Any:  # noqa: ANN401
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, str) and not any("\ud800" <= sign <= "\udfff" for sign in value):
        return value
    if isinstance(value, Mapping):
        return {_key(key, label): _plain(inner, label) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, label) for inner in value]
    raise ConfigError(f"{label} holds {shown(value)}, which JSON cannot hold; set it in a function of your own instead")


def _key(key: object, label: str) -> str:
    if not isinstance(key, str):
        raise ConfigError(f"{label} has the key {shown(key)}, which is no text")
    return key


def _holds_none(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_none, value.values()))
    return value is None or (
        isinstance(value, Sequence) and not isinstance(value, str) and any(map(_holds_none, value))
    )


def shown(value: object) -> str:
    """A value for an error text: on one line, cut to 60 characters."""
    return " ".join(str(value).encode(errors="replace").decode().split())[:60] or "nothing"
