"""DQN against arithmetic by hand and finite differences."""

import math

import numpy as np
import pytest
import torch

from penstock.algorithm import Priorities
from penstock.algorithms.dqn import learn, spec
from penstock.errors import ConfigError
from penstock.policies.exploration import Falling
from penstock.torch_networks.policy import Policy
from penstock.types import Box, Spaces
from tests.algorithms.replay_rows import DISCRETE, constant, minibatch_of, slope, state_of


def parts(**settings):
    config = spec.DQNConfig(**{"hidden_sizes": (5, 4), "error_clip": 1.0} | settings)
    return config, Policy(spec.policy_graph(DISCRETE, config, "dqn")), learn.build(DISCRETE, config)


def rows_of(config, size=2):
    rows = minibatch_of(DISCRETE, spec.spec(DISCRETE, config), size)
    rows["action"] = torch.tensor([1] * size)
    rows["reward"] = torch.arange(1.0, size + 1.0, dtype=torch.float64)
    rows["discount"] = torch.tensor([0.5] * (size - 1) + [0.0], dtype=torch.float64)
    return rows


@pytest.mark.parametrize(("double", "following"), [(True, 7.0), (False, 9.0)])
def test_targets_by_hand(double, following):
    config, policy, _ = parts(double=double)
    state = state_of(spec.init_state(DISCRETE, config, 1))
    # The network prefers action 0, its target action 2.
    state["actor"] = constant(policy.graph.actor, 5.0, 4.0, 3.0)
    state["target.actor"] = constant(policy.graph.actor, 7.0, 8.0, 9.0)
    found = learn.judged(policy, config, state, rows_of(config))
    # 4 - (1 + 0.5 Q'), and 4 - 2 behind a terminated row.
    first = abs(4.0 - (1.0 + 0.5 * following))
    assert found.error.tolist() == pytest.approx([first, 2.0])
    assert found.value.tolist() == pytest.approx([4.0, 4.0])
    # Huber: e^2 / 2 up to 1, then e - 1/2.
    assert found.loss.tolist() == pytest.approx([0.5 * first**2 if first <= 1.0 else first - 0.5, 1.5])


@pytest.mark.parametrize(("double", "following"), [(True, 8.0), (False, 8.0)])
def test_only_possible_actions_follow_by_hand(double, following):
    config = spec.DQNConfig(hidden_sizes=(5, 4), double=double, error_clip=1e9)
    mask = ("action_mask", Box((3,), "uint8", (0.0,), (1.0,)))
    spaces = Spaces((mask, *DISCRETE.obs), DISCRETE.action, "action_mask")
    policy, state = Policy(spec.policy_graph(spaces, config, "dqn")), state_of(spec.init_state(spaces, config, 1))
    # The network prefers action 0 and its target action 2; only action 1 is possible behind the first row. Behind the
    # second row nothing is, as behind the end of an episode: then all count.
    state["actor"] = constant(policy.graph.actor, 5.0, 4.0, 3.0)
    state["target.actor"] = constant(policy.graph.actor, 7.0, 8.0, 9.0)
    rows = minibatch_of(spaces, spec.spec(spaces, config), 2)
    rows |= {"action": torch.tensor([1, 1]), "reward": torch.tensor([1.0, 1.0]).double()}
    rows |= {"discount": torch.tensor([0.5, 0.5]).double()}
    rows["next.action_mask"] = torch.tensor([[0, 1, 0], [0, 0, 0]], dtype=torch.uint8)
    found = learn.judged(policy, config, state, rows)
    beyond = 7.0 if double else 9.0
    assert found.error.tolist() == pytest.approx([abs(4 - (1 + 0.5 * following)), abs(4 - (1 + 0.5 * beyond))])


def test_an_error_pulls_as_hard_as_it_is_large_up_to_its_clip():
    config, policy, built = parts(error_clip=1.5, max_grad_norm=1e9)
    state = state_of(spec.init_state(DISCRETE, config, 1))
    state["actor"] = constant(policy.graph.actor, 5.0, 4.0, 3.0)
    rows = rows_of(config)
    rows["discount"] = torch.zeros(2, dtype=torch.float64)
    # Errors 3 and 2.75 beyond, then 0.5 and 1 within.
    for rewards, expected in (([1.0, 1.25], 1.5), ([3.5, 3.0], 0.75)):
        rows["reward"] = torch.tensor(rewards).double()
        found = built.phases[0].gradients(state, rows, {})
        assert float(found.gradients["actor"][-2]) == pytest.approx(expected)


def test_importance_weighs_the_loss_and_padding_does_not_count():
    config, policy, built = parts(prioritised=True, max_grad_norm=1e9)
    state = state_of(spec.init_state(DISCRETE, config, 1))
    state["actor"] = constant(policy.graph.actor, 5.0, 4.0, 3.0)
    state["target.actor"] = constant(policy.graph.actor, 7.0, 8.0, 9.0)
    rows = rows_of(config, 3)
    rows["discount"] = torch.zeros(3, dtype=torch.float64)
    rows["importance"] = torch.tensor([1.0, 0.25, 1.0]).double()
    rows["weight"] = torch.tensor([1.0, 1.0, 0.0]).double()
    found = built.phases[0].gradients(state, rows, {})
    # Errors 3, 2, 1 are cut to 1: the bias of action 1 gets (1 * 1 + 0.25 * 1) / 2.
    assert float(found.gradients["actor"][-2]) == pytest.approx(0.625)
    assert found.per_row["priority"].tolist() == pytest.approx([3.01, 2.01, 1.01])
    uniform = spec.DQNConfig(hidden_sizes=(5, 4))
    assert learn.build(DISCRETE, uniform).phases[0].gradients(state, rows, {}).per_row == {}


