"""APPO: PPO where nothing lags, V-trace where something does, and ratios to the policy before the update."""

import numpy as np
import pytest
import torch

from penstock.algorithms.appo import learn
from penstock.algorithms.appo.spec import APPOConfig, init_state, spec
from penstock.algorithms.ppo import learn as ppo
from penstock.algorithms.ppo import spec as ppo_spec
from penstock.algorithms.ppo.spec import policy_graph
from penstock.ops.losses import mean_by
from penstock.types import ArraySpec
from penstock.updates.eager import EagerUpdater
from penstock.updates.settings import UpdaterSettings
from tests.algorithms.loop import Identity, Target, allocate, collect, flat_rows
from tests.algorithms.replay_rows import constant

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
    np.testing.assert_allclose(rollout["proximal.log_prob"][:-1], rollout["log_prob"][:-1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rollout["proximal.value"], rollout["value"], rtol=1e-5, atol=1e-6)


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
    assert np.abs(rollout["proximal.value"] - rollout["value"]).max() > 1e-3
    arrays["log_prob"][0] -= 0.4  # As if another policy had acted.
    rollout["log_prob"] = arrays["log_prob"][0]
    found = algorithm.targets({}, rollout)
    np.testing.assert_array_equal(found["proximal_log_prob"], rollout["proximal.log_prob"][:-1])
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


TWO = {**SMALL, "num_steps": 2, "gae_lambda": 1.0, "normalize_advantage": False}
HALF, QUARTER, EIGHTH = (float(np.log(p)) for p in (0.5, 0.25, 0.125))


def two_rows(config):
    """Two episodes of one step, and a state with a target network, all by hand.

    The action 0 has reward 1 and was chosen with 1/4, the action 1 has reward 0 and was chosen with 1/2. The policy
    that is learned chooses each of four actions with 1/4, and values each state at 1/4. The target network chooses them
    with 1/2, 1/4, 1/8 and 1/8, and values each state at 1/2.
    """
    spaces = Identity.spaces
    algorithm, graph = learn.build(spaces, config), policy_graph(spaces, config)
    state = {name: torch.from_numpy(values) for name, values in init_state(spaces, config, 0).items()}
    for name, outputs in {
        "actor": [0.0, 0.0, 0.0, 0.0],
        "critic": [0.25],
        "target.actor": [HALF, QUARTER, EIGHTH, EIGHTH],
        "target.critic": [0.5],
    }.items():
        network = graph.critic if name.endswith("critic") else graph.actor
        state[name] = constant(network, *outputs).float()
    arrays = allocate(spaces, spec(spaces, config), config.num_steps, 1)
    arrays["action"][0, :, 0] = [0, 1, 0]
    arrays["reward"][0, :, 0] = [1.0, 0.0, 0.0]
    arrays["log_prob"][0, :, 0] = [QUARTER, HALF, 0.0]
    arrays["terminated"][0] = True
    arrays["valid"][0, :-1] = True
    rollout = judged(algorithm, arrays, {name: values.numpy() for name, values in state.items()})
    targets = algorithm.targets({}, rollout)
    fields = {**{name: values[:-1] for name, values in rollout.items() if values.shape[:1] == (3,)}, **targets}
    rows = {name: torch.from_numpy(values[:, 0]) for name, values in fields.items()} | {"weight": torch.ones(2)}
    return algorithm, state, targets, rows | algorithm.across_minibatch(rows, mean_by(rows["weight"]))


def test_a_target_network_gives_ratios_weights_and_values_by_hand():
    """The weights of V-trace are min(1.5, 1/2 : 1/4) = 1.5 and 1/4 : 1/2 = 0.5; errors are 1 - 1/2 and 0 - 1/2."""
    algorithm, state, targets, rows = two_rows(APPOConfig(**TWO, target_every=9, rho_bar=1.5, c_bar=1.0))
    assert targets["importance"][:, 0].tolist() == pytest.approx([1.5, 0.5])
    assert targets["advantage"][:, 0].tolist() == pytest.approx([0.5, -0.5])
    assert targets["target"][:, 0].tolist() == pytest.approx([0.5 + 1.5 * 0.5, 0.5 - 0.5 * 0.5])
    assert targets["proximal_log_prob"][:, 0].tolist() == pytest.approx([HALF, QUARTER])
    metrics = algorithm.phases[0].gradients(state, rows, {}).metrics
    # Ratios are 1/4 : 1/2 and 1/4 : 1/4, weighed advantages 0.75 and -0.25. No clip binds.
    assert float(metrics["policy_loss"]) == pytest.approx(-(0.5 * 0.75 - 0.25) / 2)
    # The critic says 1/4, and is to say 1.25 and 0.25.
    assert float(metrics["value_loss"]) == pytest.approx((1.0 + 0.0) / 2)
    assert "kl" not in metrics
    # Rows count by their weights in the measures, too. The first ratio is below the interval.
    assert float(metrics["approx_kl"]) == pytest.approx(1.5 * (np.log(2.0) - 0.5) / 2)
    assert float(metrics["clip_fraction"]) == pytest.approx(1.5 / 2)


@pytest.mark.parametrize("settings", [{"kl_coef": 2.0}, {"kl_coef": 7.0, "kl_target": 0.1}])
def test_the_penalty_is_weighed_like_the_rows_by_hand(settings):
    """Ratios are 1/2 and 1: 1.5 (1/2 - 1 - log 1/2) and 0. The weight is 2, also if only the state says so."""
    algorithm, state, _, rows = two_rows(APPOConfig(**TWO, **settings, target_every=9, rho_bar=1.5, c_bar=1.0))
    if "kl_target" in settings:
        state["kl_coef"] = torch.tensor(2.0)
    metrics = algorithm.phases[0].gradients(state, rows, {}).metrics
    kl = 1.5 * (np.log(2.0) - 0.5) / 2
    assert float(metrics["kl"]) == pytest.approx(kl)
    assert float(metrics["policy_loss"]) == pytest.approx(-(0.5 * 0.75 - 0.25) / 2 + 2.0 * kl)
    assert ("kl_coef" in metrics) == ("kl_target" in settings)


def test_the_penalty_of_ppo_by_hand():
    """Actions that were chosen with 1/4 and 1/2 are now chosen with 1/4: ratios 1 and 1/2."""
    config = APPOConfig(**TWO, target_every=9)
    _, state, _, rows = two_rows(config)
    plain = ppo.build(Identity.spaces, ppo_spec.PPOConfig(**TWO, kl_coef=2.0))
    rows = {name: values for name, values in rows.items() if name != "importance"}
    rows["advantage"] = torch.tensor([1.0, -1.0])
    metrics = plain.phases[0].gradients(state, rows, {}).metrics
    kl = (np.log(2.0) - 0.5) / 2
    assert float(metrics["kl"]) == pytest.approx(kl)
    assert float(metrics["kl"]) == pytest.approx(float(metrics["approx_kl"]))
    # The clip binds where the ratio of 1/2 lowers what is bad: -1 counts 0.8 times.
    assert float(metrics["policy_loss"]) == pytest.approx(-(1.0 - 0.8) / 2 + 2.0 * kl)


def updater_of(task, config, arrays, algorithm):
    settings = UpdaterSettings("", config, spec(task.spaces, config), task.spaces, "cpu", threads=1, seed=0)
    updater = EagerUpdater(algorithm, settings, arrays)
    updater.load(init_state(task.spaces, config, 0))
    return updater


def test_the_target_becomes_the_networks_at_every_third_gradient_step():
    task, config = Target(), APPOConfig(**{**SMALL, "mini_batch_size": 8}, target_every=3, normalize_value=True)
    algorithm, arrays, _ = filled(task, config)
    updater = updater_of(task, config, arrays, algorithm)
    updater.begin([0], 0.0)
    updater.merge([0])
    copied, names = [], [part.name for part in spec(task.spaces, config).published()]
    assert names == ["actor", "critic", "value_mean", "value_var", "value_count"]
    indices, weights = flat_rows(arrays, np.random.default_rng(3), 8)
    for step in range(6):
        before = {name: updater.state()[f"target.{name}"].copy() for name in names}
        updater.minibatches(indices[step : step + 1], weights[step : step + 1])
        after = updater.state()
        equal = all(np.array_equal(after[f"target.{name}"], after[name]) for name in names)
        kept = all(np.array_equal(after[f"target.{name}"], before[name]) for name in names)
        assert equal != kept
        copied.append(equal)
    assert copied == [True, False, False, True, False, False]
    assert int(updater.state()["gradient_steps"]) == 6


def test_a_target_that_is_renewed_at_each_step_changes_no_bit():
    """Each batch then begins with a target that is the network."""
    task, states = Target(), []
    for settings in ({}, {"target_every": 1}):
        config = APPOConfig(**SMALL, **settings)
        algorithm, arrays, _ = filled(task, config)
        arrays["log_prob"][0] -= np.random.default_rng(5).random(arrays["log_prob"][0].shape, np.float32)
        updater = updater_of(task, config, arrays, algorithm)
        for _ in range(3):
            updater.begin([0], 0.0)
            updater.merge([0])
            updater.minibatches(*flat_rows(arrays, np.random.default_rng(3), 32))
            updater.finish()
        states.append({name: updater.state()[name].tobytes() for name in ("actor", "critic")})
    assert states[0] == states[1]


def test_new_statistics_of_the_networks_do_not_change_what_the_target_says():
    task, config = Target(), APPOConfig(**SMALL, target_every=100, normalize_value=True, normalize_obs=True)
    algorithm, arrays, state = filled(task, config)
    before = judged(algorithm, arrays, state)
    moved = {"obs_mean": [0.5, -0.5], "obs_var": [4.0, 2.0], "value_mean": 3.0, "value_var": 9.0}
    after = judged(algorithm, arrays, {**state, **{name: np.array(values) for name, values in moved.items()}})
    for name in ("proximal.log_prob", "proximal.value"):
        np.testing.assert_array_equal(after[name], before[name])


@pytest.mark.parametrize("target_every", [0, 100])
def test_a_row_that_the_proximal_policy_would_never_choose_gives_finite_gradients(target_every: int):
    """The ratio to its probability is more than a float32 holds, and its weight is 0."""
    task, config = Target(), APPOConfig(**SMALL, target_every=target_every, kl_coef=1.0)
    algorithm, arrays, state = filled(task, config)
    arrays["action"][0, 3, 0] = 50.0
    rollout = judged(algorithm, arrays, state)
    # By now the learned policy aims there.
    state["actor"] = constant(policy_graph(task.spaces, config).actor, 45.0, 45.0, 0.0, 0.0).float().numpy()
    found = algorithm.targets({}, rollout)
    assert found["importance"][3, 0] == 0.0
    tensors = {name: torch.from_numpy(values) for name, values in state.items()}
    fields = {**{name: values[:-1] for name, values in rollout.items() if values.ndim > 1}, **found}
    rows = {name: torch.from_numpy(values[:, 0]) for name, values in fields.items() if len(values) == 12}
    rows["weight"] = torch.ones(12)
    rows |= algorithm.across_minibatch(rows, mean_by(rows["weight"]))
    rows = {name: values[3:4] for name, values in rows.items()}
    result = algorithm.phases[0].gradients(tensors, rows, {})
    assert all(torch.isfinite(values).all() for values in result.gradients.values())
    assert float(result.metrics["policy_loss"]) == 0.0
    assert float(result.metrics["approx_kl"]) < 10.0
    assert float(result.metrics["clip_fraction"]) == pytest.approx(0.0, abs=1e-20)


def test_the_state_has_a_target_of_all_that_is_published():
    plain, config = APPOConfig(normalize_obs=True), APPOConfig(normalize_obs=True, target_every=5)
    more = set(spec(Target.spaces, config).state) - set(spec(Target.spaces, plain).state)
    published = spec(Target.spaces, config).published()
    assert {part.name for part in more} == {*(f"target.{part.name}" for part in published), "gradient_steps"}
    assert ArraySpec("gradient_steps", (), "int64") in more
    state = init_state(Target.spaces, config, 3)
    for part in published:
        np.testing.assert_array_equal(state[f"target.{part.name}"], state[part.name])
