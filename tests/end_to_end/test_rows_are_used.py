"""How often a run learns from each row: once an epoch, each epoch in an order of its own.

A comparison of speed with another library rests on it.
"""

from itertools import pairwise

import numpy as np
import pytest

import penstock
from penstock.updates.eager import EagerUpdater
from penstock.updates.fused import FusedUpdater

LANES, STEPS, EPOCHS = 4, 32, 3
SIZE = 48
"""Does not divide the 128 rows of a batch, so the last minibatch is padded."""


@pytest.mark.parametrize(("backend", "updater"), [("fused", FusedUpdater), ("eager", EagerUpdater)])
@pytest.mark.parametrize("vector_env", [False, True])
def test_each_valid_row_is_learned_from_once_an_epoch_in_an_order_of_its_own(
    tmp_path, monkeypatch, backend, updater, vector_env
) -> None:
    batches: list[list[tuple[np.ndarray, np.ndarray]]] = []
    begin, minibatches = updater.begin, updater.minibatches

    def noting_begin(self, slots, progress):
        batches.append([])
        begin(self, slots, progress)

    def noting_minibatches(self, indices, weights):
        batches[-1].append((indices.copy(), weights.copy()))
        minibatches(self, indices, weights)

    monkeypatch.setattr(updater, "begin", noting_begin)
    monkeypatch.setattr(updater, "minibatches", noting_minibatches)
    settings = {
        "env": "CartPole-v1",
        "num_envs": LANES,
        "num_steps": STEPS,
        "epochs": EPOCHS,
        "mini_batch_size": SIZE,
        "timesteps": 3 * LANES * STEPS,
        "vector_env": vector_env,
        "runtime": "inline",
        "backend": backend,
        "num_workers": 2,
        "eval_episodes": 1,
        "log_dir": str(tmp_path),
    }
    result = penstock.train(settings, quiet=True)
    assert len(batches) == result.updates
    learned = 0
    for calls in batches:
        indices, weights = (np.concatenate([call[part] for call in calls]) for part in (0, 1))
        assert set(np.unique(weights)) <= {0.0, 1.0}
        per_epoch = len(indices) // EPOCHS
        epochs = [
            indices[first : first + per_epoch][weights[first : first + per_epoch] == 1.0]
            for first in range(0, len(indices), per_epoch)
        ]
        assert len(epochs) == EPOCHS
        rows = np.sort(epochs[0])
        learned += len(rows)
        assert len(np.unique(rows)) == len(rows)
        for order, other in pairwise(epochs):
            assert np.array_equal(np.sort(other), rows)
            assert not np.array_equal(order, other)
            # Not a rotation or a shuffle of whole minibatches: neighbours are new ones.
            assert len(set(pairwise(order)) & set(pairwise(other))) < len(rows) / 4
    # Valid rows are what counts as a step; Gymnasium's own vector environments spend a row on each reset.
    assert learned == result.steps
    assert vector_env or learned == result.updates * LANES * STEPS
