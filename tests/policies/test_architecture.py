"""The networks for each kind of spaces, and the spaces that are refused."""

import re

import numpy as np
import pytest

from penstock.algorithms.a2c.spec import A2CConfig
from penstock.algorithms.dqn.spec import DQNConfig
from penstock.algorithms.dqn.spec import policy_graph as q_policy_graph
from penstock.algorithms.ppo.spec import PPOConfig, policy_graph
from penstock.config.sources import from_mapping
from penstock.errors import ConfigError, SpaceError
from penstock.policies import (
    Categorical,
    Composed,
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
from penstock.policies.architecture import Body, actor_critic, deterministic_actor, q_network, squashed_actor
from penstock.policies.network_settings import export_note
from penstock.registry import Registry
from penstock.types import Box, Composite, Discrete, MultiDiscrete, NoiseSpec, Spaces

VECTOR = Box((3,), "float32", (-1.0,), (1.0,))
IMAGE = Box((84, 84, 4), "uint8", (0.0,), (255.0,))


def graph(obs, action=None, model="auto", **normalisation):
    spaces = Spaces(tuple(sorted(obs.items())), action or Discrete(3))
    flags = {"normalize_obs": False, "normalize_value": False} | normalisation
    return actor_critic(spaces, Body(model, (64, 32), "tanh"), -0.5, **flags)


def test_a_vector_gets_two_mlps():
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


def test_a_composite_gets_a_head_for_each_element_and_a_spread_for_each_number():
    leaves = (
        (("which",), Discrete(3)),
        (("how",), Box((2,), "float32", (-1.0,), (1.0,))),
        (("more",), MultiDiscrete((4, 5), (0, 0), (2,), "int8")),
        (("how much",), Box((), "float32", (-1.0,), (1.0,))),
    )
    found = graph({"obs": VECTOR}, Composite(leaves))
    assert found.head == Composed((Categorical(3), Gaussian(2), Categorical(4), Categorical(5), Gaussian(1)))
    assert (found.head.outputs, found.head.size, found.head.deviations) == (15, 6, 3)
    assert found.head.choices == (3, 4, 5)
    assert found.actor.free == (("log_std", 3, -0.5),)
    kinds = [(part.distribution, part.shape) for part in found.noise.parts]
    assert kinds == [("gumbel", (3,)), ("normal", (2,)), ("gumbel", (9,)), ("normal", (1,))]
    whole = (("which",), Box((1,), "int64", (0.0,), (9.0,)))
    with pytest.raises(SpaceError, match=r"a Box of int64 \[1\]"):
        graph({"obs": VECTOR}, Composite((whole,)))


def test_choices_alone_take_the_noise_of_one_choice():
    found = graph({"obs": VECTOR}, MultiDiscrete((4, 2), (0, 0), (2,), "int64"))
    assert found.noise == NoiseSpec("gumbel", (6,))
    assert not found.actor.free


@pytest.mark.parametrize("image", [False, True])
def test_no_network_sees_the_mask(image):
    obs = (("obs.action_mask", Box((3,), "uint8", (0.0,), (1.0,))), ("obs.x", IMAGE if image else VECTOR))
    spaces = Spaces(obs, Discrete(3), "obs.action_mask")
    found = actor_critic(spaces, BODY, 0.0, normalize_obs=False, normalize_value=False)
    assert [part.field for part in found.encoding] == ["obs.x"]
    assert found.fields == ("obs.x", "obs.action_mask")
    assert (found.mask, found.mask_size) == ("obs.action_mask", 3)


def test_a_head_without_choices_has_nothing_to_mask():
    network = Network("actor", (Linear(3, 3, 1.0),))
    with pytest.raises(ValueError, match="Gaussian has no choices to mask"):
        PolicyGraph((Encoding("obs", "flat", 3),), network, None, Gaussian(2), mask="m")


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
    ("box", "features"),
    [
        ((36, 36, 3), 512),
        ((36, 36, 9), 512),
        ((35, 36, 3), 256),
        ((1, 8, 8), 256),
        ((36, 36), None),
        ((7, 7, 3), None),
        ((8, 8, 12), None),
    ],
)
def test_large_images_get_the_nature_network_and_small_ones_the_resnet(box, features):
    found = graph({"obs": Box(box, "uint8", (0.0,), (255.0,))})
    assert [branch.features for branch in found.actor.branches] == ([features] if features else [])


