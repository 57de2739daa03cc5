"""IMPALA's loss by hand, the value behind each row, and policies with and without memory."""

import math

import numpy as np
import pytest
import torch

from penstock.algorithms.impala import learn
from penstock.algorithms.impala.spec import IMPALAConfig, init_state, spec
from penstock.ops.losses import mean_by
from penstock.types import Box, Discrete, Spaces

SPACES = Spaces((("obs", Box((1,), "float32", (-1.0,), (1.0,))),), Discrete(2))
PLAIN = {"hidden_sizes": (), "gamma": 0.5, "gae_lambda": 1.0, "num_steps": 2, "max_grad_norm": 1e9}


def built(**settings):
    config = IMPALAConfig(**{**PLAIN, **settings})
    algorithm = learn.build(SPACES, config)
    state = {name: torch.from_numpy(values).clone() for name, values in init_state(SPACES, config, 0).items()}
    return config, algorithm, state


def lanes(**changes):
    """One lane of two steps. The policy that acted chose action 0 with probabilities 1/2 and 1."""
    fields = {
        "obs": torch.tensor([[[1.0], [1.0], [1.0]]]),
        "action": torch.tensor([[0, 0, 0]]),
        "log_prob": torch.tensor([[math.log(0.5), 0.0, 9.0]]),
        "reward": torch.tensor([[1.0, 2.0, 9.0]]),
        "terminated": torch.tensor([[False, False, True]]),
        "truncated": torch.tensor([[False, False, True]]),
        "bootstrap": torch.tensor([[0.0, 0.0]]),
        "size": torch.tensor([[1.0, 1.0]]),
        "weight": torch.tensor([[1.0, 1.0]]),
    }
    return fields | changes


def fixed(state):
    """A policy of probabilities 1/2 and 1/2, and a critic that gives 4: biases alone."""
    actor, critic = torch.zeros_like(state["actor"]), torch.zeros_like(state["critic"])
    critic[-1] = 4.0
    return state | {"actor": actor, "critic": critic}


def test_the_loss_of_two_rows_by_hand():
    """Ratios 1 and 1/2; every value is 4.

    Row 1: delta = 1/2 (2 + 1/2 * 4 - 4) = 0, so v = 4 and the advantage is 0.
    Row 0: delta = 1 + 1/2 * 4 - 4 = -1, so v = 3; the advantage is 1 + 1/2 * 4 - 4 = -1.
    Policy loss: -(-1 * log 1/2 + 0) / 2 = -0.5 log 2. Value loss: ((4 - 3)^2 + 0) / 2 = 0.5. Entropy: log 2.
    """
    _, algorithm, state = built(value_coef=0.25, entropy_coef=0.1)
    (phase,) = algorithm.phases
    found = phase.gradients(fixed(state), lanes(), {})
    metrics = {name: float(value) for name, value in found.metrics.items()}
    assert metrics["policy_loss"] == pytest.approx(-0.5 * math.log(2))
    assert metrics["value_loss"] == pytest.approx(0.5)
    assert metrics["entropy"] == pytest.approx(math.log(2))
    assert metrics["rho"] == pytest.approx(0.75)
    # d/db of 0.25 * mean (b - v)^2 = 0.25 * (2 * 1 + 0) / 2; the targets are constants.
    assert float(found.gradients["critic"][-1]) == pytest.approx(0.25)
    # d/d(logit 0) of -mean(A log p_0) = -(-1 * (1 - 1/2)) / 2 = 0.25; the entropy is at its maximum.
    assert found.gradients["actor"][-2:].tolist() == pytest.approx([0.25, -0.25])


def test_rows_of_weight_zero_and_the_bootstrap_row_teach_nothing():
    _, algorithm, state = built()
    (phase,) = algorithm.phases
    weight = torch.tensor([[1.0, 0.0]])
    one = phase.gradients(fixed(state), lanes(weight=weight), {})
    other = lanes(
        weight=weight, reward=torch.tensor([[1.0, -70.0, 70.0]]), log_prob=torch.tensor([[-0.5, math.nan, -7.0]])
    )
    other["log_prob"][0, 0] = math.log(0.5)
    two = phase.gradients(fixed(state), other, {})
    for name, gradient in one.gradients.items():
        torch.testing.assert_close(two.gradients[name], gradient)


def test_rewards_are_cut_if_asked_for():
    _, algorithm, state = built(clip_reward=True)
    (phase,) = algorithm.phases
    cut = phase.gradients(fixed(state), lanes(reward=torch.tensor([[7.0, -7.0, 0.0]])), {})
    _, algorithm, _ = built()
    (phase,) = algorithm.phases
    plain = phase.gradients(fixed(state), lanes(reward=torch.tensor([[1.0, -1.0, 0.0]])), {})
    torch.testing.assert_close(cut.gradients["critic"], plain.gradients["critic"])


def test_normalised_values_are_corrected_in_the_units_of_the_rewards():
    """The critic says 1; with mean 2 and deviation 2 that is 4, as in the test by hand. v = 3 is 0.5 to the critic."""
    _, algorithm, state = built(normalize_value=True, value_coef=1.0)
    state = fixed(state)
    state["critic"][-1] = 1.0
    state["value_mean"], state["value_var"] = torch.tensor(2.0).double(), torch.tensor(4.0).double()
    (phase,) = algorithm.phases
    metrics = phase.gradients(state, lanes(), {}).metrics
    assert float(metrics["value_loss"]) == pytest.approx(0.5 * (1.0 - 0.5) ** 2)
    assert float(metrics["policy_loss"]) == pytest.approx(-0.5 * math.log(2))


