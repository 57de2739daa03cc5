"""Every updater, for any algorithm: rows, phases, metrics, statistics, chunks."""

import numpy as np
import pytest
import torch

from penstock.updates.compiled import CompiledUpdater
from penstock.updates.eager import EagerUpdater
from tests.updates import counting

SIZE = 7
"""Does not divide the 40 valid rows: the last minibatch of an epoch is padded."""


@pytest.fixture(params=[EagerUpdater, CompiledUpdater], ids=["eager", "compiled"])
def updater(request):
    torch.set_num_threads(1)
    made = request.param(counting.build(), counting.settings(SIZE), counting.stream())
    made.load(counting.init_state())
    return made


def epoch(seed):
    """All rows but the two bootstrap rows of each lane, in random order."""
    rows = np.arange(counting.ROWS).reshape(2, 6, 4)[:, :-1].ravel()
    order = np.random.default_rng(seed).permutation(rows)
    count = -(-len(order) // SIZE)
    indices, weights = np.zeros(count * SIZE, np.int64), np.zeros(count * SIZE, np.float32)
    indices[: len(order)], weights[: len(order)] = order, 1.0
    return indices.reshape(count, SIZE), weights.reshape(count, SIZE)


def test_an_epoch_uses_every_row_once(updater):
    updater.begin([0, 1], 0.5)
    updater.minibatches(*epoch(0))
    seen = updater.state()["seen"].reshape(2, 6, 4)
    assert np.array_equal(seen[:, :-1], np.ones((2, 5, 4)))
    assert np.array_equal(seen[:, -1], np.zeros((2, 4)))
    assert float(updater.state()["progress"]) == 0.5


def test_phases_run_when_they_are_due_however_calls_are_cut(updater):
    updater.begin([0, 1], 0.0)
    indices, weights = epoch(1)
    for part in (slice(0, 1), slice(1, 4), slice(4, 6)):
        updater.minibatches(indices[part], weights[part])
    # Six minibatches: the second phase runs at the first, third and fifth.
    assert updater.state()["ran"].tolist() == [6.0, 3.0]
    assert float(updater.state()["seen"].sum()) == 40.0


def test_metrics_are_means_over_the_minibatches_since_the_last_call(updater):
    updater.begin([0, 1], 0.0)
    indices = np.array([[0] * SIZE, [1] * SIZE, [4] * SIZE])
    updater.minibatches(indices, np.ones((3, SIZE), np.float32))
    # doubled: 0, 2, 8. ran, seen by the second phase after the first: 1 and 3.
    assert updater.metrics() == {"doubled": pytest.approx(10 / 3), "ran": pytest.approx(2.0)}
    updater.minibatches(indices[2:], np.ones((1, SIZE), np.float32))
    assert updater.metrics() == {"doubled": 8.0}


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
    assert updater.state()["seen"].tolist() == [0.0] * counting.ROWS
