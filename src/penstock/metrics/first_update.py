"""What the first update of a command waits for, by the counters of its nodes. Waits for nothing itself."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["FirstUpdate"]

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

    def awaited(self, counters: Mapping[str, Mapping[str, int]]) -> str:
        """What is missing now.

        Args:
            counters: node -> counter -> value. ``begun`` counts the lives of a node, ``collected`` the rows of an
                environment node.
        """
        needed = {name: counters[name] for name in (*self.given, *self.learners)}
        absent = [name for name, counts in needed.items() if not counts["begun"]]
        opening = [name for name, counts in needed.items() if counts["begun"] and _opens(counts)]
        if absent or opening:
            told = {"not started yet": absent, "still starting up, or in a first long step": opening}
            return "; ".join(f"{what}: {_listed(names)}" for what, names in told.items() if names)
        rows = {name: counters[name]["collected"] - before for name, before in self.given.items()}
        if self.least is not None:
            there = sum(rows.values())
            return f"{self.played}; so far {max(0, there):,}" if there < self.least else self._learning()
        waiting = [name for name, count in rows.items() if count <= 0]
        return f"no full rollout yet of {_listed(waiting)}; {self.played}" if waiting else self._learning()

    def _learning(self) -> str:
        return f"its rows are there, and {self.learned}"


def _opens(counts: Mapping[str, int]) -> bool:
    """Whether a node has announced long work, such as its start, and has had no turn yet.

    A node without a turn may also be open, and not have slept: other nodes of its process always had work.
    """
    return bool(counts["busy_until_ns"]) and not counts["busy_ns"] + counts["idle_ns"]


def _listed(names: Sequence[str]) -> str:
    """The names for a sentence."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_MOST_NAMES])} and {more} more"
