"""A function as a CUDA graph: what it does to its inputs, when, and which functions cannot become one."""

import pytest
import torch
from torch import Tensor

from penstock.cuda_graph import captured
from penstock.errors import DeviceError

pytestmark = pytest.mark.gpu


def test_each_call_does_what_the_function_does_and_capturing_it_does_nothing() -> None:
    count, taken = torch.zeros((), dtype=torch.int64, device="cuda"), torch.zeros(3, device="cuda")
    rows = torch.tensor([5.0, 6.0, 7.0], device="cuda")

    def take(count: Tensor, taken: Tensor, rows: Tensor) -> None:
        taken.add_(rows.index_select(0, count.view(1)))
        count.add_(1)

    run = captured(take, [count, taken, rows])
    assert (int(count), taken.tolist()) == (0, [0.0, 0.0, 0.0])
    run()
    run()
    assert (int(count), taken.tolist()) == (2, [11.0, 11.0, 11.0])
    # It reads its inputs anew each time.
    rows[2] = 1.0
    run()
    assert (int(count), taken.tolist()) == (3, [12.0, 12.0, 12.0])


def test_a_function_that_waits_for_the_gpu_is_refused() -> None:
    values = torch.zeros(2, device="cuda")

    def wait(values: Tensor) -> None:
        values.add_(values.sum().item())

    with pytest.raises(DeviceError, match="captur"):
        captured(wait, [values])
