"""Policies with memory in torch: against torch.nn's own cells, hand-worked cells, and the exported model."""

import math

import numpy as np
import onnxruntime
import pytest
import torch

from penstock.inference.onnx import export
from penstock.inference.onnx.backend import build as build_onnx
from penstock.policies import GRU, LSTM, Activation, Categorical, Encoding, Gaussian, Linear, Network, PolicyGraph
from penstock.policies.acting_session import ActingSession, no_carry
from penstock.torch_networks.policy import Policy
from penstock.types import Box, Discrete, Spaces

INPUTS, SIZE, ACTIONS = 3, 5, 2


def graph_of(cell, *, critic: bool = False, **changes) -> PolicyGraph:
    below = (Linear(INPUTS, 4, 1.0), Activation("tanh"))
    actor = Network("actor", (*below, cell(4, SIZE), Linear(SIZE, ACTIONS + (not critic), 1.0)))
    other = Network("critic", (cell(INPUTS, SIZE), Linear(SIZE, 1, 1.0))) if critic else None
    return PolicyGraph((Encoding("obs", "flat", INPUTS),), actor, other, Categorical(ACTIONS), **changes)


def published_of(graph: PolicyGraph, dtype=torch.float64) -> dict[str, torch.Tensor]:
    generator = np.random.default_rng(3)
    found = {network.name: network.initial(generator) for network in graph.networks}
    # Biases that are not zero, too.
    found = {name: values + 0.1 * generator.normal(size=values.shape) for name, values in found.items()}
    return {name: torch.tensor(values, dtype=dtype) for name, values in found.items()}


def arrays_of(network: Network, flat: torch.Tensor) -> dict[str, torch.Tensor]:
    return {part.name: flat[part.offset :][: math.prod(part.shape)].view(part.shape) for part in network.slices()}


def module_of(cell, parts: dict[str, torch.Tensor]) -> torch.nn.Module:
    """torch.nn's cell with the weights of layer 2."""
    made = {LSTM: torch.nn.LSTMCell, GRU: torch.nn.GRUCell}[cell](4, SIZE, dtype=torch.float64)
    with torch.no_grad():
        made.weight_ih.copy_(parts["2.weight"].t())
        made.weight_hh.copy_(parts["2.recurrent"].t())
        made.bias_ih.copy_(parts["2.bias"])
        made.bias_hh.copy_(parts.get("2.recurrent_bias", torch.zeros_like(made.bias_hh)))
    return made


def lanes_of(graph: PolicyGraph, lanes: int, steps: int) -> dict[str, torch.Tensor]:
    generator = np.random.default_rng(5)
    rows = {
        "obs": generator.normal(size=(lanes, steps, INPUTS)),
        **{spec.name: generator.normal(size=(lanes, *spec.shape)) for spec in graph.carry},
    }
    first = torch.from_numpy(generator.random((lanes, steps)) < 0.25)
    return {"first": first, **{name: torch.tensor(values, dtype=torch.float64) for name, values in rows.items()}}


@pytest.mark.parametrize("cell", [LSTM, GRU])
def test_whole_lanes_equal_the_cell_of_torch_step_by_step(cell) -> None:
    graph = graph_of(cell)
    published = published_of(graph)
    flat = published["actor"].requires_grad_()
    rows = lanes_of(graph, 4, 7)
    found = Policy(graph)({"actor": flat}, rows)
    loss = (found.value**2).sum() + found.distribution.entropy().sum()
    (gradient,) = torch.autograd.grad(loss, flat)

    again = flat.detach().clone().requires_grad_()
    parts = arrays_of(graph.actor, again)
    module = module_of(cell, parts)
    names = {"weight_ih": "2.weight", "weight_hh": "2.recurrent", "bias_ih": "2.bias", "bias_hh": "2.recurrent_bias"}
    own = {
        name: parts[part].t() if part.startswith(("2.w", "2.recurrent")) and parts[part].dim() == 2 else parts[part]
        for name, part in names.items()
        if part in parts
    }
    own.setdefault("bias_hh", torch.zeros_like(module.bias_hh))
    state = [rows[spec.name] for spec in graph.carry]
    outputs = []
    for t in range(7):
        state = [torch.where(rows["first"][:, t, None], 0.0, part) for part in state]
        x = torch.tanh(rows["obs"][:, t] @ parts["0.weight"] + parts["0.bias"])
        given = (x, tuple(state)) if cell is LSTM else (x, state[0])
        stepped = torch.func.functional_call(module, own, given)
        state = list(stepped) if cell is LSTM else [stepped]
        outputs.append(state[0] @ parts["3.weight"] + parts["3.bias"])
    output = torch.stack(outputs, 1).flatten(0, 1)
    torch.testing.assert_close(found.value, output[:, -1])
    torch.testing.assert_close(found.distribution.logits, output[:, :-1])
    for spec, part in zip(graph.carry, state, strict=True):
        torch.testing.assert_close(found.carry[spec.name], part)
    entropy = torch.distributions.Categorical(logits=output[:, :-1]).entropy()
    (expected,) = torch.autograd.grad((output[:, -1] ** 2).sum() + entropy.sum(), again)
    torch.testing.assert_close(gradient, expected)


