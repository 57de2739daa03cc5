"""Which networks which spaces get, and what is refused."""

import numpy as np
import pytest

from penstock.errors import SpaceError
from penstock.policies import (
    Categorical,
    Deterministic,
    Dueling,
    Encoding,
    EpsilonGreedy,
    Gaussian,
    Linear,
    SquashedGaussian,
)
from penstock.policies.architecture import Body, actor_critic, deterministic_actor, q_network, squashed_actor
from penstock.registry import Registry
from penstock.types import Box, Discrete, Spaces

VECTOR = Box((3,), "float32", (-1.0,), (1.0,))
IMAGE = Box((84, 84, 4), "uint8", (0.0,), (255.0,))


def graph(obs, action=None, model="auto", **normalisation):
    spaces = Spaces(tuple(sorted(obs.items())), action or Discrete(3))
    flags = {"normalize_obs": False, "normalize_value": False} | normalisation
    return actor_critic(spaces, Body(model, (64, 32), "tanh"), -0.5, **flags)


def test_a_vector_gets_two_perceptrons():
    found = graph({"obs": VECTOR}, Box((2,), "float32", (-1.0,), (1.0,)))
    assert found.head == Gaussian(2)
    assert found.actor.num_parameters == 3 * 64 + 64 + 64 * 32 + 32 + 32 * 2 + 2 + 2
    assert found.critic is not None
    assert found.critic.num_parameters == 3 * 64 + 64 + 64 * 32 + 32 + 32 + 1
    assert found.actor.initial(np.random.default_rng(0))[-2:].tolist() == [-0.5, -0.5]


def test_the_first_policy_is_nearly_indifferent():
    last = [layer for layer in graph({"obs": VECTOR}).actor.layers if isinstance(layer, Linear)][-1]
    assert last.gain == 0.01


def test_a_dict_is_flattened():
    found = graph({"obs.place": Discrete(5, 2), "obs.speed": VECTOR})
    assert found.encoding == (Encoding("obs.place", "one_hot", 5, 2), Encoding("obs.speed", "flat", 3))
    assert found.features == 8
    assert found.head == Categorical(3)


def test_an_image_gets_the_nature_network_with_a_shared_trunk():
    found = graph({"obs": IMAGE})
    assert found.critic is None
    # 3,136 = 64 * 7 * 7 features; 3 logits and a value.
    sizes = [4 * 32 * 64 + 32, 32 * 64 * 16 + 64, 64 * 64 * 9 + 64, 3136 * 512 + 512, 512 * 4 + 4]
    assert found.actor.num_parameters == sum(sizes)
    assert found.encoding == (Encoding("obs", "image", 84 * 84 * 4),)


def test_channels_may_come_first():
    (encoding,) = graph({"obs": Box((4, 84, 84), "uint8", (0.0,), (255.0,))}).encoding
    assert encoding.channels_first


@pytest.mark.parametrize(
    ("box", "nature"), [((36, 36, 3), True), ((35, 36, 3), False), ((36, 36), False), ((8, 8, 3), False)]
)
def test_only_what_the_convolutions_can_eat_is_an_image(box, nature):
    assert (graph({"obs": Box(box, "uint8", (0.0,), (255.0,))}).critic is None) is nature


def test_an_image_may_be_flattened_on_request():
    assert graph({"obs": IMAGE, "obs.x": VECTOR}, model="mlp").features == 84 * 84 * 4 + 3


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"obs": {"obs.eye": IMAGE, "obs.x": VECTOR}},
            "the image obs.eye must stand alone, but there are obs.eye, obs.x",
        ),
        (
            {"obs": {"obs": VECTOR}, "model": "nature_cnn"},
            "nature_cnn needs one uint8 image of at least 36 x 36, not obs",
        ),
        ({"obs": {"obs": IMAGE}, "normalize_obs": True}, "leave --normalize_obs off"),
        ({"obs": {"obs": VECTOR}, "action": Box((2,), "int64", (0.0,), (9.0,))}, r"a Box of int64 \[2\]"),
        ({"obs": {"obs": VECTOR}, "action": Box((0,), "float32", (), ())}, r"a Box of float32 \[0\]"),
    ],
)
def test_what_nothing_here_serves_is_refused_in_one_line(arguments, text):
    with pytest.raises(SpaceError, match=text) as caught:
        graph(**arguments)
    assert "\n" not in str(caught.value)


