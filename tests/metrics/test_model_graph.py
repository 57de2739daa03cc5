"""The graph of a policy: its nodes, what each of them takes, and the shapes that come out."""

import json
import math
import tomllib

import pytest

from penstock.metrics.model_graph import GraphNode, model_graph
from penstock.policies import Categorical, Encoding, Network, OwnModule, PolicyGraph
from penstock.policies.architecture import Body, actor_critic, q_network, squashed_actor
from penstock.types import Box, Discrete, Spaces

VECTOR = Box((3,), "float32", (-1.0,), (1.0,))
EYE = Box((84, 84, 4), "uint8", (0.0,), (255.0,))
MOVES = Box((2,), "float32", (-1.0,), (1.0,))

SET = """
[fields.others]
encoder = "transformer"
width = 8
heads = 2
layers = 1
mask = "there"
"""


def drawn(obs, action, model="auto", mask=None, **changed) -> dict[str, GraphNode]:
    """The nodes of an actor-critic by their names."""
    spaces = Spaces(tuple(sorted(obs.items())), action, mask)
    flags = {"normalize_obs": False, "normalize_value": False} | changed
    graph = actor_critic(spaces, Body(model, (64, 32), "tanh", memory_size=16), -0.5, **flags)
    return by_name(model_graph(graph, spaces))


def by_name(nodes) -> dict[str, GraphNode]:
    """The nodes by their names, each of which is there once, behind those that it takes."""
    found = {}
    for node in nodes:
        assert node.name not in found
        assert all(name in found for name in node.inputs)
        found[node.name] = node
    return found


def test_an_actor_critic_is_two_rows_of_layers_from_the_observation_to_action_and_value():
    nodes = drawn({"obs": VECTOR}, MOVES, normalize_obs=True, normalize_value=True)
    normalized = ("normalized", "by the running mean and deviation")
    assert nodes["observation/obs"] == ("observation/obs", "Observation", (), (3,), (("dtype", "float32"),))
    assert nodes["encoding/obs"] == ("encoding/obs", "flat", ("observation/obs",), (3,), (normalized,))
    gain = ("gain", str(2.0**0.5))
    first = (("inputs", "3"), ("outputs", "64"), gain)
    for network, outputs, last in (("actor", 2, "0.01"), ("critic", 1, "1.0")):
        rows = [node for name, node in nodes.items() if name.startswith(f"{network}/")]
        assert rows == [
            (f"{network}/0.Linear", "Linear", ("encoding/obs",), (64,), first),
            (f"{network}/1.tanh", "tanh", (f"{network}/0.Linear",), (64,), (("name", "tanh"),)),
            (
                f"{network}/2.Linear",
                "Linear",
                (f"{network}/1.tanh",),
                (32,),
                (("inputs", "64"), ("outputs", "32"), gain),
            ),
            (f"{network}/3.tanh", "tanh", (f"{network}/2.Linear",), (32,), (("name", "tanh"),)),
            (
                f"{network}/4.Linear",
                "Linear",
                (f"{network}/3.tanh",),
                (outputs,),
                (("inputs", "32"), ("outputs", str(outputs)), ("gain", last)),
            ),
        ]
    facts = (("size", "2"), ("log_std", "[2]"))
    assert nodes["action"] == ("action", "Gaussian", ("actor/4.Linear",), (2,), facts)
    assert nodes["value"] == ("value", "Value", ("critic/4.Linear",), (), (normalized,))


def test_convolutions_have_the_shapes_of_the_paper():
    # (84 - 8) / 4 + 1 = 20, (20 - 4) / 2 + 1 = 9, (9 - 3) / 1 + 1 = 7, 64 * 7 * 7 = 3136.
    nodes = drawn({"obs": EYE}, Discrete(3))
    shapes = {name.removeprefix("actor/"): node.shape for name, node in nodes.items() if name.startswith("actor/")}
    assert nodes["encoding/obs"].shape == (4, 84, 84)
    assert shapes == {
        "obs/0.Conv2d": (32, 20, 20),
        "obs/1.relu": (32, 20, 20),
        "obs/2.Conv2d": (64, 9, 9),
        "obs/3.relu": (64, 9, 9),
        "obs/4.Conv2d": (64, 7, 7),
        "obs/5.relu": (64, 7, 7),
        "obs/6.Flatten": (3136,),
        "obs/7.Linear": (512,),
        "obs/8.relu": (512,),
        # One layer gives the logits of three choices, and the value.
        "0.Linear": (4,),
    }
    assert nodes["action"].inputs == nodes["value"].inputs == ("actor/0.Linear",)


def test_a_residual_block_is_a_box_whose_input_is_added():
    nodes = drawn({"obs": EYE}, Discrete(3), model="resnet")
    # Three max pools halve 84 pixels: 42, 21, 11.
    assert nodes["actor/obs/1.MaxPool"].shape == (16, 42, 42)
    inside = nodes["actor/obs/2.Residual/0.relu"], nodes["actor/obs/2.Residual/3.Conv2d"]
    added = nodes["actor/obs/2.Residual/sum"]
    assert inside[0].inputs == ("actor/obs/1.MaxPool",)
    assert added.inputs == ("actor/obs/1.MaxPool", inside[1].name)
    assert added.shape == inside[1].shape == (16, 42, 42)
    assert nodes["actor/obs/3.Residual/0.relu"].inputs == (added.name,)
    assert nodes["actor/obs/13.Flatten"].shape == (32 * 11 * 11,)