def test_an_lstm_of_one_unit_by_hand() -> None:
    graph = PolicyGraph(
        (Encoding("obs", "flat", 1),), Network("actor", (LSTM(1, 1), Linear(1, 2, 1.0))), None, Categorical(1)
    )
    # W = (0.5, -0.3, 0.8, 0.2), U = (0.1, 0.4, -0.6, 0.7), b = (0, 1, 0, -0.5); the value is 2 h.
    flat = torch.tensor(
        [0.5, -0.3, 0.8, 0.2, 0.1, 0.4, -0.6, 0.7, 0.0, 1.0, 0.0, -0.5, 0.0, 2.0, 0.0, 0.0], dtype=torch.float64
    )
    rows = {
        "obs": torch.tensor([[[1.0], [2.0]]]).double(),
        "first": torch.tensor([[True, False]]),
        "carry.actor.0.h": torch.tensor([[9.0]]).double(),
        "carry.actor.0.c": torch.tensor([[9.0]]).double(),
    }

    def sigmoid(x: float) -> float:
        return 1.0 / (1.0 + math.exp(-x))

    c1 = sigmoid(0.5) * math.tanh(0.8)
    h1 = sigmoid(0.2 - 0.5) * math.tanh(c1)
    c2 = sigmoid(-0.6 + 0.4 * h1 + 1.0) * c1 + sigmoid(1.0 + 0.1 * h1) * math.tanh(1.6 - 0.6 * h1)
    h2 = sigmoid(0.4 + 0.7 * h1 - 0.5) * math.tanh(c2)
    found = Policy(graph)({"actor": flat}, rows)
    assert found.value.tolist() == pytest.approx([2 * h1, 2 * h2], rel=1e-12)
    assert found.carry["carry.actor.0.c"].item() == pytest.approx(c2, rel=1e-12)


def test_a_gru_of_one_unit_by_hand() -> None:
    graph = PolicyGraph(
        (Encoding("obs", "flat", 1),), Network("actor", (GRU(1, 1), Linear(1, 2, 1.0))), None, Categorical(1)
    )
    # r, z, n: W = (0.5, -0.3, 0.8), U = (0.1, 0.4, -0.6), b = (0, 0.2, 0), d = (0.3, 0, -0.1); the value is h.
    flat = torch.tensor(
        [0.5, -0.3, 0.8, 0.1, 0.4, -0.6, 0.0, 0.2, 0.0, 0.3, 0.0, -0.1, 0.0, 1.0, 0.0, 0.0], dtype=torch.float64
    )
    rows = {
        "obs": torch.tensor([[[1.0]]]).double(),
        "first": torch.tensor([[False]]),
        "carry.actor.0.h": torch.tensor([[0.5]]).double(),
    }
    r = 1.0 / (1.0 + math.exp(-(0.5 + 0.1 * 0.5 + 0.3)))
    z = 1.0 / (1.0 + math.exp(-(-0.3 + 0.4 * 0.5 + 0.2)))
    n = math.tanh(0.8 + r * (-0.6 * 0.5 - 0.1))
    found = Policy(graph)({"actor": flat}, rows)
    assert found.value.item() == pytest.approx((1 - z) * n + z * 0.5, rel=1e-12)


def test_no_gradient_flows_from_an_episode_into_the_one_before() -> None:
    graph = graph_of(LSTM)
    rows = lanes_of(graph, 1, 6)
    rows["first"][...] = False
    rows["first"][0, 3] = True
    rows["obs"].requires_grad_()
    found = Policy(graph)(published_of(graph), rows)
    (gradient,) = torch.autograd.grad(found.value[3:].sum(), rows["obs"])
    assert not gradient[0, :3].any()
    assert gradient[0, 3:].any(1).all()


