"""Networks as functions of their flat vector, against torch's own modules and by hand."""

import numpy as np
import pytest
import torch

from penstock.policies import (
    Activation,
    Attention,
    Branch,
    Categorical,
    Conv2d,
    Dropout,
    Dueling,
    Embedding,
    Encoding,
    Flatten,
    LayerNorm,
    Linear,
    MaxPool,
    MeanPool,
    Network,
    PolicyGraph,
)
from penstock.torch_networks.forward import Forward
from penstock.torch_networks.policy import Policy


def test_two_layers_by_hand():
    # W1 = ((1, 2), (3, 4)), b1 = (-5, 0), relu, W2 = (1, 10), b2 = 0.5; x = (1, 1):
    # (4 - 5, 6) -> (0, 6) -> 60.5
    network = Network("n", (Linear(2, 2, 1.0), Activation("relu"), Linear(2, 1, 1.0)))
    flat = torch.tensor([1.0, 2.0, 3.0, 4.0, -5.0, 0.0, 1.0, 10.0, 0.5])
    assert Forward(network)(flat, torch.ones(1, 2)).output.tolist() == [[60.5]]


def test_free_vectors_follow_the_layers():
    network = Network("n", (Linear(1, 1, 1.0),), (("log_std", 2, -1.0),))
    outputs = Forward(network)(torch.tensor([1.0, 2.0, 7.0, 8.0]), torch.tensor([[3.0]]))
    assert outputs.output.tolist() == [[5.0]]
    assert outputs.free["log_std"].tolist() == [7.0, 8.0]


@pytest.mark.parametrize("name", ["tanh", "relu", "elu", "silu", "gelu", "sigmoid"])
def test_activations_are_torchs(name):
    network = Network("n", (Activation(name),))
    x = torch.linspace(-3.0, 3.0, 13).reshape(1, -1)
    module = {"tanh": "Tanh", "relu": "ReLU", "elu": "ELU", "silu": "SiLU", "gelu": "GELU", "sigmoid": "Sigmoid"}[name]
    torch.testing.assert_close(Forward(network)(torch.zeros(0), x).output, getattr(torch.nn, module)()(x))


def test_convolutions_are_torchs():
    network = Network("n", (Conv2d(2, 3, 3, 2, 1.0), Activation("relu"), Flatten(), Linear(3 * 4 * 4, 2, 1.0)))
    flat = torch.from_numpy(network.initial(np.random.default_rng(0)))
    convolution, linear = torch.nn.Conv2d(2, 3, 3, 2), torch.nn.Linear(48, 2)
    parts = {part.name: flat[part.offset :][: int(np.prod(part.shape))].view(part.shape) for part in network.slices()}
    with torch.no_grad():
        convolution.weight.copy_(parts["0.weight"])
        convolution.bias.copy_(parts["0.bias"] + 0.1)
        flat[parts["0.weight"].numel() :][:3] += 0.1
        linear.weight.copy_(parts["3.weight"].T)
        linear.bias.copy_(parts["3.bias"])
    x = torch.randn(5, 2, 9, 9, generator=torch.Generator().manual_seed(0))
    expected = linear(torch.relu(convolution(x)).flatten(1))
    torch.testing.assert_close(Forward(network)(flat, x).output, expected, rtol=1e-5, atol=1e-6)


def test_pixels_are_scaled_by_the_first_layer():
    network = Network("n", (Conv2d(1, 1, 1, 1, 1.0), Flatten(), Linear(1, 1, 1.0)))
    # 51 / 255 * 30 + 1 = 7; 7 * 2 - 1 = 13
    flat = torch.tensor([30.0, 1.0, 2.0, -1.0])
    forward = Forward(network, (Encoding("obs", "image", 1),))
    assert forward(flat, {"obs": torch.full((1, 1, 1, 1), 51.0)}).output.item() == pytest.approx(13.0)


def test_the_last_layer_computes_in_the_parameters_dtype():
    network = Network("n", (Linear(1, 1, 1.0), Linear(1, 1, 1.0)))
    # 1.0009765625 is 1 in bfloat16 and is not in float32.
    flat = torch.tensor([1.0009765625, 0.0, 1.0009765625, 0.0])
    output = Forward(network)(flat, torch.ones(1, 1, dtype=torch.bfloat16)).output
    assert output.dtype == torch.float32
    assert output.tolist() == [[1.0009765625]]


def test_weights_are_views_and_gradients_are_flat():
    network = Network("n", (Linear(3, 4, 1.0), Activation("tanh"), Linear(4, 2, 1.0)), (("log_std", 2, 0.0),))
    flat = torch.from_numpy(network.initial(np.random.default_rng(0))).requires_grad_()
    outputs = Forward(network)(flat, torch.ones(5, 3))
    (gradient,) = torch.autograd.grad(outputs.output.sum() + outputs.free["log_std"].sum(), flat)
    assert gradient.shape == flat.shape
    assert gradient[-2:].tolist() == [1.0, 1.0]
    assert outputs.free["log_std"].data_ptr() == flat[-2:].data_ptr()