def test_impalas_resnet_has_three_sections_of_two_blocks():
    (branch,) = graph({"obs": Box((72, 96, 3), "uint8", (0.0,), (255.0,))}, model="resnet").actor.branches
    # Sections of 16, 32 and 32 filters: a convolution and two blocks of two; 72 x 96 becomes 9 x 12.
    sections = [(3, 16), (16, 32), (32, 32)]
    convolutions = sum(9 * a * b + b + 4 * (9 * b * b + b) for a, b in sections)
    network = Network("n", branch.layers)
    assert network.num_parameters == convolutions + 32 * 9 * 12 * 256 + 256


def test_images_and_vectors_are_joined_in_one_network():
    found = graph({"obs.eye": IMAGE, "obs.hand": Box((16, 16, 3), "uint8", (0.0,), (255.0,)), "obs.x": VECTOR})
    branches = [(branch.fields, branch.features) for branch in found.actor.branches]
    assert branches == [(("obs.eye",), 512), (("obs.hand",), 256), (("obs.x",), 3)]
    assert found.actor.layers[0] == Linear(512 + 256 + 3, 64, 2.0**0.5)
    assert (found.critic, found.features) == (None, 3)
    assert graph({"obs.eye": IMAGE, "obs.x": VECTOR}, normalize_obs=True).published()[1].shape == (3,)


@pytest.mark.parametrize(
    ("model", "features", "carry"),
    [
        ("lstm", 512, ["h", "c"]),
        ("nature_cnn+gru", 512, ["h"]),
        ("resnet+lstm", 256, ["h", "c"]),
        ("mlp+gru", 32, ["h"]),
    ],
)
def test_a_memory_stands_behind_an_encoder(model, features, carry):
    spaces = Spaces((("obs", IMAGE),), Discrete(3))
    flags = {"normalize_obs": False, "normalize_value": False}
    found = actor_critic(spaces, Body(model, (64, 32), "tanh", 16), 0.0, **flags)
    cell, last = found.actor.layers[-2:]
    # Images are seen by one network for both; else actor and critic remember apart.
    shared = model != "mlp+gru"
    assert (found.critic is None) == shared
    assert (cell.inputs, cell.size, last) == (features, 16, Linear(16, 3 + shared, 0.01))
    assert [spec.name.rpartition(".")[2] for spec in found.carry] == carry * (2 - shared)


def test_a_memory_is_shared_if_it_is_asked_for():
    spaces, flags = Spaces((("obs", VECTOR),), Discrete(3)), {"normalize_obs": False, "normalize_value": False}
    found = actor_critic(spaces, Body("lstm", (8,), "tanh", 16, share_memory=True), 0.0, **flags)
    assert (found.critic, found.actor.layers[-1]) == (None, Linear(16, 4, 0.01))


def test_dropout_is_for_what_learns_on_policy():
    body = Body("auto", (8, 4), "tanh", dropout=0.1)
    found = actor_critic(Spaces((("obs", VECTOR),), BOUNDED), body, 0.0, normalize_obs=False, normalize_value=False)
    named = [(spec.name, spec.shape) for spec in found.dropout]
    # Only the critic's: an actor that drops is another policy than the one that acted.
    assert named == [("dropout.critic.0", (8,)), ("dropout.critic.1", (4,))]
    memory = actor_critic(
        Spaces((("obs", VECTOR),), BOUNDED),
        Body("lstm", (8,), "tanh", 16, dropout=0.1),
        0.0,
        normalize_obs=False,
        normalize_value=False,
    )
    assert [spec.name for spec in memory.dropout] == ["dropout.critic.0"]
    with pytest.raises(ConfigError, match="dropout is for ppo, a2c, a3c, impala or appo; sac learns without it"):
        squashed_actor(Spaces((("obs", VECTOR),), BOUNDED), body, "sac")


