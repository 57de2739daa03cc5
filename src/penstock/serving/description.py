"""What a server says of a policy before anybody asks for an action: spaces, memory, size of a request. As JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.serving.bundle import spaces as json_spaces
from penstock.types import ArraySpec, Spaces

__all__ = ["QUESTION", "Description"]

QUESTION = b'{"describe": true}'
"""The body of a Gamecore request of no session that asks for it."""


@dataclass(frozen=True)
class Description:
    """A served policy as its clients see it."""

    name: str
    version: int
    """The stable one, at the moment of the answer."""
    spaces: Spaces
    carry: tuple[ArraySpec, ...]
    """What it remembers of one lane; empty for a policy without memory."""
    max_rows: int
    """Most rows of one request."""
    max_body: int
    """Most bytes of one request's body."""

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "name": self.name,
            "version": self.version,
            "spaces": json_spaces.to_json(self.spaces),
            "carry": [{"name": one.name, "shape": list(one.shape), "dtype": one.dtype} for one in self.carry],
            "max_rows": self.max_rows,
            "max_body": self.max_body,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Description":
        """The description that `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: it did not write this.
        """
        carry = tuple(
            ArraySpec(str(one["name"]), tuple(map(int, one["shape"])), str(one["dtype"])) for one in found["carry"]
        )
        spaces = json_spaces.from_json(found["spaces"])
        most = int(found["max_rows"]), int(found["max_body"])
        return cls(str(found["name"]), int(found["version"]), spaces, carry, *most)
