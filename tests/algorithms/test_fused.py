"""The fused functions of PPO and A2C: the policies that they support, and that they agree with ``learn``."""

import numpy as np
import pytest

from penstock.algorithms.a2c import fused as a2c_fused
from penstock.algorithms.a2c.spec import A2CConfig
from penstock.algorithms.ppo import fused, learn
from penstock.algorithms.ppo.spec import PPOConfig, policy_graph, spec
from penstock.types import Box, Discrete, Spaces
from tests.algorithms.loop import Identity, Switch, Target

PIXELS = Spaces((("obs", Box((64, 64, 3), "uint8", (0.0,), (255.0,))),), Discrete(3))


@pytest.mark.parametrize(
    ("spaces", "settings", "serves"),
    [
        (Target.spaces, {}, True),
        (Identity.spaces, {"hidden_sizes": (400, 300), "activation": "gelu"}, True),
        (Switch.spaces, {"normalize_obs": True, "normalize_value": True, "target_kl": 0.02}, True),
        (Target.spaces, {"adam_eps": 0.0}, False),
        (Target.spaces, {"optimizer": "adamw"}, True),
        (Target.spaces, {"optimizer": "muon"}, False),
        (PIXELS, {}, False),
        (PIXELS, {"model": "mlp", "hidden_sizes": (8,)}, True),
    ],
)
def test_serves_separate_perceptrons(spaces, settings, serves):
    config = PPOConfig(**settings)
    assert fused.supports(policy_graph(spaces, config), config) is serves


def test_a2c_is_served_alike():
    config = A2CConfig()
    assert a2c_fused.supports(policy_graph(Target.spaces, config), config)
    assert not a2c_fused.supports(policy_graph(PIXELS, config), config)
    config = A2CConfig(rmsprop_eps=0.0)
    assert not a2c_fused.supports(policy_graph(Target.spaces, config), config)


def test_begins_with_the_same_state():
    config = PPOConfig()
    mine, theirs = fused.build(Target.spaces, config).init_state(5), learn.build(Target.spaces, config).init_state(5)
    assert list(mine) == [part.name for part in spec(Target.spaces, config).state]
    for name, values in theirs.items():
        np.testing.assert_array_equal(mine[name], values)


@pytest.mark.parametrize(("schedule", "lr"), [("constant", 1e-3), ("linear", 0.75e-3)])
def test_the_step_size_follows_progress(schedule, lr):
    """A quarter of the run is done: linear leaves three quarters."""
    config = PPOConfig(lr=1e-3, lr_schedule=schedule)
    assert fused.learning_rate(config, {"progress": np.array(0.25)}) == pytest.approx(lr)