BODY = Body("auto", (64, 32), "relu")
BOUNDED = Box((2, 3), "float32", (-1.0,), (1.0,))
UNBOUNDED = Box((2,), "float32", (-np.inf,), (np.inf,))


def values(obs, action, **changed):
    given = {"dueling": False, "atoms": 1, "low": 0.0, "high": 0.0} | changed
    return q_network(Spaces((("obs", obs),), action), BODY, "dqn", **given)


@pytest.mark.parametrize(
    ("build", "head", "outputs"),
    [(squashed_actor, SquashedGaussian(6), 12), (deterministic_actor, Deterministic(6), 6)],
)
def test_an_actor_without_a_value_has_the_outputs_of_its_head(build, head, outputs):
    found = build(Spaces((("obs", VECTOR),), BOUNDED), BODY, "sac")
    assert (found.head, found.critic, found.gives_value, found.outputs) == (head, None, False, ("action",))
    assert found.actor.layers[-1] == Linear(32, outputs, 0.01)


def test_action_values_may_be_dueling_and_have_atoms():
    plain = values(VECTOR, Discrete(4, 7))
    assert (plain.head, plain.outputs, plain.gives_value) == (EpsilonGreedy(4), ("action", "q"), False)
    assert plain.actor.layers[-1] == Linear(32, 4, 1.0)
    assert values(VECTOR, Discrete(4), dueling=True).actor.layers[-2:] == (Linear(32, 5, 1.0), Dueling(4))
    both = values(VECTOR, Discrete(4), dueling=True, atoms=51, low=-10.0, high=10.0)
    assert both.head == EpsilonGreedy(4, 51, -10.0, 10.0)
    assert both.actor.layers[-2:] == (Linear(32, 255, 1.0), Dueling(4, 51))


@pytest.mark.parametrize(("dueling", "outputs"), [(False, 4), (True, 5)])
def test_action_values_of_an_image_come_from_the_nature_network(dueling, outputs):
    found = values(IMAGE, Discrete(4), dueling=dueling)
    sizes = [4 * 32 * 64 + 32, 32 * 64 * 16 + 64, 64 * 64 * 9 + 64, 3136 * 512 + 512, 512 * outputs + outputs]
    assert found.actor.num_parameters == sum(sizes)


@pytest.mark.parametrize(
    ("build", "action", "text"),
    [
        (squashed_actor, Discrete(3), "sac needs real-numbered actions, a Box: for Discrete ones use ppo or dqn"),
        (deterministic_actor, UNBOUNDED, "sac needs actions with bounds: for a Box without use ppo"),
        (squashed_actor, Box((2,), "int64", (0.0,), (9.0,)), r"a Box of int64 \[2\]"),
    ],
)
def test_an_action_space_that_an_actor_does_not_serve_names_what_does(monkeypatch, build, action, text):
    several = {name: f"penstock.algorithms.{name}" for name in ("ppo", "dqn", "td3")}
    monkeypatch.setattr("penstock.algorithm_package.ALGORITHMS", Registry("algorithm", several))
    with pytest.raises(SpaceError, match=text):
        build(Spaces((("obs", VECTOR),), action), BODY, "sac")
    with pytest.raises(SpaceError, match="dqn needs Discrete actions: for real-numbered ones, a Box, use ppo or td3"):
        values(VECTOR, BOUNDED)


def test_the_first_squashed_policy_is_wide_and_unbiased():
    found = squashed_actor(Spaces((("obs", VECTOR),), BOUNDED), Body("auto", (256, 256), "relu"), "sac")
    flat = found.actor.initial(np.random.default_rng(0))
    parts = {
        part.name: flat[part.offset :][: int(np.prod(part.shape))].reshape(part.shape) for part in found.actor.slices()
    }
    x = np.random.default_rng(1).normal(size=(100, 3))
    for layer in "024":
        x = x @ parts[f"{layer}.weight"] + parts[f"{layer}.bias"]
        x = np.maximum(x, 0.0) if layer != "4" else x
    assert np.abs(x).max() < 0.05
