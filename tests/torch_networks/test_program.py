"""Policies exported as programs of torch: their actions in the environment's units."""

import io

import numpy as np
import pytest
import torch

from penstock.kernels.actions import environment_array, to_environment
from penstock.policies import Gaussian
from penstock.torch_networks.program import exported
from penstock.types import Box, Spaces
from tests.inference import reference

OBS = (("obs", Box((3,), "float32", (-np.inf,), (np.inf,))),)
BOXES = {
    "bounds": Box((2,), "float32", (-2.0, 0.0), (2.0, 3.0)),
    "some bounds": Box((2,), "float32", (0.0, -np.inf), (np.inf, -0.1)),
    "no bounds": Box((2,), "float32", (-np.inf,), (np.inf,)),
}


@pytest.mark.parametrize("name", BOXES)
def test_a_program_gives_the_greedy_action_in_environment_units(name):
    space, generator = BOXES[name], np.random.default_rng(1)
    graph = reference.actor_critic(reference.FLAT, Gaussian(2))
    published, obs = reference.record(graph, generator), reference.observations(graph, generator, 20)
    program = torch.export.load(io.BytesIO(exported(graph, Spaces(OBS, space), published, obs))).module()
    action = program({"obs": torch.as_tensor(obs["obs"])})["action"].numpy()
    mean, _ = reference.head_and_value(graph, published, obs)
    expected = to_environment(mean.astype(np.float32), space, environment_array(space, 20))
    np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-5)
    assert (action >= space.low).all()
    assert (action <= np.asarray(space.high, np.float32)).all()
