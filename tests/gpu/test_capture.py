"""A function as a CUDA graph: what it does to its inputs, when, which choices it makes, which cannot become one."""

import pytest
import torch
from torch import Tensor

from penstock.algorithm import Gradients, Phase
from penstock.algorithms.optimizer.loss_scale import scaled
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


def test_a_captured_step_is_left_out_where_its_gradient_overflows_and_taken_where_it_does_not() -> None:
    """With float16. The same graph does both, so the choice is the GPU's."""
    phase = scaled(
        Phase(
            "one",
            lambda state, minibatch, noise: Gradients({"actor": state["actor"]}, {}, {}),
            lambda state, gradients: {"actor": state["actor"] - gradients["actor"]},
        )
    )
    state = {
        "actor": torch.ones(3, device="cuda"),
        "loss_scale": torch.tensor(1024.0, device="cuda"),
        "loss_scale_steps": torch.tensor(7, device="cuda"),
    }
    gradient, used = torch.tensor([0.5, torch.inf, 0.5], device="cuda"), torch.tensor(1024.0, device="cuda")

    def step(*inputs: Tensor) -> None:
        given = dict(zip(state, inputs[:-2], strict=True))
        for name, values in phase.apply(given, {"actor": inputs[-2], "loss_scale": inputs[-1]}).items():
            given[name].copy_(values)

    run = captured(step, [*state.values(), gradient, used])
    for _ in range(2):
        # The second gradient was computed by the same scale, which is halved once.
        run()
        assert state["actor"].tolist() == [1.0, 1.0, 1.0]
        assert (float(state["loss_scale"]), int(state["loss_scale_steps"])) == (512.0, 0)
    gradient[1] = 0.25
    run()
    assert state["actor"].tolist() == [0.5, 0.75, 0.5]
    assert (float(state["loss_scale"]), int(state["loss_scale_steps"])) == (512.0, 1)


def test_a_function_that_waits_for_the_gpu_is_refused() -> None:
    values = torch.zeros(2, device="cuda")

    def wait(values: Tensor) -> None:
        values.add_(values.sum().item())

    with pytest.raises(DeviceError, match="captur"):
        captured(wait, [values])
