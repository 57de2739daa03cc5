"""The policy as torch functions: the outputs of act, and the units of its value."""

import math

import numpy as np
import pytest
import torch

from penstock.policies import (
    Deterministic,
    Dueling,
    Encoding,
    EpsilonGreedy,
    Gaussian,
    Linear,
    Network,
    PolicyGraph,
    SquashedGaussian,
)
from penstock.policies.architecture import Body, actor_critic
from penstock.torch_networks.policy import Policy, action_values, denormalised_value, normalised_target, squashed
from penstock.types import Box, Discrete, Spaces

OBS = (("obs", Box((3,), "float32", (-1.0,), (1.0,))),)
BODY = Body("auto", (8,), "tanh")


def policy(action, *, normalised=False):
    graph = actor_critic(Spaces(OBS, action), BODY, 0.0, normalize_obs=normalised, normalize_value=normalised)
    published = {n.name: torch.from_numpy(n.initial(np.random.default_rng(1))) for n in graph.networks}
    return Policy(graph), published


def inputs(noise, explore):
    obs = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    return {"obs": obs, "noise": torch.full((4, noise), 2.0), "explore": torch.full((4,), explore)}


def test_gaussian_act():
    module, published = policy(Box((2,), "float32", (-1.0,), (1.0,)))
    greedy, drawn = module.act(published, inputs(2, 0.0)), module.act(published, inputs(2, 1.0))
    torch.testing.assert_close(drawn["action"], greedy["action"] + 2.0)
    # log sigma = 0 and z = 2 in both places: -2^2 / 2 * 2 - log(2 pi)
    torch.testing.assert_close(drawn["log_prob"], torch.full((4,), -4.0 - math.log(2.0 * math.pi)))
    torch.testing.assert_close(drawn["value"], greedy["value"])
    assert drawn["value"].shape == (4,)


def test_categorical_act():
    module, published = policy(Discrete(3))
    given = inputs(3, 1.0)
    given["noise"] = torch.tensor([[0.0, 0.0, 9.0], [9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, 9.0]])
    outputs = module.act(published, given)
    assert outputs["action"].tolist() == [2, 0, 1, 2]
    assert outputs["action"].dtype == torch.int64


def test_an_image_policy_reads_its_value_from_the_last_output():
    image = Box((36, 36, 3), "uint8", (0.0,), (255.0,))
    graph = actor_critic(Spaces((("obs", image),), Discrete(2)), BODY, 0.0, normalize_obs=False, normalize_value=False)
    published = {"actor": torch.from_numpy(graph.actor.initial(np.random.default_rng(0)))}
    published["actor"][-3:] = torch.tensor([0.0, 0.0, 5.0])
    obs = {"obs": torch.zeros(2, 36, 36, 3, dtype=torch.uint8)}
    distribution, value, _ = Policy(graph)(published, obs)
    assert value.tolist() == pytest.approx([5.0, 5.0])
    assert distribution.entropy().tolist() == pytest.approx([math.log(2.0)] * 2)


