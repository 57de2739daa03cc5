"""LaneMemory: writes into rollouts what a policy with memory remembers, so that it can be learned from and restored."""

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.types import Array, Arrays

__all__ = ["LaneMemory"]


class LaneMemory:
    """The memory of the lanes of one node. For a policy without memory, every call does nothing.

    A rollout holds:

    - ``first``: for each row, whether an episode begins with it;
    - ``carry.*``: the carry before row 0;
    - ``final.carry.*``: the carry before the last observation of each truncated episode;
    - ``lane_carry.*``: the carry before row T, with which the lane goes on.

    Args:
        carry: name -> ``[lanes, ...]``, of the policy port: the carry before the row that is asked about next.
        lanes: number of lanes.
    """

    def __init__(self, carry: Arrays, lanes: int) -> None:
        self.carry = carry
        self._first = np.ones(lanes, np.bool_)
        self._finals = 0

    def set(self, lane: int, carry: Mapping[str, Array]) -> None:
        """Go on in the middle of an episode, with this carry."""
        self._first[lane] = False
        for name, values in carry.items():
            self.carry[name][lane] = values

    def forget(self, lane: int) -> None:
        """Note that the lane begins a new episode."""
        self._first[lane] = True

    def begin(self, slot: Arrays) -> None:
        """Begin a rollout: write ``first`` of row 0 and the carry before it."""
        if self.carry:
            slot["first"][0] = self._first
            self._finals = 0
        for name, values in self.carry.items():
            slot[name][...] = values
            # Where an episode begins, the carry counts as zero. Write zero, so that a resumed run writes the same row.
            slot[name][self._first] = 0.0

    def stored(self, slot: Arrays, t: int, begun: Sequence[int]) -> None:
        """Row ``t`` is answered and stored; the lanes in ``begun`` begin an episode with row t + 1."""
        self._first[...] = False
        if begun:
            self._first[list(begun)] = True
        slot["first"][t + 1] = self._first
        finals = int(slot["final_count"])
        if finals > self._finals and any(f"final.{name}" in slot for name in self.carry):
            which = slice(self._finals, finals)
            lanes = slot["final_lane"][which]
            for name, values in self.carry.items():
                slot[f"final.{name}"][which] = values[lanes]
        self._finals = finals

    def at(self, slot: Arrays, t: int) -> Arrays:
        """What the policy needs to give values of row ``t``, which is the row after the last answer."""
        return {"first": slot["first"][t], **self.carry} if self.carry else {}

    def of_finals(self, slot: Arrays, count: int) -> Arrays:
        """What the policy needs to give values of the first ``count`` last observations."""
        if not self.carry:
            return {}
        return {"first": np.zeros(count, np.bool_), **{name: slot[f"final.{name}"][:count] for name in self.carry}}

    def end(self, slot: Arrays) -> None:
        """End a rollout: write the carry with which each lane goes on."""
        for name, values in self.carry.items():
            slot[f"lane_{name}"][...] = values
