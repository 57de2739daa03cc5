"""A user's own module as the actor of an algorithm with critics, and as the network of one with sequences."""

import pytest
import torch

from penstock.algorithm_lookup import find_algorithm, load_functions
from penstock.algorithms.off_policy.critics import critic_network
from penstock.algorithms.off_policy.learn import networks_of
from penstock.algorithms.r2d2.spec import R2D2Config
from penstock.algorithms.sac.spec import SACConfig, actor_graph
from penstock.errors import ConfigError
from penstock.policies import Linear
from penstock.registry import load
from penstock.torch_networks.own import made
from tests.algorithms.replay_rows import CONTINUOUS, DISCRETE, minibatch_of, noise_of, state_of

NAMES = "tests.torch_networks.own_modules"


def own(name, **settings):
    return {"model": f"{NAMES}:{name}", **settings}


def built(algorithm, spaces, **settings):
    package = find_algorithm(algorithm)
    config = package.config(**settings)
    state = state_of(load(package.initial)(spaces, config, 1), torch.float32)
    return load(package.spec)(spaces, config), load_functions(package.learn)(spaces, config), state


@pytest.mark.parametrize("name", ["Values", "Judged"])
@pytest.mark.parametrize("algorithm", ["sac", "td3", "ddpg", "dsac", "dsact"])
def test_actor_and_critics_learn(algorithm, name):
    spec, algorithm, state = built(algorithm, CONTINUOUS, **own(name))
    rows = minibatch_of(CONTINUOUS, spec, 8, torch.float32)
    for phase in algorithm.phases:
        found = phase.gradients(state, rows, noise_of(phase, 8, torch.float32)).gradients
        changed = phase.apply(state, found)
        for vector in found.keys() & {"actor", "critic"}:
            assert torch.isfinite(changed[vector]).all()
            # The penstock critics have units that are 0 for every row of this minibatch.
            assert (changed[vector] != state[vector]).float().mean() > 0.5
        state |= changed


def test_a_memory_learns_by_soft_actor_critic_and_by_r2d2():
    for algorithm, spaces in (("sac", CONTINUOUS), ("r2d2", DISCRETE)):
        settings = {"burn_in": 2, "learned_steps": 4, "hidden_sizes": (8,), "memory_size": 6}
        if algorithm == "r2d2":
            settings = {"burn_in": 2, "learned_steps": 4}
        spec, found, state = built(algorithm, spaces, **own("Recalling", **settings))
        rows = minibatch_of(spaces, spec, 4, torch.float32)
        assert rows["carry.actor.0.h"].shape == (4, 5)
        phase = found.phases[0] if algorithm == "r2d2" else found.phases[1]
        gradient = phase.gradients(state, rows, noise_of(phase, 4, torch.float32)).gradients["actor"]
        other = {**rows, "carry.actor.0.h": rows["carry.actor.0.h"] + 1.0}
        assert torch.isfinite(gradient).all()
        assert not torch.equal(
            gradient, phase.gradients(state, other, noise_of(phase, 4, torch.float32)).gradients["actor"]
        )


def test_a_critic_of_ones_own_says_what_its_module_says():
    config = SACConfig(model=f"{NAMES}:make_judged", critics=2)
    graph = actor_graph(CONTINUOUS, config)
    of = networks_of(graph, config, critic_network(graph, config), 2)
    assert of.critics.network.own.reference == f"{NAMES}:Judged.critic"
    generator = torch.Generator().manual_seed(0)
    vector, obs = torch.randn(12, generator=generator), torch.randn(4, 3, generator=generator)
    action = torch.rand(4, 2, generator=generator)
    found = of.values({"critic": vector}, "critic", {"obs": obs}, action)
    module = made(f"{NAMES}:Judging", CONTINUOUS, 1, 0)
    for number in range(2):
        weight, bias = vector[6 * number :][:5].view(1, 5), vector[6 * number + 5 :][:1]
        with torch.no_grad():
            module.layer.weight.copy_(weight)
            module.layer.bias.copy_(bias)
        torch.testing.assert_close(found[number], module(obs, action))


def by_name(vector, inputs, outputs, networks):
    """The flat vector of `nets.Steering` or its critic in the order of the same MLP by name."""
    found = []
    for part in vector.chunk(networks):
        first, bias, last, last_bias = part.split([64 * inputs, 64, outputs * 64, outputs])
        found += [first.view(64, inputs).T.flatten(), bias, last.view(outputs, 64).T.flatten(), last_bias]
    return torch.cat(found)


