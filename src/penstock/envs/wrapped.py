"""A source around another one. What a class of this kind does not change, it hands on. Changes nothing itself."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.types import EnvSource, Spaces

__all__ = ["WrappedSource"]


class WrappedSource(EnvSource):
    """Hands on the calls that are the same for a source and for what is around it.

    A class of this kind gives `reset`, `step`, `begin`, `replay`, `snapshot` and `lay` of its own: each of them takes
    or gives observations.

    Args:
        source: steps the lanes.
        spaces: what this source shows of them.
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
