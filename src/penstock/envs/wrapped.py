"""The base class of sources that wrap another source. Calls that a subclass does not override go to that source."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.types import EnvSource, Spaces

__all__ = ["WrappedSource"]


class WrappedSource(EnvSource):
    """Wraps a source, and passes on the calls that need no change.

    A subclass defines `reset`, `step`, `begin`, `replay`, `snapshot` and `apply_snapshot`, because these take or give
    observations.

    Args:
        source: the wrapped source, which steps the lanes.
        spaces: the spaces of the lanes as this source shows them.
    """

    def __init__(self, source: EnvSource, spaces: Spaces) -> None:
        self.spaces = spaces
        self.num_lanes = source.num_lanes
        self.same_step = source.same_step
        self.restorable = source.restorable
        self._source = source

    def watch(self, sign: memoryview) -> None:
        """As the source."""
        self._source.watch(sign)

    def keep_infos(self) -> Sequence[Any] | None:
        """As the source."""
        return self._source.keep_infos()

    def follow(self, metrics: Sequence[str]) -> Mapping[int, tuple[float, ...]]:
        """As the source."""
        return self._source.follow(metrics)

    def take_version(self, version: int) -> None:
        """As the source."""
        self._source.take_version(version)

    def close(self) -> None:
        """As the source."""
        self._source.close()
