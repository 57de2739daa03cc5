"""APPO: PPO where nothing lags, V-trace where something does, and ratios to the policy before the update."""

import numpy as np
import pytest
import torch

from penstock.algorithms.appo import learn
from penstock.algorithms.appo.spec import APPOConfig, init_state, spec
from penstock.algorithms.ppo import learn as ppo
from penstock.algorithms.ppo import spec as ppo_spec
from penstock.ops.losses import mean_by
from penstock.updates.eager import EagerUpdater
from penstock.updates.settings import UpdaterSettings
from tests.algorithms.loop import Identity, Target, allocate, collect

SMALL = {"num_steps": 12, "hidden_sizes": (8,), "mini_batch_size": 32}
TASKS = [Identity(), Target()]


def filled(task, config, seed=0):
    """A stream of one slot that the first policy filled, and that policy's state."""
    algorithm = learn.build(task.spaces, config)
    arrays = allocate(task.spaces, spec(task.spaces, config), config.num_steps, 4)
    state = init_state(task.spaces, config, seed)
    collect(task, spec(task.spaces, config), algorithm, state, arrays, np.random.default_rng(0))
    # Not every row ends an episode, so that the sums are over several rows.
    arrays["terminated"][0] = np.random.default_rng(1).random(arrays["terminated"][0].shape) < 0.2
    return algorithm, arrays, state


def judged(algorithm, arrays, state):
    """The rollout with what the policy of ``state`` makes of it."""
    rollout = {name: np.asarray(values[0]) for name, values in arrays.items()}
    tensors = {name: torch.from_numpy(values) for name, values in state.items()}
    with torch.no_grad():
        found = algorithm.recompute(tensors, {name: torch.from_numpy(values) for name, values in rollout.items()})
    return {**rollout, **{name: values.numpy() for name, values in found.items()}}