def test_a_dueling_layer_by_hand():
    # Two actions of two atoms: v = (1, 2), a0 = (10, 20), a1 = (30, 60); mean a = (20, 40).
    # q0 = (1 + 10 - 20, 2 + 20 - 40) = (-9, -18), q1 = (1 + 30 - 20, 2 + 60 - 40) = (11, 22)
    x = torch.tensor([[1.0, 2.0, 10.0, 20.0, 30.0, 60.0]])
    assert Forward(Network("n", (Dueling(2, 2),)))(torch.zeros(0), x).output.tolist() == [[-9.0, -18.0, 11.0, 22.0]]


def test_a_dueling_layer_after_a_bfloat16_body_is_computed_in_float32():
    network = Network("n", (Linear(2, 4, 1.0), Activation("relu"), Linear(4, 3, 1.0), Dueling(2)))
    flat = torch.from_numpy(network.initial(np.random.default_rng(0)))
    output = Forward(network)(flat, torch.ones(1, 2, dtype=torch.bfloat16)).output
    assert output.dtype == torch.float32
    assert output.shape == (1, 2)


def assigned(network, module, names):
    """A flat vector with the parameters of torch's module, moved away from their first values."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    found = dict(module.named_parameters())
    parts = [found[name].T if found[name].dim() == 2 else found[name] for name in names]
    assert [tuple(part.shape) for part in parts] == [part.shape for part in network.slices()]
    return torch.cat([part.detach().flatten() for part in parts]).requires_grad_()


def test_layer_norm_is_torchs():
    network, module = Network("n", (LayerNorm(6),)), torch.nn.LayerNorm(6)
    flat = assigned(network, module, ("weight", "bias"))
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(Forward(network)(flat, x).output, module(x))


@pytest.mark.parametrize("side", [4, 5])
def test_max_pool_is_torchs(side):
    x = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))
    output = Forward(Network("n", (MaxPool(3, 2, 1),)))(torch.zeros(0), x).output
    torch.testing.assert_close(output, torch.nn.MaxPool2d(3, 2, 1)(x))


def test_attention_is_torchs_in_values_and_gradients():
    part = Encoding("obs", "set", 40, shape=(5, 8))
    network = Network("n", (), branches=(Branch(("obs",), (Attention(8, 2), MeanPool()), 8),))
    module = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    names = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
    flat = assigned(network, module, names)
    x = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1))
    x[0, 3:] = 0.0
    padding = (x == 0.0).all(2)
    found, _ = module(x, x, x, key_padding_mask=padding)
    expected = (found * ~padding.unsqueeze(2)).sum(1) / (~padding).sum(1, keepdim=True)
    output = Forward(network, (part,))(flat, {"obs": x}).output
    torch.testing.assert_close(output, expected)
    (gradient,) = torch.autograd.grad(output.square().sum(), flat)
    expected.square().sum().backward()
    named = dict(module.named_parameters())
    parts = [named[name].grad.T if named[name].dim() == 2 else named[name].grad for name in names]
    torch.testing.assert_close(gradient, torch.cat([part.flatten() for part in parts]))


def test_attention_in_float16_is_nearly_that_in_float32():
    encoding = (Encoding("obs", "set", 40, shape=(5, 8)),)
    branch = Branch(("obs",), (Attention(8, 2), MeanPool()), 8)
    graph = PolicyGraph(encoding, Network("actor", (Linear(8, 4, 1.0),), branches=(branch,)), None, Categorical(3))
    published = {"actor": torch.from_numpy(graph.actor.initial(np.random.default_rng(0)))}
    obs = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1))
    obs[0, 3:], obs[1] = 0.0, 0.0
    exact, rounded = (Policy(graph, precision)(published, {"obs": obs}).value for precision in ("float32", "float16"))
    torch.testing.assert_close(rounded, exact, rtol=0.0, atol=0.01)


def test_an_empty_set_is_zero_and_has_a_gradient():
    network = Network("n", (), branches=(Branch(("obs",), (Attention(4, 1), MeanPool()), 4),))
    flat = torch.from_numpy(network.initial(np.random.default_rng(0))).requires_grad_()
    output = Forward(network, (Encoding("obs", "set", 8, shape=(2, 4)),))(flat, {"obs": torch.zeros(1, 2, 4)}).output
    assert output.tolist() == [[0.0] * 4]
    assert not torch.autograd.grad(output.sum(), flat)[0].isnan().any()


def test_an_embedding_is_a_row_of_its_table():
    network = Network("n", (Embedding(3, 2),))
    output = Forward(network)(torch.arange(6.0), torch.tensor([2, 0])).output
    assert output.tolist() == [[4.0, 5.0], [0.0, 1.0]]


def test_dropout_by_hand():
    # Noise below 1/4 drops; what stays is divided by 3/4. Without noise nothing is dropped.
    forward = Forward(Network("n", (Dropout(3, 0.25),)))
    x, noise = torch.tensor([[3.0, 6.0, 9.0]]), torch.tensor([[0.24, 0.25, 0.9]])
    assert forward(torch.zeros(0), x, None, [noise]).output.tolist() == [[0.0, 8.0, 12.0]]
    assert forward(torch.zeros(0), x).output.tolist() == [[3.0, 6.0, 9.0]]