def test_gradients_are_those_of_the_same_networks_by_name():
    spec, mine, state = built("sac", CONTINUOUS, model="examples.own_network.steering:Steering")
    _, named, _ = built("sac", CONTINUOUS, hidden_sizes=(64,))
    shapes = {"actor": (3, 4, 1), "critic": (5, 1, 2), "target.critic": (5, 1, 2)}
    rows = minibatch_of(CONTINUOUS, spec, 16, torch.float32)
    same = state | {name: by_name(state[name], *shape) for name, shape in shapes.items()}
    for mine_phase, named_phase in zip(mine.phases, named.phases, strict=True):
        noise = noise_of(mine_phase, 16, torch.float32)
        expected = named_phase.gradients(same, rows, noise).gradients
        for name, found in mine_phase.gradients(state, rows, noise).gradients.items():
            ordered = by_name(found, *shapes[name]) if name in shapes else found
            torch.testing.assert_close(ordered, expected[name])


def test_penstocks_critics_stand_beside_a_module_of_ones_own():
    settings = {"hidden_sizes": (7,), "layer_norm": True}
    graph = actor_graph(CONTINUOUS, SACConfig(**own("Values"), **settings))
    plain = actor_graph(CONTINUOUS, SACConfig(**settings))
    critic = critic_network(graph, SACConfig(**own("Values"), **settings))
    assert critic == critic_network(plain, SACConfig(**settings))
    assert isinstance(critic.layers[0], Linear)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (SACConfig(**own("Judged"), hidden_sizes=(8,)), f"--hidden_sizes has no effect: --model {NAMES}:Judged makes"),
        (SACConfig(**own("Values"), memory_size=8), "--memory_size has no effect: --model .* makes its layers itself"),
        (SACConfig(**own("Values"), burn_in=2), "--burn_in has no effect: the policy has no memory"),
        (
            SACConfig(**own("RecallingAndJudged")),
            "has a carry, and its critic .* has none: .* leave critic",
        ),
        (SACConfig(**own("WithDrawingJudge")), "WithDrawingJudge.critic makes noise differently each time: make it wi"),
        (SACConfig(**own("WithInfiniteJudge")), "WithInfiniteJudge.critic: forward gives outputs that are not finite"),
        (
            SACConfig(**own("WithFlatJudge")),
            r"WithFlatJudge.critic: forward returns outputs as float32 \[3\] for 3 rows; they must be float32 \[3, 1\]",
        ),
        (SACConfig(**own("WithBlindJudge")), r"WithBlindJudge.critic: TypeError: .* takes 2 positional .* line \d+\)"),
        (SACConfig(**own("WithBoldJudge")), "WithBoldJudge.critic: forward changes what it is given: make a new"),
        (SACConfig(**own("WithRecallingJudge")), "WithRecallingJudge.critic has a carry, and critics .* no memory"),
        (SACConfig(**own("Plain")), "Plain: forward returns 2 things; it must return outputs, without a value"),
        (SACConfig(**own("Values"), optimizer="muon"), "and this network has none: give --optimizer adamw"),
        (R2D2Config(**own("Values")), "Values has no memory, and r2d2 learns .*: give lstm or gru, or a module with a"),
        (R2D2Config(**own("Plain")), "Plain has no memory, and r2d2 learns .*: give lstm or gru, or a module with a"),
        (R2D2Config(**own("Recalling"), memory_size=8), "--memory_size has no effect: --model .*Recalling makes"),
    ],
)
def test_what_does_not_fit_is_named_in_one_line(config, text):
    name, spaces = ("r2d2", DISCRETE) if isinstance(config, R2D2Config) else ("sac", CONTINUOUS)
    with pytest.raises(ConfigError, match=text) as caught:
        load(find_algorithm(name).spec)(spaces, config)
    assert "\n" not in str(caught.value)


def test_td3_learns_from_single_rows():
    with pytest.raises(ConfigError, match="Recalling has a memory, and td3 learns from single rows: for it use ppo"):
        built("td3", CONTINUOUS, **own("Recalling"))
    # A module with a value beside its memory, as PPO learns it.
    with pytest.raises(ConfigError, match="Remembering has a memory, and td3 learns from single rows: for it use ppo"):
        built("td3", CONTINUOUS, **own("Remembering"))
