"""Where the lanes of an environment node begin after a death, while its learner goes on."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.memory.record import Record
from penstock.memory.segment import Segment
from penstock.memory.stream import Stream
from penstock.nodes.contract import LaneStart
from penstock.nodes.env.takeover import lane_starts, note_earlier_rows
from penstock.types import ArraySpec

ENV, LEARNER = 1, 9
LANES = (("lane_position", (2, 4)), ("lane_collected", (2,)), ("lane_spoilt", (2,)))
SETTINGS: Any = SimpleNamespace(
    starts=(LaneStart(), LaneStart()), num_steps=8, worker=1, num_workers=2, first_lane=0, lanes=2
)
"""The second of two workers. Both have the same lanes here, so the record needs no others."""


class Watched:
    """Calls ``before`` each time before something is read."""

    def __init__(self, watched: Any, before: Any) -> None:
        self._watched = watched
        self._before = before

    def __getattr__(self, name: str) -> Any:
        self._before()
        return getattr(self._watched, name)


class Shared:
    """A stream and a record. The environment node has pushed rollout 5, and then died."""

    def __init__(self) -> None:
        slot = tuple(ArraySpec(name, shape, "int64") for name, shape in (*LANES, ("rollout", ())))
        self.stream = Stream(Segment.create(Stream.required(slot, 2), "test").bytes, slot, 2)
        kept = tuple(ArraySpec(name, shape, "int64") for name, shape in (*LANES, ("lane_rollout", (2,))))
        self.record = Record(Segment.create(Record.required(kept), "test").bytes, kept)
        self.commit(rollout=4)
        index = self.stream.claim(ENV, 5 * 2 + 1)
        assert index is not None
        self.stream.slot(index)["rollout"][...] = 5
        self.stream.slot(index)["lane_position"][...] = self.position(5)
        self.stream.push(index, ENV)
        self.reads = 0

    @staticmethod
    def position(rollout: int) -> np.ndarray:
        return np.tile([0, rollout + 1, 0, 0], (2, 1))

    def commit(self, rollout: int) -> None:
        zeros = np.zeros(2, np.int64)
        arrays = {"lane_collected": zeros, "lane_spoilt": zeros, "lane_rollout": zeros + rollout + 1}
        self.record.write({**arrays, "lane_position": self.position(rollout)}, rollout)

    def learn(self) -> None:
        """Commit rollout 5, and release its slot. The other environment node fills it at once."""
        index = self.stream.take(LEARNER)
        assert index is not None
        self.commit(rollout=5)
        self.stream.release(index, LEARNER)
        assert self.stream.claim(ENV + 1, 6 * 2) is not None
        for array in self.stream.slot(index).values():
            array[...] = 77

    def found(self, learns_at: int) -> int:
        """The rollout with which a new life begins, if the learner learns before the read with this number."""

        def before() -> None:
            if self.reads == learns_at:
                self.learn()
            self.reads += 1

        log = SimpleNamespace(rewind=lambda *_: None, past=lambda *_: None)
        ports: Any = SimpleNamespace(
            former=(ENV,), record=lambda _: Watched(self.record, before), count=lambda *_: None
        )
        starts = lane_starts(SETTINGS, ports, Watched(self.stream, before), log, restorable=False)  # type: ignore[arg-type]
        assert [start.step for start in starts] == [starts[0].rollout * 8] * 2
        return starts[0].rollout


def reads() -> int:
    shared = Shared()
    shared.found(learns_at=-1)
    return shared.reads


@pytest.mark.parametrize("learns_at", range(-1, reads()))
def test_a_rollout_counts_once_whenever_the_learner_commits_it(learns_at: int) -> None:
    assert Shared().found(learns_at) == 6


def test_rows_that_an_earlier_life_has_noted_stay_noted() -> None:
    counters = {"collected": 20}
    ports: Any = SimpleNamespace(name="env.1", counters=lambda: {"env.1": counters}, note=counters.__setitem__)
    settings: Any = SimpleNamespace(starts=(LaneStart(collected=8), LaneStart(collected=8, spoilt=2)))
    note_earlier_rows(settings, ports)
    assert counters["collected"] == 20
