"""R2D2 against arithmetic by hand: targets, priorities, burn-in, gradients through time."""

import math

import pytest
import torch

from penstock.algorithm import Sequences
from penstock.algorithms.dqn.spec import LEAST_PRIORITY
from penstock.algorithms.r2d2 import learn, spec
from penstock.errors import ConfigError
from penstock.ops.rescaling import rescaled, unscaled
from penstock.policies.exploration import Ladder
from penstock.torch_networks.policy import Policy
from penstock.types import Box, Spaces
from tests.algorithms.replay_rows import DISCRETE, constant, slope, state_of

SMALL = {"hidden_sizes": (4,), "memory_size": 3, "burn_in": 2, "learned_steps": 3, "gamma": 0.5, "n_step": 1}


def parts(spaces=DISCRETE, **settings):
    config = spec.R2D2Config(**SMALL | {"error_clip": 1e9, "max_grad_norm": 1e9} | settings)
    return config, Policy(spec.policy_graph(spaces, config)), state_of(spec.init_state(spaces, config, 1))


def sequences_of(config, count=2, spaces=DISCRETE, dtype=torch.float64, seed=3):
    """Sequences as a table gives them, without ends of episodes."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for part in spec.spec(spaces, config).sampled(spaces):
        shape = (count, *part.shape)
        if part.dtype == "float32":
            found[part.name] = torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)
        elif part.name == "action":
            found[part.name] = torch.randint(0, 3, shape, generator=generator)
        else:
            found[part.name] = torch.zeros(shape, dtype=getattr(torch, part.dtype))
    found["valid"][:, :-1] = True
    found["weight"][:] = 0.0
    found["weight"][:, config.burn_in :] = 1.0
    if "importance" in found:
        found["importance"][:] = 1.0
    return found


def test_a_minibatch_is_sequences():
    config, _, _ = parts(mini_batch_size=96, learned_steps=30, burn_in=10)
    found = spec.spec(DISCRETE, config)
    assert found.table.sequences == Sequences(10, 30)
    assert (found.unit, found.schedule.mini_batch_size, found.rows(3, 16)) == ("lane", 3, 120)
    shapes = {part.name: part.shape for part in found.sampled(DISCRETE)}
    assert shapes["obs"] == (41, 3)
    assert (shapes["weight"], shapes["importance"], shapes["first"]) == ((40,), (), (41,))
    assert [shape for name, shape in shapes.items() if name.startswith("carry.")] == [(3,), (3,)]
    assert found.explore == Ladder(0.4, 7.0)


@pytest.mark.parametrize(("double", "following"), [(True, 7.0), (False, 9.0)])
def test_targets_by_hand(double, following):
    config, policy, state = parts(double=double, rescale_value=False)
    # The network prefers action 0, its target action 2.
    state["actor"] = constant(policy.graph.actor, 5.0, 4.0, 3.0)
    state["target.actor"] = constant(policy.graph.actor, 7.0, 8.0, 9.0)
    rows = sequences_of(config, 1)
    rows["action"][:] = 1
    rows["reward"][0] = torch.tensor([50.0, 50.0, 1.0, 2.0, 3.0, 50.0])
    rows["terminated"][0, 3] = True
    found = learn.judged(policy, config, state, rows)
    # 4 - (1 + Q'/2), 4 - 2 in the terminated row, 4 - (3 + Q'/2) in the last one.
    expected = [abs(4 - (1 + following / 2)), 2.0, abs(4 - (3 + following / 2))]
    assert found.error[0].tolist() == pytest.approx(expected)
    assert found.value[0].tolist() == pytest.approx([4.0] * 3)
    assert found.loss[0].tolist() == pytest.approx([0.5 * error**2 for error in expected])


def test_values_are_squashed_and_targets_are_summed_unsquashed():
    config, policy, state = parts(n_step=2)
    state["actor"] = constant(policy.graph.actor, 2.0, 1.0, 0.0)
    state["target.actor"] = constant(policy.graph.actor, 1.003, 5.0, 5.0)
    rows = sequences_of(config, 1)
    rows["action"][:] = 1
    rows["reward"][0, 2:] = torch.tensor([1.0, 3.0, -2.0, 50.0])
    found = learn.judged(policy, config, state, rows)
    # h^-1(1.003) = 3: sqrt(4) - 1 + 0.003. So 1 + 3/2 + 3/4 = 3.25; 3 - 2/2 + 3/4 = 2.75; -2 + 3/2 = -0.5.
    squashed = [math.copysign(math.sqrt(abs(x) + 1) - 1, x) + 1e-3 * x for x in (3.25, 2.75, -0.5)]
    assert found.error[0].tolist() == pytest.approx([abs(1.0 - y) for y in squashed])


def test_only_possible_actions_follow():
    mask = ("action_mask", Box((3,), "uint8", (0.0,), (1.0,)))
    spaces = Spaces((mask, *DISCRETE.obs), DISCRETE.action, "action_mask")
    config, policy, state = parts(spaces, rescale_value=False)
    state["actor"] = constant(policy.graph.actor, 5.0, 4.0, 3.0)
    state["target.actor"] = constant(policy.graph.actor, 7.0, 8.0, 9.0)
    rows = sequences_of(config, 1, spaces)
    rows["action"][:], rows["reward"][:] = 1, 1.0
    # Behind the first learned row only action 1 is possible; behind the second nothing is, so all count.
    rows["action_mask"][0] = torch.tensor([[1, 1, 1]] * 3 + [[0, 1, 0], [0, 0, 0], [0, 0, 1]], dtype=torch.uint8)
    found = learn.judged(policy, config, state, rows)
    assert found.error[0].tolist() == pytest.approx([abs(4 - (1 + q / 2)) for q in (8.0, 7.0, 9.0)])


def test_the_priority_is_a_mixture_of_the_largest_and_the_mean_error():
    """0.9 * 6 + 0.1 * (2 + 6) / 2 = 5.8: the error of weight 0 does not count. Without rows it is 0."""
    error = torch.tensor([[2.0, 6.0, 9.0], [1.0, 1.0, 1.0]])
    weight = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert learn.mixture(error, weight, 0.9).tolist() == pytest.approx([5.8, 0.0])


@pytest.mark.parametrize("model", ["lstm", "gru"])
def test_gradients_through_time_against_differences(model):
    """Every row is terminated, so targets are rewards. An episode begins within a sequence; sequences are weighed."""
    config, policy, state = parts(rescale_value=False, burn_in=0, learned_steps=5, model=model)
    rows = sequences_of(config)
    rows["terminated"][:], rows["first"][0, 2] = True, True
    rows["importance"] = torch.tensor([1.0, 0.5]).double()
    rows["weight"][1, 3] = 0.0
    share = torch.tensor([[1.0] * 5, [0.5, 0.5, 0.5, 0.0, 0.5]]).double() / 9

    def loss(changed):
        return (share * learn.judged(policy, config, changed, rows).loss).sum()

    found = learn.build(DISCRETE, config).phases[0].gradients(state, rows, {})
    numerical, analytic = slope(loss, state, "actor", found.gradients["actor"])
    assert analytic == pytest.approx(numerical, rel=1e-6)
    judged = learn.judged(policy, config, state, rows)
    errors = judged.error[1, [0, 1, 2, 4]].detach()
    expected = 0.9 * errors.max() + 0.1 * errors.mean() + LEAST_PRIORITY
    assert float(found.per_row["priority"][1]) == pytest.approx(float(expected))
    # The metric is not weighed by importance.
    seen = torch.cat([judged.loss[0], judged.loss[1, [0, 1, 2, 4]]]).detach()
    assert float(found.metrics["value_loss"]) == pytest.approx(float(seen.mean()))


def test_nothing_of_the_burn_in_is_learned_but_its_memory_counts():
    config, policy, state = parts(rescale_value=False)
    rows = sequences_of(config)
    one = learn.judged(policy, config, state, rows)
    rows["reward"][:, : config.burn_in] = 100.0
    rows["action"][:, : config.burn_in] = 0
    same = learn.judged(policy, config, state, rows)
    assert torch.equal(one.error, same.error)
    rows["obs"][:, 0] += 1.0
    moved = learn.judged(policy, config, state, rows)
    assert not torch.allclose(one.error, moved.error)
    # An episode that begins behind the burn-in forgets it.
    rows["first"][:, config.burn_in] = True
    fresh = learn.judged(policy, config, state, rows)
    rows["obs"][:, 0] -= 1.0
    assert torch.equal(fresh.error, learn.judged(policy, config, state, rows).error)


def test_a_run_over_the_burn_in_is_a_run_over_the_whole():
    """With and without a burn-in the values of the same rows are the same."""
    config, policy, state = parts()
    rows = sequences_of(config)
    parted = learn.judged(policy, config, state, rows)
    whole, _, _ = parts(burn_in=0, learned_steps=5)
    assert torch.allclose(learn.judged(policy, whole, state, rows).value[:, 2:], parted.value)


def test_what_was_learned_is_the_inverse_of_what_is_squashed():
    values = torch.tensor([3.0, -120.0], dtype=torch.float64)
    assert torch.allclose(unscaled(rescaled(values)), values)


def test_a_model_without_memory_is_refused():
    with pytest.raises(ConfigError, match="--model mlp has no memory, and r2d2 learns through one: give lstm or gru"):
        parts(model="mlp")
