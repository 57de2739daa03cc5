"""Means of metrics."""

import torch

from penstock.updates.meter import Meter


def test_means_by_hand():
    meter = Meter()
    meter.add({"a": torch.tensor(1.0), "b": torch.tensor(10.0, dtype=torch.float64)})
    meter.add({"a": torch.tensor(3.0), "b": torch.tensor(20.0, dtype=torch.float64)})
    assert meter.take() == {"a": 2.0, "b": 15.0}
    assert meter.take() == {}


def test_a_metric_that_comes_every_other_time_is_averaged_over_its_own():
    meter = Meter()
    meter.add({"critic": torch.tensor(1.0), "actor": torch.tensor(8.0)})
    meter.add({"critic": torch.tensor(3.0)})
    assert meter.take() == {"critic": 2.0, "actor": 8.0}


def test_sums_may_come_in_one():
    meter = Meter()
    meter.add_sums(("a", "b"), torch.tensor([6.0, 9.0]), 3)
    assert meter.take() == {"a": 2.0, "b": 3.0}
