"""Graphs whose tensors and tuned numbers are inputs."""

import torch

from penstock.updates.compiled.tracing import trace


def square_loss(lr):
    """One step of gradient descent on (w - 3)^2, scaled, with a constant tensor inside."""

    def step(w):
        w = w.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(((w - torch.tensor([3.0])) ** 2).sum(), w)
        return w.detach() - lr * gradient * 0.75

    return step


def test_the_graph_means_the_function_and_holds_its_backward_pass():
    w = torch.tensor([1.0])
    graph, inputs = trace(square_loss(0.1), [w], {}, [0.1])
    # w - 0.1 * 0.75 * 2 * (1 - 3) = 1.3
    torch.testing.assert_close(graph(*inputs), torch.tensor([1.3]))
    assert [value.tolist() for value in inputs[1:]] == [[3.0], torch.tensor(0.1).item()]


def test_one_graph_serves_every_value_of_a_tuned_number():
    w = torch.tensor([1.0])
    one, _ = trace(square_loss(0.1), [w], {}, [0.1])
    other, inputs = trace(square_loss(0.2), [w], {}, [0.2])
    assert one.code == other.code
    torch.testing.assert_close(one(*inputs), square_loss(0.2)(w))


def test_other_numbers_stay_in_the_graph():
    w = torch.tensor([1.0])
    graph, inputs = trace(square_loss(0.1), [w], {}, [])
    assert len(inputs) == 2
    assert "0.1" in graph.code
    assert "0.75" in graph.code


def test_a_tuned_number_keeps_the_dtype_of_what_it_meets():
    x = torch.tensor([1.0], dtype=torch.float64)
    graph, inputs = trace(lambda x: (x > 0.2, x * 0.2, x.float().sum() * 0.2), [x], {}, [0.2])
    over, product, single = graph(*inputs)
    assert bool(over)
    assert float(product) == 0.2
    assert single.dtype == torch.float32


def test_a_tuned_number_that_meets_whole_numbers_or_flags_keeps_its_value():
    flags, count = torch.tensor([True, False]), torch.tensor([2, 1])
    graph, inputs = trace(lambda flags, count: (flags * 0.99, count * 0.99), [flags, count], {}, [0.99])
    kept, discounted = graph(*inputs)
    torch.testing.assert_close(kept, torch.tensor([0.99, 0.0]))
    torch.testing.assert_close(discounted, torch.tensor([1.98, 0.99]))


def test_a_tuned_number_that_meets_bfloat16_is_not_rounded():
    x = torch.full((8,), 3.0, dtype=torch.bfloat16)
    graph, inputs = trace(lambda x: x / 0.9, [x], {}, [0.9])
    assert torch.equal(graph(*inputs), x / 0.9)


def test_rewrites_take_the_place_of_operators():
    graph, inputs = trace(torch.tanh, [torch.ones(2)], {torch.ops.aten.tanh.default: lambda x: x + 1.0}, [])
    assert graph(*inputs).tolist() == [2.0, 2.0]