def test_dropout_in_layers_that_actor_and_critic_share_is_refused():
    body = Body("lstm", (8,), "tanh", 16, share_memory=True, dropout=0.1)
    with pytest.raises(ConfigError, match="--dropout is for a critic of its own, and here actor and critic share"):
        actor_critic(Spaces((("obs", VECTOR),), BOUNDED), body, 0.0, normalize_obs=False, normalize_value=False)


def test_layer_norm_stands_before_each_activation():
    spaces = Spaces((("obs", VECTOR),), Discrete(3))
    found = actor_critic(
        spaces, Body("auto", (8, 4), "tanh", layer_norm=True), 0.0, normalize_obs=False, normalize_value=False
    )
    kinds = [type(layer).__name__ for layer in found.actor.layers]
    assert kinds == ["Linear", "LayerNorm", "Activation", "Linear", "LayerNorm", "Activation", "Linear"]


def test_an_image_may_be_flattened_on_request():
    assert graph({"obs": IMAGE, "obs.x": VECTOR}, model="mlp").features == 84 * 84 * 4 + 3


def test_a_tiny_image_is_flattened_unless_a_resnet_is_asked_for():
    tiny = {"obs": Box((7, 7, 3), "uint8", (0.0,), (10.0,))}
    assert [graph(tiny, model=model).encoding[0].kind for model in ("auto", "resnet")] == ["flat", "image"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"obs": {"obs": VECTOR}, "model": "nature_cnn"},
            "nature_cnn needs a uint8 image of at least 36 x 36, not obs",
        ),
        ({"obs": {"obs": VECTOR}, "model": "resnet"}, "resnet needs a uint8 image of at least 3 x 3, not obs"),
        (
            {"obs": {"obs": Box((9, 9, 3), "uint8", (0.0,), (255.0,))}, "model": "nature_cnn+lstm"},
            "nature_cnn needs images of at least 36 x 36, and obs has 9 x 9: pass --model resnet",
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


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("restnet", "there is no model 'restnet'; did you mean resnet"),
        ("resnet+", "a name is missing behind the plus; write an encoder and a memory, as resnet\\+lstm"),
        ("+lstm", "a name is missing before the plus; write an encoder and a memory, as resnet\\+lstm"),
        ("lstm+resnet", "write one encoder and one memory, as resnet\\+lstm"),
        ("mlp+lstm+gru", "write one encoder and one memory"),
    ],
)
def test_a_model_that_is_not_known_is_named(model, text):
    with pytest.raises(ConfigError, match=text) as caught:
        graph({"obs": VECTOR}, model=model)
    assert "\n" not in str(caught.value)


