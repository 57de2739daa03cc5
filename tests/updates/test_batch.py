"""Rows where they were written: targets, gathering by flat index, padding, the copy on a device."""

import numpy as np
import pytest
import torch

from penstock.types import ArraySpec
from penstock.updates.batch import Batch

SLOTS, STEPS, LANES = 3, 4, 2
FIELDS = ("obs", "action", "twice")
TARGETS = (ArraySpec("twice", (), "float32"),)


def stream():
    count = SLOTS * (STEPS + 1) * LANES
    flat = np.arange(count, dtype=np.float32).reshape(SLOTS, STEPS + 1, LANES)
    return {
        "obs": np.stack([flat, -flat], axis=-1),
        "action": flat.astype(np.int64),
        "reward": flat.copy(),
        "first_lane": np.zeros(SLOTS, np.int64),
    }


def double(rollout):
    return {"twice": 2.0 * rollout["reward"][:-1]}


@pytest.fixture(params=[False, True], ids=["in place", "staged"])
def batch(request):
    return Batch(stream(), FIELDS, TARGETS, torch.device("cpu"), staged=request.param)


def test_gathers_by_flat_row(batch):
    batch.prepare([0, 2], double)
    out = batch.buffers(2)
    # Flat row (slot * 5 + t) * 2 + lane: slot 2, t 3, lane 1 is 27; slot 0, t 1, lane 0 is 2.
    batch.gather(np.array([[27, 2]]), np.ones((1, 2), np.float32), out)
    assert out["obs"][0].tolist() == [[27.0, -27.0], [2.0, -2.0]]
    assert out["action"][0].tolist() == [27, 2]
    assert out["twice"][0].tolist() == [54.0, 4.0]
    assert out["weight"][0].tolist() == [1.0, 1.0]


def test_a_target_of_another_shape_is_refused_and_not_repeated(batch):
    def flat(rollout):
        return {"twice": rollout["reward"][:1]}

    with pytest.raises(ValueError, match=r"target twice has the shape \(1, 2\); its spec says \(4, 2\)"):
        batch.prepare([0], flat)


def test_padding_repeats_the_first_row(batch):
    batch.prepare([1], double)
    out = batch.buffers(3)
    weights = np.array([[1, 1, 1], [1, 0, 0]], np.float32)
    batch.gather(np.array([[10, 11, 12], [13, 0, 0]]), weights, out)
    assert out["action"][1].tolist() == [13, 13, 13]
    assert out["weight"][1].tolist() == [1.0, 0.0, 0.0]


def test_a_rollout_is_views_with_targets_without_the_bootstrap_row(batch):
    rollout = batch.rollout(1)
    assert rollout["obs"].shape == (STEPS + 1, LANES, 2)
    assert rollout["twice"].shape == (STEPS, LANES)
    rollout["twice"][...] = 7.0
    assert float(batch.rollout(1)["twice"].min()) == 7.0


def test_rows_written_later_are_seen_without_a_new_batch():
    arrays = stream()
    batch = Batch(arrays, FIELDS, TARGETS, torch.device("cpu"), staged=False)
    arrays["obs"][0, 0, 0] = 99.0
    out = batch.buffers(1)
    batch.gather(np.array([[0]]), np.ones((1, 1), np.float32), out)
    assert out["obs"][0, 0].tolist() == [99.0, 99.0]


def test_large_rows_are_gathered_a_few_at_a_time():
    arrays = stream() | {"obs": np.zeros((SLOTS, STEPS + 1, LANES, 1 << 18), np.float32)}
    batch = Batch(arrays, ("obs",), (), torch.device("cpu"), staged=False)
    # A row is 1 MiB, so 4 MiB hold two minibatches of two; at least one is always gathered.
    assert (batch.capacity(2), batch.capacity(64)) == (2, 1)


def test_a_missing_field_is_named():
    with pytest.raises(KeyError, match="needs log_prob"):
        Batch(stream(), ("log_prob",), (), torch.device("cpu"), staged=False)


def test_slots_that_are_not_one_array_are_refused():
    arrays = stream()
    arrays["action"] = np.zeros((SLOTS, 2 * (STEPS + 1), LANES), np.int64)[:, ::2]
    with pytest.raises(ValueError, match="action is not one contiguous array"):
        Batch(arrays, ("action",), (), torch.device("cpu"), staged=False)
