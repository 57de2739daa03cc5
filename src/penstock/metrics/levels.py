"""Levels of metrics: what the framework does, what the algorithm learns, how good it is. The name tells it."""

from collections.abc import Mapping

__all__ = ["LEVELS", "level_of"]

LEVELS: Mapping[str, tuple[str, ...]] = {
    "framework": (
        "throughput/",
        "idle/",
        "policy/",
        "rows/",
        "rollouts/",
        "replay/",
        "gradients/",
        "exchange/",
        "restarts/",
        "death/",
        "reports/",
    ),
    "algorithm": ("loss/",),
    "task": ("rollout/", "episode/", "eval/"),
}
"""Level -> how the names of its metrics begin."""


def level_of(name: str) -> str | None:
    """The level of a metric; ``None`` if its name begins like none of this version."""
    return next((level for level, prefixes in LEVELS.items() if name.startswith(prefixes)), None)
