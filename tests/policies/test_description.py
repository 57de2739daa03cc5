"""Tables of networks: what they build, and what is refused."""

import json
import tomllib

import numpy as np
import pytest

from penstock.errors import ConfigError, SpaceError
from penstock.policies import (
    GRU,
    Activation,
    Attention,
    Conv2d,
    Embedding,
    Encoding,
    Flatten,
    LayerNorm,
    Linear,
    MeanPool,
    Residual,
)
from penstock.policies.architecture import Body, actor_critic
from penstock.policies.description import names_memory
from penstock.types import Box, Discrete, Spaces

ROOT_TWO = 2.0**0.5
SPACES = Spaces(
    (
        ("obs.eye", Box((64, 64, 3), "uint8", (0.0,), (255.0,))),
        ("obs.grid", Box((4, 5), "uint8", (2.0,), (4.0,))),
        ("obs.level", Discrete(9, 1)),
        ("obs.others", Box((6, 3), "float32", (-1.0,), (1.0,))),
        ("obs.speed", Box((2,), "float32", (-1.0,), (1.0,))),
        ("obs.there", Box((6,), "float32", (0.0,), (1.0,))),
    ),
    Discrete(4),
)
PLAIN = Spaces((("obs", Box((2,), "float32", (-1.0,), (1.0,))),), Discrete(4))


def graph(text, spaces=SPACES, **changed):
    body = Body(json.dumps(tomllib.loads(text)), (64, 64), "tanh", **changed)
    return actor_critic(spaces, body, 0.0, normalize_obs=False, normalize_value=False)


def branches(text, **changed):
    return {branch.name: branch for branch in graph(text, **changed).actor.branches}


def test_a_field_without_a_part_is_encoded_as_without_a_table():
    found = branches("")
    assert list(found) == ["obs.eye", "obs.grid+obs.level+obs.others+obs.speed+obs.there"]
    assert found["obs.eye"].features == 512
    assert found["obs.grid+obs.level+obs.others+obs.speed+obs.there"].features == 20 + 9 + 18 + 2 + 6


def test_the_flag_normalises_layers_of_an_image_without_a_part():
    def normalised(layer_norm):
        return sum(isinstance(layer, LayerNorm) for layer in branches("", layer_norm=layer_norm)["obs.eye"].layers)

    assert (normalised(False), normalised(True)) == (0, 1)


def test_a_grid_gets_planes_for_its_bounds_and_convolutions():
    text = '[fields.grid]\nencoder = "spatial"\nconvolutions = [[8, 2, 1]]\nhidden_sizes = [16]\nactivation = "relu"'
    found = graph(text)
    assert found.encoding[1] == Encoding("obs.grid", "spatial", 20, 2, shape=(4, 5), values=3)
    convolution = Conv2d(3, 8, 2, 1, ROOT_TWO)
    relu = Activation("relu")
    expected = (convolution, relu, Flatten(), Linear(8 * 3 * 4, 16, ROOT_TWO), relu)
    assert found.actor.branches[1].layers == expected


def test_discrete_fields_become_bits_or_rows_of_a_table():
    bits = graph('[fields.level]\nencoder = "binary"')
    # Nine values, counted from 0, are at most 8: four bits.
    assert bits.encoding[2] == Encoding("obs.level", "binary", 4, 1)
    table = graph('[fields.level]\nencoder = "embedding"\nwidth = 5\nhidden_sizes = [7]\nlayer_norm = true')
    assert table.encoding[2] == Encoding("obs.level", "embedding", 9, 1)
    hidden = (Linear(5, 7, ROOT_TWO), LayerNorm(7), Activation("tanh"))
    assert table.actor.branches[1].layers == (Embedding(9, 5), *hidden)


def test_a_set_gets_a_transformer_and_its_mask():
    text = '[fields.others]\nencoder = "transformer"\nwidth = 8\nheads = 2\nlayers = 1\nmask = "there"'
    found = graph(text)
    assert {part.field: part.kind for part in found.encoding}["obs.there"] == "mask"
    (branch,) = (branch for branch in found.actor.branches if branch.name == "obs.others")
    assert branch.mask == "obs.there"
    feed_forward = (LayerNorm(8), Linear(8, 32, ROOT_TWO), Activation("gelu"), Linear(32, 8, 1.0))
    block = (Residual((LayerNorm(8), Attention(8, 2))), Residual(feed_forward))
    assert branch.layers == (Linear(3, 8, 1.0), *block, LayerNorm(8), MeanPool())


def test_trunk_and_memory():
    text = '[trunk]\nhidden_sizes = [10]\nactivation = "relu"\n[memory]\nkind = "gru"\nsize = 12'
    found = graph(text, PLAIN)
    below = (Linear(2, 10, ROOT_TWO), Activation("relu"), GRU(10, 12))
    assert (found.actor.layers, found.critic.layers) == ((*below, Linear(12, 4, 0.01)), (*below, Linear(12, 1, 1.0)))
    shared = graph(f"shared = true\n{text}", PLAIN)
    assert (shared.actor.layers, shared.critic) == ((*below, Linear(12, 5, 0.01)), None)


