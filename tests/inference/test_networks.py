"""Networks with branches: torch and ONNX Runtime against float64 numpy, and the gradients of torch."""

import numpy as np
import pytest
import torch

from penstock.torch_networks.policy import Policy
from tests.inference import reference
from tests.inference.test_backends import agree


@pytest.mark.parametrize("name", reference.BRANCHED)
def test_torch_agrees_with_the_reference(name):
    graph, generator = reference.BRANCHED[name], np.random.default_rng(0)
    published = reference.record(graph, generator)
    obs, noise = reference.observations(graph, generator, 4), reference.noise_of(graph, generator, 4)
    explore = generator.uniform(0.0, 1.0, 4).astype(np.float32)
    inputs = {name: torch.from_numpy(values) for name, values in {**obs, "noise": noise, "explore": explore}.items()}
    found = Policy(graph).act({name: torch.as_tensor(values) for name, values in published.items()}, inputs)
    expected = reference.act(graph, published, obs, noise, explore)
    agree({name: found[name].numpy() for name in graph.outputs}, expected)


@pytest.mark.parametrize("name", reference.BRANCHED)
def test_gradients_are_those_of_finite_differences(name):
    """The derivative of the first output along one random direction, in float64."""
    graph, generator = reference.BRANCHED[name], np.random.default_rng(1)
    published = reference.record(graph, generator)
    obs = reference.observations(graph, generator, 3)
    flat = published["actor"].astype(np.float64)
    direction = generator.normal(size=flat.shape)
    state = {name: torch.as_tensor(values) for name, values in published.items()}
    leaf = torch.from_numpy(flat).requires_grad_()
    policy = Policy(graph)
    features = policy.features(
        {**state, "actor": leaf}, {name: torch.from_numpy(values) for name, values in obs.items()}
    )
    outputs = policy._actor(leaf, features).output.sum()
    (gradient,) = torch.autograd.grad(outputs, leaf)
    step = 1e-6

    def total(values):
        with torch.no_grad():
            return float(policy._actor(torch.from_numpy(values), features).output.sum())

    slope = (total(flat + step * direction) - total(flat - step * direction)) / (2 * step)
    assert float(gradient.numpy() @ direction) == pytest.approx(slope, rel=1e-4, abs=1e-6)
