"""Which networks which spaces get, and what is refused."""

import numpy as np
import pytest

from penstock.errors import SpaceError
from penstock.models.architecture import Body, actor_critic
from penstock.network import Categorical, Encoding, Gaussian, Linear
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
