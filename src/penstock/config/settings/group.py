"""What the groups of settings share: their title in the help, and how a setting is written. Names no setting."""

from dataclasses import field
from typing import Any, ClassVar

from penstock.config.fields import Value

__all__ = ["SettingsGroup", "setting"]


class SettingsGroup:
    """Settings of a run that belong together. Each group is a frozen dataclass that `RunConfig` inherits from."""

    title: ClassVar[str]
    """The heading of these settings in the help."""


def setting(default: Value, text: str, **bounds: Value) -> Any:  # noqa: ANN401  (a field stands for its value)
    """A setting with its default and help text. ``bounds`` say what it takes: ``min``, ``choices``, ``fixed``, ..."""
    return field(default=default, metadata={"help": text, **bounds})
