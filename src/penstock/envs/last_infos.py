"""Reads episode metrics: numbers of the user's own in the infos with which episodes end.

Takes no means: the learner's keeper does, over the latest episodes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.envs.fields import one_line
from penstock.envs.given_arrays import array_given
from penstock.envs.rows import as_number
from penstock.errors import BadDataError

__all__ = ["LastInfos"]


class LastInfos:
    """Reads the numbers of these names in the last infos of episodes.

    Args:
        names: of the episode metrics.
        lane_names: for error texts.

    Attributes:
        ended: lane -> its episode's numbers, one for each name, for each episode that ended in the last step. In lane
            order.
    """

    def __init__(self, names: Sequence[str], lane_names: Sequence[str]) -> None:
        self._names = names
        self._lane_names = lane_names
        self.ended: dict[int, tuple[float, ...]] = {}

    def begin_step(self) -> None:
        """Forget the episodes that ended in the step before."""
        self.ended.clear()

    def take(self, lane: int, info: Any) -> None:
        """An episode has ended with this info. Raises as `numbers`."""
        self.ended[lane] = self.numbers(lane, info)

    def take_batch(self, lane: int, infos: Any) -> None:
        """An episode has ended with its part of the info of all lanes together, as Gymnasium puts infos together.

        Args:
            lane: its lane.
            infos: name -> a value for each lane. ``_<name>`` says which lanes have one, if not all do.

        Raises:
            BadDataError: as `numbers`; or there is no value for each lane.
        """
        self.take(lane, {name: self._part(lane, infos, name) for name in self._names} if infos else None)

    def numbers(self, lane: int, info: Any) -> tuple[float, ...]:
        """The numbers in an info, one for each name; NaN for one that the info does not have, or that is not finite.

        Raises:
            BadDataError: a value is no number. The text names the lane.
        """
        given = info if isinstance(info, Mapping) else {}
        return tuple(self._number(lane, name, given.get(name)) for name in self._names)

    def _number(self, lane: int, name: str, value: Any) -> float:
        if value is None:
            return math.nan
        try:
            number = as_number(array_given(value), name)
        except (BadDataError, ValueError):
            raise self._refused(lane, name, value, "no number") from None
        return number if math.isfinite(number) else math.nan

    def _part(self, lane: int, infos: Any, name: str) -> Any:
        values, has = infos.get(name), infos.get(f"_{name}")
        try:
            return values[lane] if values is not None and (has is None or has[lane]) else None
        except (TypeError, IndexError, KeyError):
            raise self._refused(lane, name, values, "no number for each lane") from None

    def _refused(self, lane: int, name: str, value: Any, what: str) -> BadDataError:
        return BadDataError(
            f"{name} in the last info of {self._lane_names[lane]} is {one_line(value, 60)}, which is {what}; leave it "
            "out of --episode_metrics"
        )