OWN = "tests.torch_networks.own_modules:Plain"
DECIDING = '{"trunk": {"hidden_sizes": [8]}, "memory": {"kind": "gru", "size": 4}, "shared": true}'


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            PPOConfig(share_memory=True),
            "--share_memory has no effect: the policy has no memory; give --model lstm or gru",
        ),
        (PPOConfig(model="mlp", memory_size=32), "--memory_size has no effect: the policy has no memory"),
        (A2CConfig(memory_size=32), "--memory_size has no effect"),
        (
            PPOConfig(model=OWN, hidden_sizes=(32,)),
            f"--hidden_sizes has no effect: --model {OWN} makes its layers itself",
        ),
        (
            PPOConfig(model=DECIDING, hidden_sizes=(32,)),
            "--hidden_sizes has no effect: trunk.hidden_sizes of the table decides it",
        ),
        (
            PPOConfig(model=DECIDING, memory_size=32),
            "--memory_size has no effect: memory.size of the table decides it",
        ),
        (PPOConfig(model=DECIDING, share_memory=True), "--share_memory has no effect: with this table actions and"),
        (PPOConfig(model='{"trunk": {}}', memory_size=32), "--memory_size has no effect: the policy has no memory"),
        (PPOConfig(model=OWN, share_memory=True), f"--share_memory has no effect: --model {OWN}"),
        (PPOConfig(model=OWN, layer_norm=True), "--layer_norm has no effect"),
        (
            PPOConfig(hidden_sizes=(), dropout=0.1),
            "--dropout has no effect: no layer drops: the critic has no hidden MLP layer",
        ),
    ],
)
def test_a_setting_that_nothing_reads_is_refused(config, text):
    spaces = Spaces((("obs", Box((3,), "float32", (-1.0,), (1.0,))),), Discrete(2))
    with pytest.raises(ConfigError, match=re.escape(text)) as caught:
        policy_graph(spaces, config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("setting", [{"hidden_sizes": (32,)}, {"activation": "relu"}, {"dropout": 0.1}])
def test_layers_that_an_image_alone_does_not_have_are_refused(setting):
    image = Box((64, 64, 3), "uint8", (0.0,), (255.0,))
    with pytest.raises(ConfigError, match=f"--{next(iter(setting))} has no effect"):
        policy_graph(Spaces((("obs", image),), Discrete(2)), PPOConfig(**setting))
    beside = Spaces((("obs.eye", image), ("obs.at", VECTOR)), Discrete(2))
    if "dropout" not in setting:
        assert policy_graph(beside, PPOConfig(**setting)).actor.layers


def test_a_setting_that_something_reads_is_not_refused():
    spaces = Spaces((("obs", Box((3,), "float32", (-1.0,), (1.0,))),), Discrete(2))
    assert policy_graph(spaces, PPOConfig(model="gru", memory_size=5, share_memory=True)).carry
    settings = {"memory_size": 5, "share_memory": True, "hidden_sizes": (7,), "layer_norm": True}
    graph = policy_graph(spaces, PPOConfig(model='{"memory": {"kind": "gru"}}', **settings))
    assert (graph.critic, [part.shape for part in graph.carry]) == (None, [(5,)])
    assert policy_graph(spaces, PPOConfig(model=DECIDING, layer_norm=True, activation="relu")).carry
    with pytest.raises(ConfigError, match="--init has no effect"):
        q_policy_graph(spaces, DQNConfig(model="tests.torch_networks.own_modules:Values", init="torch"), "dqn")


@pytest.mark.parametrize(
    ("settings", "noted"),
    [
        ({"model": OWN}, True),
        ({"model": OWN, "inference": "onnx"}, True),
        ({"model": OWN, "inference": "torch"}, False),
        ({"model": OWN, "device": "cuda"}, False),
        ({"model": "mlp"}, False),
        ({"algo": "dqn", "model": OWN}, True),
    ],
)
def test_an_export_is_announced_where_one_is_made(settings, noted):
    note = export_note(from_mapping({"env": "CartPole-v1", **settings}))
    assert note == (
        f"exporting {OWN} to ONNX, so that processes that act need no torch; this takes some seconds" * noted
    )


@pytest.mark.parametrize("build", [squashed_actor, deterministic_actor])
def test_what_learns_from_single_rows_has_no_memory(build):
    spaces = Spaces((("obs", VECTOR),), BOUNDED)
    with pytest.raises(
        ConfigError,
        match="--model lstm has a memory, and td3 learns from single rows: for it use ppo, a2c, a3c, impala, appo, sac",
    ):
        build(spaces, Body("lstm", (8,), "tanh", 8), "td3")


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
        (
            squashed_actor,
            Discrete(3),
            "sac needs a Box of real-numbered actions; the environment has Discrete actions: use ppo or dqn",
        ),
        (
            deterministic_actor,
            UNBOUNDED,
            "sac needs a Box with bounds; the environment's Box of actions is not bounded: use ppo",
        ),
        (squashed_actor, Box((2,), "int64", (0.0,), (9.0,)), r"a Box of int64 \[2\]"),
    ],
)
def test_an_action_space_that_an_actor_does_not_serve_names_what_does(monkeypatch, build, action, text):
    several = {name: f"penstock.algorithms.{name}" for name in ("ppo", "dqn", "td3")}
    monkeypatch.setattr("penstock.algorithm_lookup.ALGORITHMS", Registry("algorithm", several))
    with pytest.raises(SpaceError, match=text):
        build(Spaces((("obs", VECTOR),), action), BODY, "sac")
    with pytest.raises(
        SpaceError,
        match="dqn needs Discrete actions; the environment has a Box of real-numbered actions: use ppo or td3",
    ):
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
