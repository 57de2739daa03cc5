"""What a host fetches itself for its learner: observations, straight from the hosts on which they were made.

They wait here until a goal names the slots of their rollouts. Home never has them. Knows no cluster.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.cluster.observation_fields import only, without
from penstock.cluster.parcels import unpack
from penstock.errors import PenstockError
from penstock.types import Array, Arrays

__all__ = ["Fetched", "RolloutName", "WantedRollout"]


class RolloutName(NamedTuple):
    """Which rollout of an environment node it is. A later one is larger."""

    life: int
    sequence: int


class WantedRollout(NamedTuple):
    """A finished rollout whose observations are in its slot, on the host of its environment node."""

    group: str
    slot: int
    writer: int
    """The number of the environment node among the writers of the table."""
    name: RolloutName


class Fetched:
    """The observations that a host has fetched.

    Args:
        fields: the fields of a slot that are observations.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields
        self._parcels: dict[int, dict[RolloutName, Array]] = {}

    def put(self, wanted: WantedRollout, parcel: Array) -> None:
        """Keep the observations of a rollout."""
        self._parcels.setdefault(wanted.writer, {})[wanted.name] = parcel

    def fill(self, writer: int, name: RolloutName, rest: Array, slot: Arrays) -> None:
        """Fill a slot with the observations of a rollout, and with the rest of it, which has come from home.

        Earlier rollouts of this writer that are still here are dropped: home never had them in the table, because their
        environment node died first, or has overwritten their slots meanwhile.

        Raises:
            PenstockError: these observations were not fetched.
        """
        there = self._parcels.get(writer, {})
        if name not in there:
            raise PenstockError(f"home names a rollout of writer {writer} whose observations are not here: {name}")
        unpack(rest, without(slot, self._fields))
        unpack(there[name], only(slot, self._fields))
        self._parcels[writer] = {other: parcel for other, parcel in there.items() if other > name}
