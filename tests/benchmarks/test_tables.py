"""The code that fills the measured tables, also from a second process. No time is judged here."""

import math
import multiprocessing

import numpy as np
import pytest

from benchmarks.replay import inserting
from benchmarks.tables import EPISODE, Shape, StepByStep, WholeRollouts
from penstock.memory.segment import Segment
from penstock.memory.table import Table
from penstock.replay.sampler import Sampler
from penstock.replay.sum_tree import SumTree
from penstock.types import Box

STEPS, LANES = 16, 2
SHAPE = Shape(Box((3,), "float32", (-300.0,) * 3, (300.0,) * 3), STEPS, LANES, 60)


def fill(way: type[StepByStep] | type[WholeRollouts], rollouts: int) -> Table:
    table = SHAPE.make()
    insert = way(SHAPE, table)
    for _ in range(rollouts):
        insert()
    return table


@pytest.mark.parametrize("way", [StepByStep, WholeRollouts])
def test_episodes_end_every_200_steps_truncated(way: type[StepByStep] | type[WholeRollouts]) -> None:
    table = fill(way, 52)
    truncated = np.concatenate([table.slot(index)["truncated"][:STEPS] for index in range(52)])
    # The copied rollouts begin with the second rollout of a run, after 16 steps of its first episode.
    before = 0 if way is StepByStep else STEPS
    ends = np.flatnonzero(truncated.all(axis=1))
    assert ends.tolist() == [EPISODE * number - 1 - before for number in range(1, len(ends) + 1)]
    assert len(ends) == 4
    assert truncated.sum() == len(ends) * LANES
    slot = table.slot(int(ends[0]) // STEPS)
    assert (slot["final_count"], slot["episode_length"][:LANES].tolist()) == (LANES, [EPISODE] * LANES)


def test_whole_rollouts_hold_what_was_stepped() -> None:
    stepped, copied = fill(StepByStep, 53), fill(WholeRollouts, 52)
    for index in range(52):
        ours, theirs = copied.slot(index), stepped.slot(index + 1)
        ended = int(theirs["final_count"])
        for name in ours.keys() - {"lane_collected"}:
            side = theirs[name].shape[:1] == (STEPS * LANES,)  # room for an end at every row
            pair = [slot[name][:ended] if side else slot[name] for slot in (ours, theirs)]
            np.testing.assert_array_equal(*pair, err_msg=name)


def test_rows_that_end_an_episode_are_drawn() -> None:
    table = fill(WholeRollouts, 60)
    sampler = Sampler(table, LANES, ["obs"], n_step=1, gamma=0.99, stack={})
    out = {"truncated": np.zeros(4096, bool), "discount": np.zeros(4096, np.float32)}
    sampler.sample((1, 1), out)
    assert out["truncated"].any()
    # A truncated row is followed by its last observation, whose value counts.
    np.testing.assert_array_equal(out["discount"], np.float32(0.99))


def test_rows_are_ranked_as_they_are_handed_over() -> None:
    table = SHAPE.make()
    capacity = table.arrays["valid"].size
    tree = SumTree(Segment.create(SumTree.required(capacity), "tree").bytes, capacity)
    StepByStep(SHAPE, table, tree)()
    # Each row has priority 1, because no learner has learned from it. Row T carries no transition.
    assert tree.total() == STEPS * LANES


def wait_for(table: Table) -> RuntimeError:
    """Until every slot was written three times."""
    while table.written(0) < 3 * SHAPE.slots:
        assert multiprocessing.active_children()
    return RuntimeError("drawing failed")


@pytest.mark.parametrize("pace", [1e6, math.inf])
def test_the_process_that_inserts_ends_also_where_drawing_fails(pace: float) -> None:
    segment = Segment.create(Table.required(SHAPE.specs, 1, SHAPE.slots), "replay")
    table = SHAPE.make(segment.bytes)
    with pytest.raises(RuntimeError, match="drawing failed"), inserting(SHAPE, segment, pace):
        raise wait_for(table)
    assert not multiprocessing.active_children()
