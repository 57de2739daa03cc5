"""The keys of a part of a description (`--model my_net.toml`), taken one by one and checked. Builds no network."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import ConfigError, nearest

__all__ = ["Keys"]


class Keys:
    """A part of the table, whose keys are taken one by one.

    Args:
        prefix: its name with a dot behind it, for error texts.
        given: its keys and values.
    """

    def __init__(self, prefix: str, given: object) -> None:
        if not isinstance(given, dict):
            raise ConfigError(f"--model: {prefix.rstrip('.') or 'the model'} = {given!r} is no table")
        self.given: Mapping[str, Any] = given
        self.name = prefix
        self._asked: list[str] = []

    def end(self) -> None:
        """Raise ConfigError for the first key that was not taken."""
        for key in self.given:
            if key not in self._asked:
                known = nearest(key, self._asked) or f"; known: {', '.join(self._asked)}"
                raise ConfigError(f"--model: there is no key {self.name}{key}{known}")

    def part(self, key: str) -> "Keys":
        """A table inside this one; empty if it is left out."""
        return Keys(f"{self.name}{key}.", self._taken(key, {}))

    def tables(self, key: str) -> Mapping[str, Any]:
        """Tables whose names the user chose: name -> table."""
        return self.part(key).given

    def value(self, key: str, kind: type, default: Any) -> Any:  # noqa: ANN401 - of this type
        """A value of this type."""
        found = self._taken(key, default)
        if found is not default and not isinstance(found, kind):
            raise self._refused(key, found, {bool: "true or false", str: "text"}[kind])
        return found

    def word(self, key: str, words: Sequence[str], default: str | None) -> Any:  # noqa: ANN401 - one of the words
        """One of these words."""
        found = self._taken(key, default)
        if found not in words:
            raise self._refused(key, found, f"one of {', '.join(words)}")
        return found

    def whole_number(self, key: str, default: int | None, least: int | None = 1) -> int:
        """A whole number."""
        found = self._taken(key, default)
        if not _is_whole(found, least):
            raise self._refused(key, found, "a whole number" + ("" if least is None else f" of at least {least}"))
        return int(found)

    def share(self, key: str, default: float) -> float:
        """A number from 0 on, below 1."""
        found = self._taken(key, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1:
            raise self._refused(key, found, "a number from 0 on, below 1")
        return float(found)

    def whole_numbers(self, key: str, default: Sequence[int]) -> tuple[int, ...]:
        """A list of whole numbers from 1 on."""
        found = self._taken(key, list(default))
        if not isinstance(found, list) or not all(_is_whole(value, 1) for value in found):
            raise self._refused(key, found, "a list of whole numbers of at least 1")
        return tuple(found)

    def triples(self, key: str, default: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """A list of triples of whole numbers."""
        found = self._taken(key, [list(triple) for triple in default])
        fits = isinstance(found, list) and all(
            isinstance(triple, list) and len(triple) == 3 and all(_is_whole(value, 1) for value in triple)
            for triple in found
        )
        if not fits:
            raise self._refused(key, found, "a list of [filters, kernel, stride]")
        return [(filters, kernel, stride) for filters, kernel, stride in found]

    def _taken(self, key: str, default: Any) -> Any:  # noqa: ANN401 - whatever the user wrote
        self._asked.append(key)
        return self.given.get(key, default)

    def _refused(self, key: str, found: object, wanted: str) -> ConfigError:
        if found is None:
            for written in self.given:
                if written not in self._asked and (known := nearest(written, [key])):
                    return ConfigError(f"--model: there is no key {self.name}{written}{known}")
        was = "missing" if found is None else f"{found!r}"
        return ConfigError(f"--model: {self.name}{key} is {was}, and must be {wanted}")


def _is_whole(value: object, least: int | None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)
