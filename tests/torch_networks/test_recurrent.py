"""Cells over time: by hand, and the native operators beside the loop in float64."""

import math

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from penstock.torch_networks.recurrent import gru, lstm
from penstock.updates.compiled.library import library

CELLS = {"lstm": (lstm, 4, 2), "gru": (gru, 3, 1)}
DTYPES = [torch.float32, torch.float64]
"""The native operator, and the loop."""


def sigmoid(x):
    return 1.0 / (1.0 + math.exp(-x))


def given(name, steps, lanes, size, seed=0):
    """Inputs in float64: x, the parameters, and the state; and which rows are first."""
    _, gates, states = CELLS[name]
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    x = numbers(lanes, steps, gates * size).transpose(0, 1)
    parameters = [numbers(size, gates * size) / size**0.5]
    if name == "gru":
        parameters.append(numbers(gates * size))
    first = torch.rand((lanes, steps), generator=generator).t() < 0.2
    if steps > 2:
        first[steps // 2, 0] = True
    return [x, *parameters], first, [numbers(lanes, size) for _ in range(states)]


def run(name, inputs, first, state, dtype):
    """Outputs, last states, and the gradients of all inputs down a sum with uneven weights."""
    function, _, _ = CELLS[name]
    leaves = [value.to(dtype).requires_grad_() for value in (*inputs, *state)]
    found = function(*leaves[: len(inputs)], first, tuple(leaves[len(inputs) :]))
    outputs = [found.output, *found.state]
    weights = [
        torch.sin(torch.arange(part.numel(), dtype=torch.float64)).view(part.shape).to(dtype) for part in outputs
    ]
    total = sum((part * weight).sum() for part, weight in zip(outputs, weights, strict=True))
    return [part.detach() for part in outputs], list(torch.autograd.grad(total, leaves))


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize(
    ("steps", "lanes", "size"),
    [(1, 1, 1), (1, 3, 5), (2, 1, 17), (9, 2, 5), (7, 4, 64), (5, 70, 17), (40, 6, 16), (3, 130, 33), (4, 3, 130)],
)
def test_operators_are_the_loop_in_float64(name, steps, lanes, size):
    inputs, first, state = given(name, steps, lanes, size)
    outputs, gradients = run(name, inputs, first, state, torch.float32)
    wanted_outputs, wanted_gradients = run(name, inputs, first, state, torch.float64)
    for found, wanted in zip(outputs, wanted_outputs, strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=2e-6)
    for found, wanted in zip(gradients, wanted_gradients, strict=True):
        scale = float(wanted.abs().max())
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=3e-6 * scale)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_lstm_by_hand(dtype):
    # One unit, two steps; numbers for i, f, g, o. Before: h = 0.5, c = -0.3.
    x1, x2, u = (0.1, 0.2, 0.3, 0.4), (-0.1, 0.5, 0.2, 0.3), (0.6, -0.2, 0.7, 0.1)
    h, c = 0.5, -0.3
    i1, f1, g1, o1 = [f(a + h * b) for f, a, b in zip((sigmoid, sigmoid, math.tanh, sigmoid), x1, u, strict=True)]
    c1 = f1 * c + i1 * g1
    h1 = o1 * math.tanh(c1)
    i2, f2, g2, o2 = [f(a + h1 * b) for f, a, b in zip((sigmoid, sigmoid, math.tanh, sigmoid), x2, u, strict=True)]
    c2 = f2 * c1 + i2 * g2
    h2 = o2 * math.tanh(c2)
    # The gradient of h2. Step 2, by the chain rule through h2 = o tanh(c2) and c2 = f c1 + i g:
    dc2 = o2 * (1 - math.tanh(c2) ** 2)
    d2 = (
        dc2 * g2 * i2 * (1 - i2),
        dc2 * c1 * f2 * (1 - f2),
        dc2 * i2 * (1 - g2**2),
        math.tanh(c2) * o2 * (1 - o2),
    )
    dh1 = sum(d * w for d, w in zip(d2, u, strict=True))
    # Step 1: c1 is reached through c2 and through h1.
    dc1 = dc2 * f2 + dh1 * o1 * (1 - math.tanh(c1) ** 2)
    d1 = (
        dc1 * g1 * i1 * (1 - i1),
        dc1 * c * f1 * (1 - f1),
        dc1 * i1 * (1 - g1**2),
        dh1 * math.tanh(c1) * o1 * (1 - o1),
    )
    dh = sum(d * w for d, w in zip(d1, u, strict=True))
    leaves = [torch.tensor(values, dtype=dtype, requires_grad=True) for values in ([[x1], [x2]], [u], [[h]], [[c]])]
    x, recurrent, *state = leaves
    found = lstm(x, recurrent, torch.zeros((2, 1), dtype=torch.bool), tuple(state))
    close = {"rtol": 1e-6, "atol": 1e-7}
    torch.testing.assert_close(found.output.flatten(), torch.tensor([h1, h2], dtype=dtype), **close)
    torch.testing.assert_close(found.state[0], torch.tensor([[h2]], dtype=dtype), **close)
    torch.testing.assert_close(found.state[1], torch.tensor([[c2]], dtype=dtype), **close)
    gradients = torch.autograd.grad(found.output[1, 0, 0], leaves)
    d_recurrent = [h1 * b + h * a for a, b in zip(d1, d2, strict=True)]
    wanted = [[[d1], [d2]], [d_recurrent], [[dh]], [[dc1 * f1]]]
    for gradient, values in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(gradient, torch.tensor(values, dtype=dtype), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gru_by_hand(dtype):
    # One unit, two steps; numbers for r, z, n. Before: h = 0.5.
    x1, x2, u, b = (0.1, 0.2, 0.3), (-0.4, 0.5, 0.6), (0.6, -0.2, 0.7), (0.05, -0.1, 0.2)
    h = 0.5

    def step(x, h):
        own = [h * w + bias for w, bias in zip(u, b, strict=True)]
        r, z = sigmoid(x[0] + own[0]), sigmoid(x[1] + own[1])
        n = math.tanh(x[2] + r * own[2])
        return r, z, n, own[2], (1 - z) * n + z * h

    def back(dh, gates, h):
        """The gradients of x and of h U + d, and that of h which does not go through U."""
        r, z, n, own, _ = gates
        dn = dh * (1 - z) * (1 - n**2)
        dr, dz = dn * own * r * (1 - r), dh * (h - n) * z * (1 - z)
        return (dr, dz, dn), (dr, dz, dn * r), dh * z

    first, second = step(x1, h), step(x2, step(x1, h)[-1])
    dx2, down2, direct2 = back(1.0, second, first[-1])
    dx1, down1, direct1 = back(direct2 + sum(d * w for d, w in zip(down2, u, strict=True)), first, h)
    dh = direct1 + sum(d * w for d, w in zip(down1, u, strict=True))
    leaves = [torch.tensor(values, dtype=dtype, requires_grad=True) for values in ([[x1], [x2]], [u], b, [[h]])]
    x, recurrent, bias, before = leaves
    found = gru(x, recurrent, bias, torch.zeros((2, 1), dtype=torch.bool), (before,))
    close = {"rtol": 1e-6, "atol": 1e-7}
    torch.testing.assert_close(found.output.flatten(), torch.tensor([first[-1], second[-1]], dtype=dtype), **close)
    torch.testing.assert_close(found.state[0], torch.tensor([[second[-1]]], dtype=dtype), **close)
    gradients = torch.autograd.grad(found.output[1, 0, 0], leaves)
    d_recurrent = [first[-1] * two + h * one for one, two in zip(down1, down2, strict=True)]
    d_bias = [one + two for one, two in zip(down1, down2, strict=True)]
    for gradient, values in zip(gradients, [[[dx1], [dx2]], [d_recurrent], d_bias, [[dh]]], strict=True):
        torch.testing.assert_close(gradient, torch.tensor(values, dtype=dtype), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CELLS)
def test_a_reset_begins_at_zero_and_cuts_the_gradient(name, dtype):
    (x, *parameters), first, state = given(name, 6, 2, 5)
    first[...] = False
    first[3, 1] = True
    leaves = [value.to(dtype).requires_grad_() for value in (x, *state)]
    x = leaves[0]
    parameters = [value.to(dtype) for value in parameters]
    function = CELLS[name][0]
    found = function(x, *parameters, first, tuple(leaves[1:]))
    alone = function(x[3:], *parameters, first[3:], tuple(torch.zeros_like(part) for part in leaves[1:]))
    torch.testing.assert_close(found.output[3:, 1], alone.output[:, 1])
    d_x, *d_state = torch.autograd.grad(found.output[4:].sum(), leaves)
    assert d_x[:3, 1].abs().max() == 0.0
    assert all(part[1].abs().max() == 0.0 for part in d_state)
    assert d_x[3:, 1].abs().amax(1).min() > 0.0
    # The other lane has no reset.
    assert d_x[:, 0].abs().amax(1).min() > 0.0
    assert all(part[0].abs().min() > 0.0 for part in d_state)


@pytest.mark.parametrize("name", CELLS)
def test_lanes_do_not_change_each_other(name):
    (x, *parameters), first, state = given(name, 5, 67, 17)
    x, *parameters = [value.float() for value in (x, *parameters)]
    state = [part.float() for part in state]
    whole = CELLS[name][0](x, *parameters, first, tuple(state)).output
    for lane in (0, 63, 64, 66):
        at = slice(lane, lane + 1)
        alone = CELLS[name][0](x[:, at], *parameters, first[:, at], tuple(part[at] for part in state)).output
        assert torch.equal(alone, whole[:, at])


def gradients_of(name, first, leaves):
    """Outputs, last states and gradients in float32, as one function of tensors."""
    states = CELLS[name][2]
    outputs, found = run(name, leaves[:-states], first, leaves[-states:], torch.float32)
    return (*outputs, *found)


@pytest.mark.parametrize("name", CELLS)
def test_a_traced_graph_does_not_grow_with_the_steps(name):
    """One operator stands for the whole sequence, and one for its gradient."""
    operators = []
    for steps in (3, 40):
        inputs, first, state = given(name, steps, 2, 5)
        leaves = [value.float() for value in (*inputs, *state)]
        graph = make_fx(lambda first, *leaves: gradients_of(name, first, leaves), tracing_mode="fake")(first, *leaves)
        operators.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
    assert operators[0] == operators[1]
    assert [at for at in operators[0] if at.startswith("penstock")] == [
        f"penstock.{name}.default",
        f"penstock.{name}_backward.default",
    ]


@pytest.mark.nightly  # Half a minute each. Shorter: the graphs above name the operators.
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_compiled_library_calls_the_operators(name, tmp_path, monkeypatch):
    """The first time it is built; the second time it comes from the cache, with what it needs to find operators."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    inputs, first, state = given(name, 30, 3, 5)
    leaves = [first, *(value.float() for value in (*inputs, *state))]
    wanted = gradients_of(name, *leaves[:1], leaves[1:])
    for _ in range(2):
        compiled, given_to_it = library(lambda first, *leaves: gradients_of(name, first, leaves), leaves, [])
        for found, value in zip(compiled(given_to_it), wanted, strict=True):
            torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-6)
