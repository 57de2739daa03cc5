"""The fused updater for any algorithm, with an update that only counts its rows."""

import numpy as np
import pytest

from penstock.algorithm import Fused
from penstock.updates.fused import FusedUpdater
from tests.updates import counting

VALID = np.arange(counting.ROWS).reshape(2, 6, 4)[:, :-1].ravel()
"""Flat rows that can be learned from: all but the bootstrap rows."""


class CountingUpdate:
    """Counts rows that were packed, and how often each was learned from."""

    def __init__(self, rows, threads):
        self.threads = threads
        self.packed = np.full(rows, np.nan)

    def pack(self, state, rows, first, count):
        part = slice(first, first + count)
        self.packed[part] = rows["doubled"][part]

    def run(self, state, indices, weights):
        np.add.at(state["seen"], indices, weights)
        state["ran"][0] += len(indices)
        self.last = self.packed[indices].mean()

    def metrics(self):
        return {"doubled": float(self.last)}


def targets(state, rollout):
    return {"doubled": 2.0 * rollout["reward"][:-1]}


def statistics(state, rollout):
    return {"ran": state["ran"] + np.float32(100.0) * rollout["first_lane"]}


@pytest.fixture
def update():
    return CountingUpdate(counting.ROWS, 1)


@pytest.fixture
def updater(update):
    fused = Fused(targets, statistics, lambda rows, threads: update)
    made = FusedUpdater(fused, counting.spec(8), counting.stream(), threads=1)
    made.load(counting.init_state())
    return made


def test_the_update_is_made_for_all_rows_and_the_threads_that_are_asked_for():
    asked = []
    fused = Fused(targets, statistics, lambda rows, threads: asked.append((rows, threads)))
    FusedUpdater(fused, counting.spec(8), counting.stream(), threads=2)
    assert asked == [((2, 5, 4), 2)]
    assert asked[0][0].rows == 48


def test_rows_are_packed_where_they_lie_without_the_bootstrap_rows(updater, update):
    updater.begin([1], 0.0)
    updater.minibatches(np.array([[24]]), np.ones((1, 1), np.float32))
    # Slot 1 holds flat rows 24 .. 47; its last 4 are the bootstrap. Targets are twice the flat number.
    assert update.packed[24:44].tolist() == [2.0 * row for row in range(24, 44)]
    assert np.isnan(update.packed[:24]).all()
    assert np.isnan(update.packed[44:]).all()


def test_an_epoch_uses_every_row_once(updater):
    updater.begin([0, 1], 0.5)
    order = np.random.default_rng(0).permutation(VALID)
    updater.minibatches(order.reshape(5, 8), np.ones((5, 8), np.float32))
    seen = updater.state()["seen"]
    assert seen[VALID].tolist() == [1.0] * 40
    assert seen.sum() == 40.0
    assert float(updater.state()["progress"]) == 0.5
    assert updater.metrics() == {"doubled": 2.0 * VALID.mean()}


def test_statistics_are_merged_slot_by_slot_and_change_behind_the_batch(updater):
    updater.merge([0, 1])
    assert updater.state()["ran"].tolist() == [0.0, 0.0]
    updater.finish()
    assert updater.state()["ran"].tolist() == [100.0, 100.0]


def test_load_copies(updater):
    mine = {"ran": np.array([5.0, 6.0], np.float32)}
    updater.load(mine)
    mine["ran"][:] = 0.0
    assert updater.state()["ran"].tolist() == [5.0, 6.0]