def test_vectors_alone_have_two_networks_unless_they_share():
    text = "[fields.obs]\nencoder = 'mlp'\nhidden_sizes = [3]"
    apart, shared = graph(text, PLAIN), graph(f"shared = true\n{text}", PLAIN)
    assert apart.critic is not None
    assert apart.critic.branches == apart.actor.branches
    assert (shared.critic, shared.actor.layers[-1].outputs) == (None, 5)
    assert shared.actor.initial(np.random.default_rng(0)).shape == (shared.actor.num_parameters,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[field.eye]", "there is no key field; did you mean fields"),
        ("[fields.eyes]\nencoder = 'mlp'", "there is no field 'eyes'; did you mean eye"),
        ("[fields.eye]\nencoder = 'resnest'", "fields.eye.encoder is 'resnest', and must be one of mlp, nature_cnn"),
        ("[fields.eye]\nencodr = 'resnet'", r"there is no key fields.eye.encodr; did you mean encoder\?$"),
        ("[fields.eye]\nencodr = 'resnet'\nlayer_norm = true", "there is no key fields.eye.encodr; did you mean encod"),
        ("[fields.level]\nencoder = 'embedding'\nwidht = 3", "there is no key fields.level.widht; did you mean width"),
        ("[fields.eye]\nlayer_norm = true", "fields.eye.encoder is missing"),
        ("[fields.eye]\nencoder = 'resnet'\nwidth = 3", "there is no key fields.eye.width"),
        ("[fields.level]\nencoder = 'embedding'", "fields.level.width is missing, and must be a whole number"),
        (
            "[fields.level]\nencoder = 'embedding'\nwidth = 0",
            "fields.level.width is 0, and must be a whole number of at",
        ),
        (
            "[fields.speed]\nencoder = 'binary'",
            "fields.speed.encoder = 'binary' needs a Discrete, and the field obs.speed is a Box",
        ),
        ("[fields.speed]\nencoder = 'mlp'\nhidden_sizes = 8", "fields.speed.hidden_sizes is 8, and must be a list"),
        ("[fields.speed]\nencoder = 'spatial'", r"fields.speed is float32 \[2\]: spatial needs a grid"),
        (
            "[fields.grid]\nencoder = 'spatial'\nconvolutions = [[8, 5, 1]]",
            "fields.grid.convolutions leave nothing of obs.grid: .* 5 .* into 4 x 5$",
        ),
        ("[fields.grid]\nencoder = 'spatial'\nconvolutions = [[8, 5]]", r"a list of \[filters, kernel, stride\]"),
        ("[fields.others]\nencoder = 'transformer'\nwidth = 9", "fields.others.heads = 4 does not divide width = 9"),
        ("[fields.others]\nencoder = 'transformer'\nmask = 'gone'", "there is no field 'gone' to be a mask"),
        (
            "[fields.others]\nencoder = 'transformer'\nmask = 'speed'",
            r"fields.others.mask = 'speed' is \[2\], and the set has 6 entities",
        ),
        (
            "[fields.others]\nencoder = 'transformer'\nmask = 'there'\n[fields.there]\nencodr = 'mlp'",
            "fields.there is the mask of another field and takes no part of its own",
        ),
        ("[fields.others]\nencoder = 'transformer'\nmask = 'others'", "fields.others is the mask of another field"),
        ("[fields.speed]\nencoder = 'transformer'", r"fields.speed has shape \[2\]: a set is \[entities, features\]"),
        ("fields = 3", "fields = 3 is no table"),
        ("shared = 1", "shared is 1, and must be true or false"),
        ("[trunk]\nhiden_sizes = [3]", "there is no key trunk.hiden_sizes; did you mean hidden_sizes"),
        ("[memory]\nkind = 'rnn'", "memory.kind is 'rnn', and must be one of lstm, gru"),
    ],
)
def test_a_mistake_is_named_in_one_line(text, said):
    with pytest.raises(ConfigError, match=said) as caught:
        graph(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("encoder", ["resnet", "nature_cnn", "cnn"])
def test_an_encoder_of_images_needs_one(encoder):
    with pytest.raises(SpaceError, match="grid"):
        graph(f"[fields.grid]\nencoder = '{encoder}'")


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("grid", r"obs.grid is uint8 \[4, 5\], not an image, .*; for fields.grid.encoder write spatial or mlp$"),
        ("others", r"obs.others is float32 \[6, 3\], not an image, .* write transformer or mlp$"),
        ("speed", r"obs.speed is float32 \[2\], not an image, .* write mlp$"),
        ("level", "obs.level is a Discrete, not an image, .* write embedding, binary or mlp$"),
    ],
)
def test_an_encoder_that_needs_an_image_names_those_that_serve_the_field(field, said):
    with pytest.raises(SpaceError, match=said):
        graph(f"[fields.{field}]\nencoder = 'resnet'")


def test_a_table_that_is_no_json_is_said():
    with pytest.raises(ConfigError, match="--model: the table is no JSON: "):
        names_memory("{x")
