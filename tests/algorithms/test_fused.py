"""The fused functions of algorithms on rollouts: the policies that they support, and that they agree with ``learn``."""

from dataclasses import replace

import numpy as np
import pytest

from penstock.algorithms.a2c import fused as a2c_fused
from penstock.algorithms.a2c.spec import A2CConfig
from penstock.algorithms.appo import fused as appo_fused
from penstock.algorithms.appo import learn as appo_learn
from penstock.algorithms.appo import spec as appo_spec
from penstock.algorithms.appo.spec import APPOConfig
from penstock.algorithms.impala import fused as impala_fused
from penstock.algorithms.impala import learn as impala_learn
from penstock.algorithms.impala import spec as impala_spec
from penstock.algorithms.impala.spec import IMPALAConfig
from penstock.algorithms.ppo import fused
from penstock.algorithms.ppo.spec import PPOConfig, policy_graph
from penstock.types import Box, Discrete, Spaces
from penstock.updates.eager import EagerUpdater
from penstock.updates.fused import FusedUpdater
from penstock.updates.settings import UpdaterSettings
from tests.algorithms.loop import Identity, Switch, Target, allocate, collect, flat_rows

PIXELS = Spaces((("obs", Box((64, 64, 3), "uint8", (0.0,), (255.0,))),), Discrete(3))


@pytest.mark.parametrize(
    ("spaces", "settings", "serves"),
    [
        (Target.spaces, {}, True),
        (Identity.spaces, {"hidden_sizes": (400, 300), "activation": "gelu"}, True),
        (Switch.spaces, {"normalize_obs": True, "normalize_value": True, "target_kl": 0.02}, True),
        (Target.spaces, {"adam_eps": 0.0}, False),
        (Target.spaces, {"optimizer": "adamw"}, True),
        (Target.spaces, {"optimizer": "muon"}, True),
        (PIXELS, {}, False),
        (PIXELS, {"model": "mlp", "hidden_sizes": (8,)}, True),
    ],
)
def test_serves_separate_mlps(spaces, settings, serves):
    config = PPOConfig(**settings)
    assert fused.supports(policy_graph(spaces, config), config) is serves


def test_a2c_is_served_alike():
    config = A2CConfig()
    assert a2c_fused.supports(policy_graph(Target.spaces, config), config)
    assert not a2c_fused.supports(policy_graph(PIXELS, config), config)
    config = A2CConfig(rmsprop_eps=0.0)
    assert not a2c_fused.supports(policy_graph(Target.spaces, config), config)


@pytest.mark.parametrize(("module", "kind"), [(impala_fused, IMPALAConfig), (appo_fused, APPOConfig)])
def test_what_corrects_for_older_policies_is_served_alike(module, kind):
    mask = ("action_mask", Box((4,), "uint8", (0.0,), (1.0,)))
    masked = replace(Identity.spaces, obs=(*Identity.spaces.obs, mask), mask="action_mask")
    for spaces, settings, serves in [
        (Target.spaces, {}, True),
        (Switch.spaces, {"normalize_obs": True, "normalize_value": True}, True),
        (Target.spaces, {"adam_eps": 0.0}, False),
        (Target.spaces, {"model": "lstm"}, False),
        (masked, {}, False),
        (PIXELS, {}, False),
    ]:
        config = kind(**settings)
        assert module.supports(policy_graph(spaces, config), config) is serves


LAGGING = {
    "impala": (impala_fused, impala_learn, impala_spec, IMPALAConfig),
    "appo": (appo_fused, appo_learn, appo_spec, APPOConfig),
}


@pytest.mark.parametrize("settings", [{}, {"normalize_obs": True, "normalize_value": True, "clip_reward": True}])
@pytest.mark.parametrize("task", [Identity(), Target()])
@pytest.mark.parametrize("algo", LAGGING)
def test_a_batch_of_an_older_policy_teaches_what_the_general_path_learns_from_it(algo, task, settings):
    native, general, spec, kind = LAGGING[algo]
    bounds = {"rho_bar": 0.9, "c_bar": 0.8, "gae_lambda": 0.9}
    config = kind(num_steps=12, hidden_sizes=(8,), mini_batch_size=24, **bounds, **settings)
    algorithm, described = general.build(task.spaces, config), spec.spec(task.spaces, config)
    arrays = allocate(task.spaces, described, config.num_steps, 4)
    generator = np.random.default_rng(0)
    collect(task, described, algorithm, spec.init_state(task.spaces, config, 0), arrays, generator)
    shape = arrays["reward"][0].shape
    arrays["terminated"][0] = generator.random(shape) < 0.2
    arrays["valid"][0, :-1] = generator.random((config.num_steps, 4)) < 0.9
    state = spec.init_state(task.spaces, config, 7)
    if settings:
        state["value_mean"][...], state["value_var"][...], state["value_count"][...] = 0.3, 2.0, 100.0
    made = UpdaterSettings("", config, described, task.spaces, "cpu", threads=1, seed=0)
    eager = EagerUpdater(algorithm, made, arrays)
    fused = FusedUpdater(native.build(task.spaces, config), described, arrays, threads=1)
    indices, weights = flat_rows(arrays, generator, described.schedule.mini_batch_size)
    if described.unit == "lane":
        indices, weights = np.array([[2, 0], [3, 1]]), np.ones((2, 2), np.float32)
    found = []
    for updater in (eager, fused):
        updater.load(state)
        updater.begin([0], 0.25)
        updater.merge([0])
        updater.minibatches(indices, weights)
        updater.finish()
        found.append((updater.state(), updater.metrics()))
    (expected, expected_metrics), (given, metrics) = found
    assert metrics == pytest.approx(expected_metrics, rel=1e-4, abs=1e-5)
    for name, values in expected.items():
        error = np.linalg.norm(given[name] - values)
        # A second moment is made of squares, whose relative errors are twice as large.
        assert error <= 2e-5 * np.linalg.norm(values), name


@pytest.mark.parametrize(("schedule", "lr"), [("constant", 1e-3), ("linear", 0.75e-3)])
def test_the_step_size_follows_progress(schedule, lr):
    """A quarter of the run is done: linear leaves three quarters."""
    config = PPOConfig(lr=1e-3, lr_schedule=schedule)
    assert fused.learning_rate(config, {"progress": np.array(0.25)}) == pytest.approx(lr)