def test_the_entities_of_a_set_know_their_mask_and_branches_are_joined():
    obs = {"obs.others": Box((6, 3), "float32", (-1.0,), (1.0,)), "obs.speed": VECTOR}
    obs["obs.there"] = Box((6,), "float32", (0.0,), (1.0,))
    nodes = drawn(obs, Discrete(3), model=json.dumps(tomllib.loads(SET)))
    branch = "actor/obs.others"
    assert nodes[f"{branch}/0.Linear"].shape == (6, 8)
    assert nodes[f"{branch}/1.Residual/1.Attention"].inputs == (
        f"{branch}/1.Residual/0.LayerNorm",
        "encoding/obs.there",
    )
    pooled = nodes[f"{branch}/4.MeanPool"]
    assert (pooled.inputs, pooled.shape) == ((f"{branch}/3.LayerNorm", "encoding/obs.there"), (8,))
    joined = nodes["actor/joined"]
    assert (joined.inputs, joined.shape) == ((pooled.name, "encoding/obs.speed"), (8 + 3,))
    assert nodes["actor/0.Linear"].inputs == (joined.name,)


def test_an_action_mask_and_fields_whose_names_become_alike():
    obs = {"obs.a b": VECTOR, "obs.a:b": Discrete(5), "obs.action_mask": Box((3,), "uint8", (0.0,), (1.0,))}
    nodes = drawn(obs, Discrete(3), mask="obs.action_mask")
    assert nodes["action"].inputs == ("actor/4.Linear", "observation/obs.action_mask")
    assert nodes["encoding/obs.a_b"].inputs == ("observation/obs.a_b",)
    assert nodes["encoding/obs.a_b_"].inputs == ("observation/obs.a_b_",)
    assert [nodes[name].shape for name in ("encoding/obs.a_b", "encoding/obs.a_b_")] == [(3,), (5,)]
    assert nodes["actor/joined"].shape == (8,)
    assert "encoding/obs.action_mask" not in nodes


def test_a_critic_sees_fields_that_the_actor_does_not_see():
    nodes = drawn({"obs.near": VECTOR, "obs.far": MOVES}, Discrete(3), critic_obs=("far",))
    assert nodes["actor/0.Linear"].inputs == ("encoding/obs.near",)
    assert nodes["critic/joined"].inputs == ("encoding/obs.far", "encoding/obs.near")


@pytest.mark.parametrize("memory", ["lstm", "gru"])
def test_a_memory_is_a_layer(memory):
    nodes = drawn({"obs": VECTOR}, Discrete(3), model=memory)
    assert nodes[f"actor/4.{memory.upper()}"].shape == (16,)
    assert nodes["actor/5.Linear"].shape == (3,)


def test_action_values_and_squashed_actors_have_no_value():
    spaces = Spaces((("obs", VECTOR),), Discrete(3))
    body = Body("auto", (64,), "relu")
    network = q_network(spaces, body, "dqn", dueling=True, atoms=5, low=-1.0, high=1.0)
    nodes = by_name(model_graph(network, spaces))
    # The value and three advantages, of five atoms each; then the values of three actions.
    assert [nodes[name].shape for name in ("actor/2.Linear", "actor/3.Dueling", "action")] == [(20,), (15,), ()]
    assert "value" not in nodes
    moves = Spaces((("obs", VECTOR),), MOVES)
    nodes = by_name(model_graph(squashed_actor(moves, body, "sac"), moves))
    assert (nodes["action"].kind, nodes["action"].shape) == ("SquashedGaussian", (2,))
    assert nodes["actor/2.Linear"].shape == (4,)


def test_a_module_of_the_users_own_is_one_node():
    spaces = Spaces((("obs.far", VECTOR), ("obs.near", MOVES)), Discrete(3))
    own = OwnModule("nets:make", 3, True, ("obs.far", "obs.near"), (("a.weight", (5, 4)),), (), spaces, "")
    raw = tuple(Encoding(name, "raw", box.size, shape=box.shape, dtype="float32") for name, box in spaces.obs)
    graph = PolicyGraph(raw, Network("actor", (own,)), None, Categorical(3))
    node = by_name(model_graph(graph, spaces))["actor/0.OwnModule"]
    assert (node.inputs, node.shape) == (("encoding/obs.far", "encoding/obs.near"), (4,))
    assert dict(node.facts)["reference"] == "nets:make"
    assert dict(node.facts)["parameters"] == "(('a.weight', (5, 4)),)"


@pytest.mark.parametrize("model", ["mlp", "nature_cnn", "resnet", "lstm", "resnet+gru", json.dumps(tomllib.loads(SET))])
def test_each_linear_layer_takes_what_the_layer_before_gives(model):
    obs = {"obs.eye": EYE, "obs.place": Discrete(4), "obs.speed": VECTOR}
    obs["obs.others"], obs["obs.there"] = Box((6, 3), "float32", (-1.0,), (1.0,)), Box((6,), "float32", (0.0,), (1.0,))
    nodes = drawn(obs, Discrete(3), model=model)
    linear = [node for node in nodes.values() if node.kind == "Linear"]
    assert linear
    for node in linear:
        (name,) = node.inputs
        assert dict(node.facts)["inputs"] == str(nodes[name].shape[-1])
    for node in nodes.values():
        if node.kind == "Flatten":
            assert node.shape == (math.prod(nodes[node.inputs[0]].shape),)
