"""SAC with a memory: its losses against differences, and what burn-in and stored carry do."""

import pytest
import torch

from penstock.algorithms.off_policy.critics import memory_network
from penstock.algorithms.optimizer.spec import layout_of
from penstock.algorithms.sac import learn, recurrent, spec
from penstock.types import Spaces
from tests.algorithms.replay_rows import CONTINUOUS, random, slope, state_of

SMALL = {"hidden_sizes": (5,), "memory_size": 3, "burn_in": 0, "learned_steps": 4, "gamma": 0.5, "model": "lstm"}


def parts(spaces: Spaces = CONTINUOUS, **settings):
    config = spec.SACConfig(**SMALL | settings)
    return config, learn.build(spaces, config), state_of(spec.init_state(spaces, config, 1))


def sequences_of(config, count=2, seed=3):
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for part in spec.spec(CONTINUOUS, config).sampled(CONTINUOUS):
        shape = (count, *part.shape)
        found[part.name] = (
            random(generator, *shape) if part.dtype == "float32" else torch.zeros(shape, dtype=torch.bool)
        )
    found["action"] = found["action"].tanh()
    found["valid"][:, :-1] = True
    found["weight"][:] = 0.0
    found["weight"][:, config.burn_in :] = 1.0
    noise = random(generator, count, config.learned_steps + 1, 2)
    return found, {"action": noise}


def test_the_state_has_a_memory_of_the_critics_and_its_target():
    config, _, state = parts(critics=3)
    found = spec.spec(CONTINUOUS, config)
    names = {part.name for part in found.state}
    assert {"actor", "memory", "critic", "target.memory", "target.critic", "log_alpha"} <= names
    assert "target.actor" not in names
    # 3 remembered numbers and 2 of the action to 5 hidden ones and a value, three times.
    assert state["critic"].shape == (3 * (5 * 5 + 5 + 5 + 1),)
    assert (found.unit, found.topology) == ("lane", "off_policy")
    assert [part.name for part in found.policy.carry] == ["carry.actor.2.h", "carry.actor.2.c"]


def test_the_critics_compute_in_the_number_type_that_is_asked_for(monkeypatch):
    """The memory has no output layer. So its linear layer and its LSTM do too; of the critics, all but the last one."""
    seen = []
    config, built, state = parts(precision="bfloat16", hidden_sizes=(5, 6))
    product = torch.addmm
    monkeypatch.setattr(torch, "addmm", lambda bias, x, weight: seen.append(x.dtype) or product(bias, x, weight))
    built.phases[0].gradients(state, *sequences_of(config))
    # In that of the parameters, here float64: the output layers of the actor, of two critics and of their targets.
    assert (seen.count(torch.float64), set(seen)) == (5, {torch.float64, torch.bfloat16})


def test_muon_steps_the_hidden_matrices_of_the_memory():
    config, _, _ = parts(hidden_sizes=(5, 6), optimizer="muon")
    memory = memory_network(spec.actor_graph(CONTINUOUS, config), config)
    assert [part.name for part in layout_of(memory).matrices] == ["2.weight"]


def test_the_critics_loss_by_its_values_and_its_gradients_by_differences():
    """Every row is terminated, so targets are rewards. An episode begins within a sequence, and one row is padding."""
    config, built, state = parts()
    rows, noise = sequences_of(config)
    rows["terminated"][:], rows["first"][0, 2], rows["weight"][1, 3] = True, True, 0.0
    critic = built.phases[0]

    def loss(changed):
        return critic.gradients(changed, rows, noise).metrics["value_loss"]

    found = critic.gradients(state, rows, noise)
    assert set(found.gradients) == {"memory", "critic"}
    for name in ("memory", "critic"):
        numerical, analytic = slope(loss, state, name, found.gradients[name])
        assert analytic == pytest.approx(numerical, rel=1e-5)


def test_a_value_follows_but_behind_a_terminated_row():
    """What follows is worth ``min Q' - alpha log pi``: it counts by gamma, and not at all behind a terminated row."""
    config, built, state = parts(temperature=0.1)
    rows, noise = sequences_of(config, 1)
    rows["reward"][:] = 0.0
    size = state["critic"].numel() // 2
    for name, value in (("critic", 0.0), ("target.critic", 6.0)):
        state[name] = torch.zeros_like(state[name])
        state[name][size - 1], state[name][-1] = value, value + 1.0
    state["log_alpha"] = torch.full((1,), -1e9, dtype=torch.float64)
    # Values are 0 and 1; targets are 6 / 2 = 3: (9 + 4) / 2. Behind the terminated row they are 0: (0 + 1) / 2.
    whole = built.phases[0].gradients(state, rows, noise).metrics["value_loss"]
    assert float(whole) == pytest.approx(6.5)
    rows["terminated"][0, 1] = True
    found = built.phases[0].gradients(state, rows, noise).metrics["value_loss"]
    assert float(found) == pytest.approx((3 * 6.5 + 0.5) / 4)


def test_the_actors_gradient_against_differences():
    config, built, state = parts(temperature=0.3)
    rows, noise = sequences_of(config)
    rows["first"][0, 2], rows["weight"][1, 3] = True, 0.0
    actor = built.phases[1]
    share = rows["weight"] / rows["weight"].sum()
    of = recurrent.networks_of(spec.actor_graph(CONTINUOUS, config), config)

    def loss(changed):
        action, log_prob = recurrent.sampled(of, changed, rows, noise["action"])
        values = recurrent.values(of, changed["critic"], recurrent.remembered(of, changed, "memory", rows), action)
        return ((changed["log_alpha"].exp() * log_prob - values.amin(0))[:, :-1] * share).sum()

    found = actor.gradients(state, rows, noise)
    assert set(found.gradients) == {"actor"}
    numerical, analytic = slope(loss, state, "actor", found.gradients["actor"])
    assert analytic == pytest.approx(numerical, rel=1e-5)


def test_the_stored_carry_is_the_actors_and_the_critics_begin_at_zero():
    config, built, state = parts(burn_in=2)
    rows, noise = sequences_of(config)
    rows["terminated"][:] = True
    critic, actor = (phase.gradients(state, rows, noise).metrics for phase in built.phases)
    moved = {**rows, "carry.actor.2.h": rows["carry.actor.2.h"] + 1.0}
    other_critic, other_actor = (phase.gradients(state, moved, noise).metrics for phase in built.phases)
    assert torch.equal(critic["value_loss"], other_critic["value_loss"])
    assert not torch.allclose(actor["entropy"], other_actor["entropy"])
    # Both see the burn-in.
    seen = {**rows, "obs": rows["obs"].clone()}
    seen["obs"][:, 0] += 1.0
    later_critic, later_actor = (phase.gradients(state, seen, noise).metrics for phase in built.phases)
    assert not torch.allclose(critic["value_loss"], later_critic["value_loss"])
    assert not torch.allclose(actor["entropy"], later_actor["entropy"])