def rollout():
    flags = {name: np.zeros((3, 2), bool) for name in ("terminated", "truncated")}
    flags["truncated"][0, 1] = True
    return {
        "value": np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32),
        "reward": np.zeros((3, 2), np.float32),
        "valid": np.ones((3, 2), bool),
        "final_count": np.array(1),
        "final_t": np.array([0, 9]),
        "final_lane": np.array([1, 9]),
        "final_value": np.array([10.0, 99.0], np.float32),
        **flags,
    }


def test_behind_a_row_is_the_next_one_or_the_last_observation():
    _, algorithm, _ = built()
    found = algorithm.targets({}, rollout())
    assert set(found) == {"bootstrap", "size"}
    assert found["bootstrap"].tolist() == [[3.0, 10.0], [5.0, 6.0]]


def test_the_size_of_an_advantage_is_that_of_the_policy_that_acted():
    # Lane 0: row 1 is 1/2 * 5 - 3 = -0.5, row 0 is 1/2 * 3 - 1 - 1/2 * 0.5 = 0.25.
    # Lane 1: row 1 is 1/2 * 6 - 4 = -1, row 0 is cut off: 1/2 * 10 - 2 = 3.
    _, algorithm, _ = built()
    assert algorithm.targets({}, rollout())["size"].tolist() == [[0.25, 3.0], [0.5, 1.0]]


def test_a_minibatch_has_one_size_the_root_of_the_mean_square_of_its_rows():
    _, algorithm, _ = built()
    minibatch = lanes(size=torch.tensor([[3.0, 4.0]]), weight=torch.tensor([[1.0, 3.0]]))
    found = algorithm.across_minibatch(minibatch, mean_by(minibatch["weight"]))
    torch.testing.assert_close(found["size"], torch.full((1, 2), math.sqrt((9 + 3 * 16) / 4)))
    _, algorithm, _ = built(normalize_advantage=False)
    assert algorithm.across_minibatch(minibatch, mean_by(minibatch["weight"]))["size"].tolist() == [[1.0, 1.0]]


def test_advantages_are_divided_by_their_size_and_the_values_are_not():
    _, algorithm, state = built(entropy_coef=0.0)
    (phase,) = algorithm.phases
    one = phase.gradients(fixed(state), lanes(), {}).gradients
    four = phase.gradients(fixed(state), lanes(size=torch.tensor([[4.0, 4.0]])), {}).gradients
    torch.testing.assert_close(four["actor"], one["actor"] / 4)
    torch.testing.assert_close(four["critic"], one["critic"])


def test_normalised_values_need_plain_returns_for_their_moments():
    # Lane 1: 1/2 * 10 = 5 is cut off; then 1/2 * 6 = 3. Lane 0: 1/2 * 1/2 * 5 = 1.25, and 1/2 * 5 = 2.5.
    _, algorithm, _ = built(normalize_value=True)
    assert algorithm.targets({}, rollout())["target"].tolist() == [[1.25, 5.0], [2.5, 3.0]]


def test_a_minibatch_is_whole_lanes_for_every_policy():
    for model in ("mlp", "lstm"):
        found = spec(SPACES, IMPALAConfig(model=model, num_steps=20, mini_batch_size=640))
        assert (found.topology, found.unit, found.schedule.mini_batch_size) == ("async_on_policy", "lane", 32)
        assert ("first" in found.minibatch) == (model == "lstm")
    assert spec(SPACES, IMPALAConfig(num_steps=20, mini_batch_size=5)).schedule.mini_batch_size == 1


def test_it_begins_with_the_state_of_its_spec():
    config = IMPALAConfig(normalize_value=True)
    state = init_state(SPACES, config, 3)
    assert {part.name: part.shape for part in spec(SPACES, config).state} == {k: v.shape for k, v in state.items()}


def test_a_memory_of_size_one_lane_equals_its_rows_alone():
    """Every row begins an episode: then a policy with memory sees each row alone, and lanes may be cut anywhere."""
    config = IMPALAConfig(model="gru", memory_size=3, hidden_sizes=(4,), num_steps=2)
    algorithm = learn.build(SPACES, config)
    state = {name: torch.from_numpy(values).clone() for name, values in init_state(SPACES, config, 0).items()}
    carry = {part.name: torch.zeros(1, *part.shape) for part in spec(SPACES, config).policy.carry}
    first = torch.ones(1, 3, dtype=torch.bool)
    ended = torch.tensor([[True, True, True]])
    whole = lanes(terminated=ended, first=first, obs=torch.tensor([[[0.3], [-0.7], [0.1]]]), **carry)
    (phase,) = algorithm.phases
    expected = phase.gradients(state, whole, {}).gradients
    cut = {
        name: torch.stack([values[0, [0, 2]], values[0, [1, 2]]]) if values.shape[1] == 3 else values[0].unsqueeze(1)
        for name, values in whole.items()
        if name not in carry
    }
    cut |= {name: values.expand(2, -1) for name, values in carry.items()}
    one = learn.build(SPACES, IMPALAConfig(model="gru", memory_size=3, hidden_sizes=(4,), num_steps=1))
    found = one.phases[0].gradients(state, cut, {}).gradients
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient)


def test_each_network_is_clipped_by_itself():
    """The critic's gradient, of length 5, does not shorten the actor's, of length 0.3."""
    _, algorithm, state = built(max_grad_norm=0.5, lr_schedule="constant")
    found = {name: torch.zeros_like(state[name]) for name in ("actor", "critic")}
    found["actor"][0], found["critic"][:2] = 0.3, torch.tensor([3.0, 4.0])
    changed = algorithm.phases[0].apply(state, found)
    # The first moment is a tenth of the clipped gradient.
    torch.testing.assert_close(changed["adam_m.actor"], 0.1 * found["actor"])
    torch.testing.assert_close(changed["adam_m.critic"], 0.1 * 0.1 * found["critic"])
