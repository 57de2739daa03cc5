"""What the first update of a command waits for, by the counters of its nodes. Waits for nothing itself."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["FirstUpdate"]

LONG_S = 10.0
"""After so long without a sign of life an environment node is said to be in a long step or reset."""
_MOST_NAMES = 4
"""So many nodes are named; of more only the number of the others is told."""


class FirstUpdate(NamedTuple):
    """The nodes and the rows that the first update needs."""

    given: Mapping[str, int]
    """Environment node -> rows that it has given before this command."""
    learners: tuple[str, ...]
    """The nodes that learn."""
    least: int | None
    """Rows that all environment nodes give together before it; ``None``: each gives a full rollout."""
    played: str
    """How much is played before it, in words."""
    learned: str
    """Who learns from these rows, in words."""

    def awaited(self, counters: Mapping[str, Mapping[str, int]], now_ns: int) -> str:
        """What is missing now.

        Args:
            counters: node -> counter -> value. ``begun`` counts the lives of a node, ``collected`` the rows of an
                environment node.
            now_ns: the time, by the clock of ``heartbeat_ns``.
        """
        needed = {name: counters[name] for name in (*self.given, *self.learners)}
        absent = [name for name, counts in needed.items() if not counts["begun"]]
        opening = [name for name, counts in needed.items() if counts["begun"] and _opens(counts)]
        if absent or opening:
            missing = {"not started yet": absent, "still starting up, or in a first long step": opening}
            return "; ".join(f"{what}: {_listed(names)}" for what, names in missing.items() if names)
        rows = {name: counters[name]["collected"] - before for name, before in self.given.items()}
        there, waiting = sum(rows.values()), [name for name, count in rows.items() if count <= 0]
        enough = not waiting if self.least is None else there >= self.least
        if enough:
            return f"its rows are there, and {self.learned}"
        asked = waiting if self.least is None else list(rows)
        stuck = [name for name in asked if _steps_long(counters[name], now_ns)]
        others = [name for name in waiting if name not in stuck]
        told = [f"for more than {LONG_S:g} s in one step or reset of all lanes: {_listed(stuck)}"] if stuck else []
        if self.least is not None:
            return "; ".join((*told, f"{self.played}; so far {max(0, there):,}"))
        told += [f"no full rollout yet of {_listed(others)}"] if others else []
        return "; ".join((*told, self.played))


def _opens(counts: Mapping[str, int]) -> bool:
    """Whether a node has announced long work, such as its start, and has had no turn yet.

    A node without a turn may also be open, and not have slept: other nodes of its process always had work.
    """
    return bool(counts["busy_until_ns"]) and not counts["busy_ns"] + counts["idle_ns"]


def _steps_long(counts: Mapping[str, int], now_ns: int) -> bool:
    """Whether an environment node is in a long step or reset. Its loop goes round between two steps of all lanes.

    Announced work is none.
    """
    return counts["busy_until_ns"] < now_ns and now_ns - counts["heartbeat_ns"] > LONG_S * 1e9


def _listed(names: Sequence[str]) -> str:
    """The names for a sentence."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_MOST_NAMES])} and {more} more"
