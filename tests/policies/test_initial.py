"""The initialisations by their definitions."""

import math

import numpy as np
import pytest

from penstock.policies import Attention, Conv2d, Embedding, LayerNorm, Linear, Network

WIDE = Linear(400, 100, 2.0**0.5)


def parts(layer, init):
    network = Network("n", (layer,), init=init)
    flat = network.initial(np.random.default_rng(0))
    return {
        part.name[2:]: flat[part.offset :][: math.prod(part.shape)].reshape(part.shape) for part in network.slices()
    }


def test_orthogonal_columns_have_the_length_of_the_gain():
    weight = parts(WIDE, "orthogonal")["weight"]
    np.testing.assert_allclose(weight.T @ weight, 2.0 * np.eye(100), atol=1e-5)


@pytest.mark.parametrize(
    ("init", "layer", "bound", "deviation"),
    [
        # sqrt(6 / 500) and that over sqrt(3); a small gain makes it smaller, a large one does not make it larger.
        ("xavier", WIDE, math.sqrt(6.0 / 500.0), math.sqrt(2.0 / 500.0)),
        ("xavier", Linear(400, 100, 0.1), 0.1 * math.sqrt(6.0 / 500.0), 0.1 * math.sqrt(2.0 / 500.0)),
        # He et al. 2015: sqrt(2 / fan_in), which is 4 * 5 * 5 for a convolution.
        ("he", WIDE, math.inf, math.sqrt(2.0 / 400.0)),
        ("he", Conv2d(4, 300, 5, 1, 2.0**0.5), math.inf, math.sqrt(2.0 / 100.0)),
        # torch.nn: 1 / sqrt(fan_in), whatever the gain.
        ("torch", Linear(400, 100, 0.01), 0.05, 0.05 / math.sqrt(3.0)),
        ("torch", Conv2d(4, 300, 5, 1, 1.0), 0.1, 0.1 / math.sqrt(3.0)),
    ],
)
def test_weights_have_the_spread_of_their_initialisation(init, layer, bound, deviation):
    found = parts(layer, init)
    assert np.abs(found["weight"]).max() <= bound
    assert found["weight"].std() == pytest.approx(deviation, rel=0.02)
    assert found["weight"].mean() == pytest.approx(0.0, abs=0.05 * deviation)
    assert bool(found["bias"].any()) is (init == "torch")


@pytest.mark.parametrize("init", ["orthogonal", "xavier", "he", "torch"])
def test_layers_without_a_gain_begin_as_their_papers_say(init):
    norm, attention = parts(LayerNorm(5), init), parts(Attention(8, 2), init)
    assert (norm["weight"].tolist(), norm["bias"].tolist()) == ([1.0] * 5, [0.0] * 5)
    assert not attention["bias"].any()
    assert not attention["output_bias"].any()
    assert parts(Embedding(500, 40), init)["weight"].std() == pytest.approx(1.0, rel=0.02)
