"""Which GPU is `cuda` in a process, on machines with made-up numbers of GPUs."""

import pytest
import torch

from penstock.processes import worker
from penstock.program.graph import NodeSpec
from penstock.updates.devices import keep_to
from penstock.wiring.edges import Placement


@pytest.mark.parametrize(
    ("gpus", "chosen"), [(0, []), (1, [0, 0, 0, 0, 0]), (2, [0, 1, 0, 1, 0]), (4, [0, 1, 2, 3, 0])]
)
def test_learners_take_the_gpus_of_a_machine_in_turn(
    monkeypatch: pytest.MonkeyPatch, gpus: int, chosen: list[int]
) -> None:
    found: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", found.append)
    for learner in range(5):
        keep_to(learner)
    assert found == chosen


def test_a_process_keeps_to_the_gpu_that_its_node_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", found.append)
    for gpu in (None, 3):
        worker._keep_to_gpu(Placement("learner", (NodeSpec("learner", "learner", None, "learner", gpu=gpu),), (), ()))
    assert found == [3]