def test_an_image_policy_in_bfloat16_says_nearly_the_same_and_gives_float32():
    image = Box((4, 36, 36), "uint8", (0.0,), (255.0,))
    graph = actor_critic(Spaces((("obs", image),), Discrete(6)), BODY, 0.0, normalize_obs=False, normalize_value=False)
    published = {"actor": torch.from_numpy(graph.actor.initial(np.random.default_rng(0)))}
    published["actor"][-512 * 7 - 7 :] *= 100.0
    pixels = torch.randint(0, 256, (16, 4, 36, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    exact, rounded = (Policy(graph, precision)(published, {"obs": pixels}) for precision in ("float32", "bfloat16"))
    assert rounded.value.dtype == rounded.distribution.logits.dtype == torch.float32
    spread = exact.distribution.logits.std()
    difference = (rounded.distribution.logits - exact.distribution.logits).abs().max()
    assert 0.0 < difference < 0.05 * spread


def test_normalised_observations_and_values():
    module, published = policy(Discrete(3), normalised=True)
    plain, _ = policy(Discrete(3))
    given = inputs(3, 0.0)
    mean, var = torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor([4.0, 9.0, 16.0]).double()
    statistics = {"obs_mean": mean, "obs_var": var, "value_mean": torch.tensor(-100.0).double()}
    statistics["value_var"] = torch.tensor(400.0).double()
    shifted = given | {"obs": (given["obs"] - mean.float()) / var.sqrt().float()}
    expected = plain.act(published, shifted)["value"] * 20.0 - 100.0
    found = module.act(published | statistics, given)["value"]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_observations_far_from_0_are_normalised_before_they_are_rounded(precision):
    """From 999 to 1001: rounded first, bfloat16 would make one number of them."""
    graph = policy(Discrete(3), normalised=True)[0].graph
    module = Policy(graph, precision)
    obs = 1000.0 + torch.linspace(-1.0, 1.0, 27).reshape(9, 3)
    statistics = {"obs_mean": torch.full((3,), 1000.0).double(), "obs_var": torch.full((3,), 0.25).double()}
    published = {"actor": torch.zeros(1), **statistics}
    (found,) = module.features(published, {"obs": obs}).values()
    assert found.dtype == getattr(torch, precision)
    torch.testing.assert_close(found.float(), 2.0 * (obs - 1000.0), rtol=0.0, atol=0.01)


def test_targets_and_values_change_units_both_ways():
    statistics = {"value_mean": torch.tensor(-100.0).double(), "value_var": torch.tensor(400.0).double()}
    target = normalised_target(torch.tensor([-140.0, -100.0]), statistics)
    assert target.tolist() == pytest.approx([-2.0, 0.0])
    assert denormalised_value(target, statistics).tolist() == pytest.approx([-140.0, -100.0])


def without_value(head, *outputs, last=()):
    """A policy whose outputs are these numbers for any observation."""
    network = Network("actor", (Linear(1, len(outputs), 1.0), *last))
    graph = PolicyGraph((Encoding("obs", "flat", 1),), network, None, head, gives_value=False)
    return Policy(graph), {"actor": torch.tensor([0.0] * len(outputs) + list(outputs))}


def seen(noise, explore):
    return {"obs": torch.zeros(len(explore), 1), "noise": torch.tensor(noise), "explore": torch.tensor(explore)}


def test_squashed_gaussian_act_by_hand():
    # means 0.5 and -1, log_std 9 (clipped to 2) and -50 (clipped to -20); noise 0.1 and 3.
    module, published = without_value(SquashedGaussian(2), 0.5, -1.0, 9.0, -50.0)
    outputs = module.act(published, seen([[0.1, 3.0]] * 2, [1.0, 0.0]))
    assert list(outputs) == ["action"]
    drawn = [math.tanh(0.5 + 0.1 * math.exp(2.0)), math.tanh(-1.0 + 3.0 * math.exp(-20.0))]
    torch.testing.assert_close(outputs["action"], torch.tensor([drawn, [math.tanh(0.5), math.tanh(-1.0)]]))


def test_the_bounds_of_log_std_are_the_heads_own():
    distribution = squashed(SquashedGaussian(1, -5.0, 0.0), torch.tensor([[1.0, 0.5], [1.0, -9.0]]))
    assert distribution.log_std.tolist() == [[0.0], [-5.0]]
    assert distribution.mean.tolist() == [[1.0], [1.0]]


def test_deterministic_act_by_hand():
    module, published = without_value(Deterministic(2), 0.5, -1.0)
    outputs = module.act(published, seen([[1.0, -9.0]] * 2, [0.1, 0.0]))
    assert list(outputs) == ["action"]
    torch.testing.assert_close(
        outputs["action"], torch.tensor([[math.tanh(0.5) + 0.1, -1.0], [math.tanh(0.5), math.tanh(-1.0)]])
    )


def test_epsilon_greedy_act_by_hand():
    # Explore 0.5: noise 0.49 takes floor(0.34 * 3) = 1, noise 0.5 the best, the first of the equals 0 and 2.
    module, published = without_value(EpsilonGreedy(3), 4.0, 1.0, 4.0)
    below_one = 1.0 - 2.0**-24
    noise = [[0.49, 0.34], [0.5, 0.34], [0.0, below_one], [0.0, 0.0], [0.0, 0.9]]
    outputs = module.act(published, seen(noise, [0.5, 0.5, 1.0, 1.0, 0.0]))
    assert outputs["action"].tolist() == [1, 0, 2, 0, 0]
    assert outputs["action"].dtype == torch.int64
    assert outputs["q"].tolist() == [[4.0, 1.0, 4.0]] * 5


def test_atoms_are_values_by_their_softmax():
    # Atoms -1, 0, 1: probabilities (1/4, 1/4, 1/2) are worth 1/4, (1/2, 1/4, 1/4) are worth -1/4.
    logits = [0.0, 0.0, math.log(2.0), math.log(2.0), 0.0, 0.0]
    module, published = without_value(EpsilonGreedy(2, 3, -1.0, 1.0), *logits)
    outputs = module.act(published, seen([[0.0, 0.9]], [0.0]))
    assert outputs["q"].flatten().tolist() == pytest.approx([0.25, -0.25])
    assert outputs["action"].tolist() == [0]
    torch.testing.assert_close(
        action_values(module.graph.head, module.output(published, seen([], [0.0]))), outputs["q"]
    )


def test_a_dueling_layer_makes_the_values():
    # v = 1, a = (10, 30): q = 1 + 10 - 20 and 1 + 30 - 20.
    module, published = without_value(EpsilonGreedy(2), 1.0, 10.0, 30.0, last=(Dueling(2),))
    assert module.act(published, seen([[0.0, 0.0]], [0.0]))["q"].tolist() == [[-9.0, 11.0]]


@pytest.mark.parametrize(
    ("head", "arguments", "text"),
    [
        (SquashedGaussian(1), {}, "SquashedGaussian cannot give a value"),
        (Deterministic(1), {"gives_value": False, "normalize_value": True}, "neither a critic nor statistics"),
        (Gaussian(1), {"encoding": (Encoding("obs", "image", 12),), "normalize_obs": True}, "there are none"),
    ],
)
def test_a_graph_that_nothing_could_run_is_refused(head, arguments, text):
    network = Network("actor", (Linear(1, head.outputs, 1.0),))
    with pytest.raises(ValueError, match=text):
        PolicyGraph(**({"encoding": (Encoding("obs", "flat", 1),)} | arguments), actor=network, critic=None, head=head)
