"""For all sources of games that give names to the parts of an observation or an action. Knows no protocol."""

from collections.abc import Mapping
from typing import Any

__all__ = ["whole"]


def whole(spaces: Mapping[str, Any]) -> Any:
    """One space by itself, several as a Dict."""
    from gymnasium.spaces import Dict  # noqa: PLC0415 - takes 70 ms

    return next(iter(spaces.values())) if len(spaces) == 1 else Dict(dict(spaces))
