"""The idle share of each node: how much of its time it has waited, by its counters. Reads no clock."""

from collections.abc import Mapping

from penstock.metrics.report import IDLE

__all__ = ["IdleShares"]

LEAST_COUNTED_NS = 100_000_000
"""Least time of a node over which its idle share is found anew."""
STALE_S = 2.0
"""A node whose idle share was found longer ago has none. Other machines tell the counters of their nodes each 0.5 s."""


class IdleShares:
    """The idle share of each node since its counters were looked at last.

    A share is computed anew only after ``LEAST_COUNTED_NS`` of the node's time; until then the old one is kept. The
    reason: reports that had to wait arrive within one millisecond. Each may stand for many updates, but what the node
    did in this millisecond says nothing about them. The first share of a run needs no least time.

    Args:
        counters: node -> counter -> value, at the beginning.
        again: true if an earlier life of the caller may have computed shares. Then no share counts as the first one.
    """

    def __init__(self, counters: Mapping[str, Mapping[str, int]], *, again: bool) -> None:
        self._previous = dict(counters)
        """The counters of each node when its share was found last."""
        self._again = again
        self._shares: dict[str, float] = {}
        self._found_at: dict[str, float] = {}

    def update(self, counters: Mapping[str, Mapping[str, int]], now: float) -> dict[str, float]:
        """Take in the counters, and return the shares as metrics: ``idle/<node>`` -> 0 to 1.

        A node whose counters stand still, such as one of a lost machine, soon has no share.

        Args:
            counters: node -> counter -> value, now.
            now: seconds of a monotonic clock.
        """
        for node, counts in counters.items():
            past = self._previous.get(node, {})
            busy = counts["busy_ns"] - past.get("busy_ns", 0)
            idle = counts["idle_ns"] - past.get("idle_ns", 0)
            if busy + idle >= (LEAST_COUNTED_NS if self._again or node in self._found_at else 1):
                self._shares[node] = idle / (busy + idle)
                self._previous[node] = counts
                self._found_at[node] = now
            elif now - self._found_at.get(node, now) > STALE_S:
                self._shares.pop(node, None)
        return {f"{IDLE}{node}": share for node, share in self._shares.items()}