# Two seconds each. Shorter: those with a mask, which have the most inputs.
@pytest.mark.parametrize("cell", [LSTM, GRU])
@pytest.mark.parametrize(
    ("critic", "mask"),
    [(False, "action_mask"), *(pytest.param(one, None, marks=pytest.mark.nightly) for one in (False, True))],
)
def test_the_exported_policy_equals_the_trained_one_over_a_thousand_steps(cell, critic: bool, mask: str | None) -> None:
    """Teacher-forced, with episode ends among them: each side keeps a carry of its own."""
    graph = graph_of(cell, critic=critic, normalize_obs=True, mask=mask)
    fields = [("obs", Box((INPUTS,), "float32", (-9.0,), (9.0,)))]
    fields += [] if mask is None else [(mask, Box((ACTIONS,), "uint8", (0.0,), (1.0,)))]
    spaces = Spaces(tuple(sorted(fields)), Discrete(ACTIONS, start=4), mask)
    published = {name: values.float() for name, values in published_of(graph).items()}
    generator = np.random.default_rng(0)
    statistics = {
        "obs_mean": generator.normal(size=INPUTS),
        "obs_var": generator.uniform(0.5, 2.0, INPUTS),
        "obs_count": np.int64(100),
    }
    record = {**{name: values.numpy() for name, values in published.items()}, **statistics}
    steps, lanes = 1000, 2
    obs = generator.normal(size=(lanes, steps, INPUTS)).astype(np.float32)
    first = generator.random((lanes, steps)) < 0.02
    first[:, 0] = True
    # One action or both are possible.
    possible = (generator.random((lanes, steps, ACTIONS)) < 0.5).astype(np.uint8)
    possible[possible.sum(2) == 0] = 1
    masks = {} if mask is None else {mask: possible}
    rows = {
        **{name: torch.from_numpy(values) for name, values in masks.items()},
        "obs": torch.from_numpy(obs),
        "first": torch.from_numpy(first),
        **{name: torch.from_numpy(values) for name, values in no_carry(graph, lanes).items()},
    }
    with torch.no_grad():
        judged = Policy(graph)({**published, **{k: torch.as_tensor(v) for k, v in statistics.items()}}, rows)
    logits = judged.distribution.logits.view(lanes, steps, ACTIONS)
    values = judged.value.view(lanes, steps).numpy()

    model = onnxruntime.InferenceSession(export(graph, spaces, record))
    carry = no_carry(graph, lanes)
    acting = ActingSession(graph, spaces.action, np.arange(lanes))
    backend = build_onnx(graph)
    backend.load(record)
    out = {"action": np.zeros(lanes, np.int64), "value": np.zeros(lanes, np.float32)}
    names = ["action", "value", *(f"next.{name}" for name in carry)]
    for t in range(steps):
        given = {"obs": obs[:, t], "first": first[:, t], **{name: values[:, t] for name, values in masks.items()}}
        action, value, *behind = model.run(names, {**given, **carry})
        carry = dict(zip(carry, behind, strict=True))
        told = acting.act(backend, given, out)
        np.testing.assert_allclose(value, values[:, t], atol=1e-5)
        np.testing.assert_allclose(out["value"], values[:, t], atol=1e-5)
        clear = (logits[:, t, 0] - logits[:, t, 1]).abs().numpy() > 1e-4
        best = logits[:, t].argmax(1).numpy() + 4
        assert np.array_equal(action[clear], best[clear])
        assert np.array_equal(told[clear], best[clear])


def test_a_gaussian_policy_with_a_memory_acts_by_its_mean_and_noise() -> None:
    actor = Network("actor", (GRU(2, 3), Linear(3, 2, 1.0)), (("log_std", 1, math.log(0.5)),))
    graph = PolicyGraph((Encoding("obs", "flat", 2),), actor, None, Gaussian(1))
    published = {"actor": torch.from_numpy(actor.initial(np.random.default_rng(0)))}
    inputs = {
        "obs": torch.ones(2, 2),
        "first": torch.tensor([True, False]),
        "carry.actor.0.h": torch.full((2, 3), 0.3),
        "noise": torch.tensor([[0.0], [2.0]]),
        "explore": torch.ones(2),
    }
    outputs = Policy(graph).act(published, inputs)
    mean = Policy(graph)(published, inputs).distribution.mean
    torch.testing.assert_close(outputs["action"], mean + torch.tensor([[0.0], [1.0]]))
    assert outputs["carry.actor.0.h"].shape == (2, 3)
    assert not torch.equal(outputs["carry.actor.0.h"][0], outputs["carry.actor.0.h"][1])