@pytest.mark.parametrize("task", TASKS)
def test_the_policy_that_acted_is_judged_as_it_acted(task):
    rollout = judged(*filled(task, APPOConfig(**SMALL)))
    np.testing.assert_allclose(rollout["current.log_prob"][:-1], rollout["log_prob"][:-1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rollout["current.value"], rollout["value"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("settings", [{}, {"clip_reward": True}])
def test_without_a_lag_targets_and_gradients_are_ppos(task, settings):
    config = APPOConfig(**SMALL, **settings)
    algorithm, arrays, state = filled(task, config)
    rollout = judged(algorithm, arrays, state)
    plain = ppo.build(task.spaces, config)
    found, expected = algorithm.targets({}, rollout), plain.targets({}, rollout)
    for name in ("advantage", "target"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5)
    tensors = {name: torch.from_numpy(values) for name, values in state.items()}
    # A minibatch is the rows 0 to 10 of lane 0.
    fields = {**{name: values[:-1] for name, values in rollout.items() if values.ndim > 1}, **found}
    rows = {name: torch.from_numpy(values[:11, 0]) for name, values in fields.items() if len(values) == 12}
    rows["weight"] = torch.ones(11)
    ours = algorithm.phases[0].gradients(tensors, rows, {}).gradients
    theirs = plain.phases[0].gradients(tensors, rows, {}).gradients
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-4, atol=1e-6)


def test_the_ratio_is_to_the_policy_before_the_update_not_to_the_one_that_acted():
    task, config = Target(), APPOConfig(**SMALL)
    algorithm, arrays, _ = filled(task, config)
    other = init_state(task.spaces, config, 7)
    rollout = judged(algorithm, arrays, other)
    assert np.abs(rollout["current.value"] - rollout["value"]).max() > 1e-3
    arrays["log_prob"][0] -= 0.4  # As if another policy had acted.
    rollout["log_prob"] = arrays["log_prob"][0]
    found = algorithm.targets({}, rollout)
    np.testing.assert_array_equal(found["proximal_log_prob"], rollout["current.log_prob"][:-1])
    tensors = {name: torch.from_numpy(values) for name, values in other.items()}
    fields = {**{name: values[:-1] for name, values in rollout.items() if values.ndim > 1}, **found}
    rows = {name: torch.from_numpy(values[:, 0]) for name, values in fields.items() if len(values) == 12}
    metrics = algorithm.phases[0].gradients(tensors, {**rows, "weight": torch.ones(12)}, {}).metrics
    assert float(metrics["approx_kl"]) == pytest.approx(0.0, abs=1e-6)
    assert float(metrics["clip_fraction"]) == 0.0


def test_an_update_takes_its_targets_from_the_state_at_its_beginning():
    """The updater judges with its own parameters, which are not those that acted."""
    task, config = Target(), APPOConfig(**SMALL, rho_bar=0.9, c_bar=0.8)
    algorithm, arrays, _ = filled(task, config)
    settings = UpdaterSettings("", config, spec(task.spaces, config), task.spaces, "cpu", threads=1, seed=0)
    updater = EagerUpdater(algorithm, settings, arrays)
    state = init_state(task.spaces, config, 7)
    updater.load(state)
    updater.begin([0], 0.0)
    expected = algorithm.targets({}, judged(algorithm, arrays, state))
    found = updater._batch.rollout(0)
    for name in ("advantage", "importance", "target", "proximal_log_prob"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6)


def test_advantages_are_normalised_before_they_are_weighed():
    """By hand: advantages of 1, 2, 3 and 6 have the mean 3 and the deviation sqrt(3.5)."""
    algorithm = learn.build(Target.spaces, APPOConfig(**SMALL))
    rows = {"advantage": torch.tensor([1.0, 2.0, 3.0, 6.0]), "importance": torch.tensor([0.0, 0.5, 1.0, 1.0])}
    found = algorithm.across_minibatch(rows, mean_by(torch.ones(4)))["advantage"]
    assert found.tolist() == pytest.approx([0.0, -0.5 / 3.5**0.5, 0.0, 3.0 / 3.5**0.5], abs=1e-6)


def test_a_row_that_the_policy_would_never_choose_moves_it_nowhere():
    """The gradient of its log-probability is the largest of all."""
    task, config = Target(), APPOConfig(**SMALL)
    algorithm, arrays, state = filled(task, config)
    rollout = judged(algorithm, arrays, state)
    # Another policy chose this action, as if by chance: far away from where the current one aims.
    rollout["action"][3, 0] = 50.0
    again = judged(algorithm, {name: values[None] for name, values in rollout.items()}, state)
    found = algorithm.targets({}, again)
    assert found["importance"][3, 0] == 0.0
    assert np.isfinite(found["advantage"]).all()
    tensors = {name: torch.from_numpy(values) for name, values in state.items()}
    fields = {**{name: values[:-1] for name, values in again.items() if values.ndim > 1}, **found}
    rows = {name: torch.from_numpy(values[:, 0]) for name, values in fields.items() if len(values) == 12}
    rows["weight"] = torch.ones(12)
    rows |= algorithm.across_minibatch(rows, mean_by(rows["weight"]))
    with_it = algorithm.phases[0].gradients(tensors, rows, {}).gradients["actor"]
    # It is as if the row had any other action.
    for name in ("action", "proximal_log_prob"):
        rows[name] = rows[name].clone()
        rows[name][3] = rows[name][2]
    torch.testing.assert_close(algorithm.phases[0].gradients(tensors, rows, {}).gradients["actor"], with_it)


@pytest.mark.parametrize("model", ["lstm", "gru"])
def test_a_policy_with_memory_is_judged_along_each_lane(model):
    """Cutting a rollout in two, and handing the carry on, changes nothing."""
    task, config = Target(), APPOConfig(**SMALL, model=model, memory_size=5)
    algorithm = learn.build(task.spaces, config)
    parts = spec(task.spaces, config).policy.carry
    generator = torch.Generator().manual_seed(0)
    state = {name: torch.from_numpy(values) for name, values in init_state(task.spaces, config, 0).items()}
    rollout = {
        "obs": torch.rand(6, 3, 2, generator=generator),
        "action": torch.rand(6, 3, 2, generator=generator),
        "first": torch.rand(6, 3, generator=generator) < 0.3,
        **{part.name: torch.rand(3, *part.shape, generator=generator) for part in parts},
    }
    whole = algorithm.recompute(state, rollout)
    assert {values.shape for values in whole.values()} == {(6, 3)}
    lane = {
        name: values[:, 1:2] if name in {"obs", "action", "first"} else values[1:2] for name, values in rollout.items()
    }
    for name, values in algorithm.recompute(state, lane).items():
        torch.testing.assert_close(values, whole[name][:, 1:2])
    again = {name: torch.cat([values[:3], values[:3]]) for name, values in rollout.items() if name in {"obs", "action"}}
    first = torch.cat([rollout["first"][:3], rollout["first"][:3]])
    first[3] = True
    first[0] = True
    twice = algorithm.recompute(state, {**rollout, **again, "first": first})
    for values in twice.values():
        torch.testing.assert_close(values[3:], values[:3])


def test_the_state_is_ppos():
    """So a run may go on with the other, and either evaluates the other's checkpoints."""
    config = APPOConfig()
    assert spec(Target.spaces, config).state == ppo_spec.spec(Target.spaces, config).state