def test_the_gradient_is_clipped_by_its_norm():
    config, _, built = parts(max_grad_norm=1e-3)
    state, rows = state_of(spec.init_state(DISCRETE, config, 1)), rows_of(config, 8)
    phase = built.phases[0]
    found = phase.gradients(state, rows, {})
    norm = float(found.metrics["grad_norm"])
    assert norm > 1e-2
    changed = phase.apply(state, found.gradients)
    torch.testing.assert_close(
        changed["adam_m.actor"], 0.1 * found.gradients["actor"] * (1e-3 / norm), rtol=1e-4, atol=0.0
    )


def test_the_target_becomes_the_network_now_and_then():
    config, _, built = parts(target_every=7)
    assert [phase.every for phase in built.phases] == [1, 7]
    state = state_of(spec.init_state(DISCRETE, config, 1))
    found = built.phases[1].gradients(state, {}, {})
    assert (found.gradients, found.metrics, found.per_row) == ({}, {}, {})
    changed = built.phases[1].apply(state, {})
    assert set(changed) == {"target.actor"}
    assert torch.equal(changed["target.actor"], state["actor"])
    assert not torch.equal(changed["target.actor"], state["target.actor"])


def test_a_categorical_loss_by_hand():
    config, policy, _ = parts(atoms=3, value_min=0.0, value_max=2.0)
    state = state_of(spec.init_state(DISCRETE, config, 1))
    # Action 1 is expected to return 0, 1 or 2 with 1/2, 1/4, 1/4; the target of the best action 0 says 2 for sure.
    half, quarter = math.log(0.5), math.log(0.25)
    state["actor"] = constant(policy.graph.actor, 0.0, 0.0, 99.0, half, quarter, quarter, 99.0, 0.0, 0.0)
    state["target.actor"] = constant(policy.graph.actor, 0.0, 0.0, 99.0, 0.0, 99.0, 0.0, 99.0, 0.0, 0.0)
    rows = rows_of(config)
    rows["reward"] = torch.tensor([0.25, 5.0]).double()
    found = learn.judged(policy, config, state, rows)
    # 0.25 + 0.5 * 2 lies between 1 and 2: 3/4 and 1/4. 5 is cut to 2. The logarithms are those of 1/4.
    assert found.loss.tolist() == pytest.approx([-quarter, -quarter])
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert found.error.tolist() == pytest.approx([-quarter - entropy, -quarter])
    assert found.value.tolist() == pytest.approx([0.75, 0.75])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"double": False},
        {"dueling": True, "prioritised": True},
        {"atoms": 5, "value_min": -3.0, "value_max": 3.0},
        {"atoms": 5, "value_min": -3.0, "value_max": 3.0, "dueling": True, "prioritised": True},
    ],
)
def test_the_gradient_agrees_with_finite_differences(settings):
    config, policy, built = parts(**settings)
    state, rows = state_of(spec.init_state(DISCRETE, config, 1)), minibatch_of(DISCRETE, spec.spec(DISCRETE, config), 8)

    def loss(at):
        # The step of the difference is small, so the network chooses the same actions, and targets stay the same.
        found = learn.judged(policy, config, at, rows)
        each = rows["importance"] * found.loss if config.prioritised else found.loss
        return each.mean()

    found = built.phases[0].gradients(state, rows, {})
    by_difference, by_gradient = slope(loss, state, "actor", found.gradients["actor"])
    assert by_gradient == pytest.approx(by_difference, rel=1e-5)


def test_the_table_and_the_exploration_are_what_the_config_says():
    found = spec.spec(
        DISCRETE,
        spec.DQNConfig(n_step=4, prioritised=True, priority_alpha=0.7, priority_beta=0.5, epsilon_fraction=0.3),
    )
    assert found.table.n_step == 4
    assert found.table.priorities == Priorities(0.7, 0.5)
    assert found.minibatch[-1] == "importance"
    assert found.explore == Falling(1.0, 0.05, 0.3)
    plain = spec.spec(DISCRETE, spec.DQNConfig())
    assert plain.table.priorities is None
    assert "importance" not in plain.minibatch
    assert (plain.row, plain.warmup, plain.initial_priority) == ((), 0, None)


def test_atoms_need_a_range():
    with pytest.raises(ConfigError, match=r"--atoms 51 lie between --value_min and --value_max: 2 is not below 1"):
        spec.spec(DISCRETE, spec.DQNConfig(atoms=51, value_min=2.0, value_max=1.0))


@pytest.mark.parametrize("given", [{"value_max": 5.0}, {"value_min": -1.0}])
def test_a_range_needs_atoms(given):
    (name,) = given
    why = rf"--{name} is the end of a range of atoms, and --atoms 1 has none; give --atoms 51"
    with pytest.raises(ConfigError, match=why):
        spec.spec(DISCRETE, spec.DQNConfig(**given))


def test_greedy_actions_are_the_best_and_exploring_ones_are_any():
    config, policy, built = parts()
    state = state_of(spec.init_state(DISCRETE, config, 1))
    state["actor"] = constant(policy.graph.actor, 1.0, 3.0, 2.0)
    noise = torch.tensor(np.array([[0.2, 0.9], [0.2, 0.0], [0.9, 0.9]]))
    inputs = {"obs": torch.zeros(3, 3).double(), "noise": noise, "explore": torch.tensor([0.5, 0.0, 0.5]).double()}
    assert built.act(state, inputs)["action"].tolist() == [2, 1, 1]
