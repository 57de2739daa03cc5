"""All backends compute the same: each is compared with float64 NumPy on the same graphs."""

import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
import torch

from penstock.algorithms.ppo.spec import PPOConfig, policy_graph
from penstock.envs.actions import batched
from penstock.errors import DeviceError
from penstock.inference import native, onnx
from penstock.inference import torch as torch_backend
from penstock.kernels.actions import environment_array, to_environment
from penstock.policies import (
    Branch,
    Categorical,
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
from penstock.policies.batch_sizes import BatchSizes
from penstock.policies.native import supports
from penstock.policies.space_heads import head_of
from penstock.policies.stacks import hidden, transformer
from penstock.types import Box, Composite, Discrete, MultiDiscrete, Spaces
from tests.inference import reference
from tests.inference.reference import acted

EVERY = reference.GRAPHS | reference.COMPOSED | reference.IMAGES | reference.BRANCHED


def agree(out, expected, tolerance=1e-5):
    for name, values in out.items():
        np.testing.assert_allclose(values.reshape(expected[name].shape), expected[name], rtol=tolerance, atol=tolerance)


def agrees_with_the_reference(build, graph, n):
    generator = np.random.default_rng(n)
    published = reference.record(graph, generator)
    obs, noise = reference.observations(graph, generator, n), reference.noise_of(graph, generator, n)
    explore = generator.uniform(0.0, 1.0, n).astype(np.float32)
    backend = build(graph)
    backend.load(published)
    agree(acted(backend, graph, obs, noise, explore), reference.act(graph, published, obs, noise, explore))


@pytest.mark.parametrize("n", [1, 2, 7, 70])
@pytest.mark.parametrize("name", reference.GRAPHS)
def test_native_agrees_with_the_reference(name, n):
    agrees_with_the_reference(native.build, reference.GRAPHS[name], n)


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("name", EVERY)
def test_onnx_agrees_with_the_reference(name, n):
    agrees_with_the_reference(onnx.build, EVERY[name], n)


def bits(choices: int) -> MultiDiscrete:
    return MultiDiscrete((2,) * choices, (choices,), (0,) * choices, "int8")


NINE = Box((9,), "float32", (-2.0,), (2.0,))
PARTS = Composite((((0,), Discrete(3)), ((1,), NINE)))
NAMED = Composite(((("bits",), bits(9)), (("kind",), Discrete(3, 2)), (("num",), NINE)))
VECTOR = (Encoding("obs", "flat", 6),)
SET = (Encoding("obs", "set", 15, shape=(5, 3)),)


def of_set(width: int) -> PolicyGraph:
    branch = Branch(("obs",), transformer(3, width, 2, 1).layers, width)
    actor = Network("actor", (Linear(width, 5, 1.0),), (), (branch,))
    return PolicyGraph(SET, actor, None, Categorical(4))


def normed(width: int) -> PolicyGraph:
    layers = hidden(6, (width, width), "tanh", layer_norm=True)
    return PolicyGraph(VECTOR, Network("actor", (*layers.layers, Linear(width, 5, 1.0))), None, Categorical(4))


ROW_BY_ROW = {
    name: EVERY[name]
    for name in (
        "gaussian",
        "categorical",
        "masked",
        "squashed",
        "deterministic",
        "values, dueling, atoms",
        "composed, choices of one size",
        "composed, mixed, shared trunk",
        "image, channels last",
        "set with a mask",
    )
} | {
    "nine bits": reference.actor_critic(VECTOR, head_of(bits(9))),
    "a number and a box": reference.actor_critic(VECTOR, head_of(PARTS)),
    "several parts, masked": reference.actor_critic(VECTOR, head_of(NAMED), mask="action_mask"),
    "a box of nine": reference.actor_critic(VECTOR, head_of(NINE)),
    "an image and a box": reference.nature(head_of(NINE)),
    "nine values, dueling": reference.without_value(VECTOR, EpsilonGreedy(9, 1, -1.0, 1.0), dueling=Dueling(9, 1)),
    "layer norm": normed(7),
    "a set of width 6": of_set(6),
    "a set of width 8": of_set(8),
}


@pytest.mark.parametrize("name", ROW_BY_ROW)
def test_onnx_rows_do_not_depend_on_their_place_nor_on_how_many_are_in_the_call(name):
    graph, generator = ROW_BY_ROW[name], np.random.default_rng(3)
    backend = onnx.build(graph)
    backend.load(reference.record(graph, generator))
    obs, noise = reference.observations(graph, generator, 20), reference.noise_of(graph, generator, 20)
    whole = acted(backend, graph, obs, noise, np.ones(20, np.float32))
    for n in (*range(1, 10), 16, 17):
        for first in range(20 - n + 1):
            rows = slice(first, first + n)
            given = {name: values[rows] for name, values in obs.items()}
            for output, values in acted(backend, graph, given, noise[rows], np.ones(n, np.float32)).items():
                np.testing.assert_array_equal(values, whole[output][rows], f"{output} of rows {first} to {first + n}")


def test_onnx_loads_again():
    graph, generator = reference.GRAPHS["gaussian"], np.random.default_rng(0)
    obs, noise = reference.observations(graph, generator, 3), reference.noise_of(graph, generator, 3)
    backend = onnx.build(graph)
    for _ in range(2):
        published = reference.record(graph, generator)
        backend.load(published)
        expected = reference.act(graph, published, obs, noise, np.ones(3))
        agree(acted(backend, graph, obs, noise, np.ones(3, np.float32)), expected)


@pytest.mark.parametrize("make", [native.build, onnx.build])
def test_loading_copies(make):
    graph, generator = reference.GRAPHS["gaussian"], np.random.default_rng(0)
    published = reference.record(graph, generator)
    obs, noise = reference.observations(graph, generator, 3), reference.noise_of(graph, generator, 3)
    backend = make(graph)
    backend.load(published)
    before = acted(backend, graph, obs, noise, np.ones(3, np.float32))
    for values in published.values():
        values[...] = 0.0
    after = acted(backend, graph, obs, noise, np.ones(3, np.float32))
    np.testing.assert_array_equal(before["action"], after["action"])


BOXES = {
    "float32": Box((2,), "float32", (-2.0,), (2.0,)),
    "float64, a bound each": Box((2,), "float64", (-1.0, 0.0), (3.0, 10.0)),
    "integers": Box((2,), "int64", (-3.0,), (4.0,)),
    "unbounded": Box((1, 2), "float32", (-np.inf,), (np.inf,)),
    "some bounds": Box((2,), "float32", (0.0, -np.inf), (np.inf, -0.1)),
}


@pytest.mark.parametrize("name", BOXES)
def test_the_exported_policy_gives_the_greedy_action_in_environment_units(name):
    space, generator = BOXES[name], np.random.default_rng(1)
    graph = reference.actor_critic(reference.DICT, Gaussian(2), normalize_obs=True, normalize_value=True)
    spaces = Spaces(
        (
            ("obs.a", Box((2, 2), "float64", (-np.inf,), (np.inf,))),
            ("obs.b", Discrete(3, -1)),
            ("obs.c", Box((1,), "uint8", (0.0,), (255.0,))),
        ),
        space,
    )
    published = reference.record(graph, generator)
    obs = {
        "obs.a": generator.normal(size=(6, 2, 2)),
        "obs.b": generator.integers(-1, 2, 6),
        "obs.c": generator.integers(0, 5, (6, 1)).astype(np.uint8),
    }
    session = onnxruntime.InferenceSession(onnx.export(graph, spaces, published))
    action, value = session.run(["action", "value"], obs)
    mean, expected_value = reference.head_and_value(graph, published, obs)
    expected = to_environment(mean.astype(np.float32), space, environment_array(space, 6))
    assert action.dtype == np.dtype(space.dtype)
    assert action.shape == (6, *space.shape)
    np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(value, expected_value, rtol=1e-5, atol=1e-5)


def test_the_exported_policy_counts_discrete_actions_from_start():
    graph, generator = reference.nature(Categorical(4)), np.random.default_rng(1)
    spaces = Spaces((("obs", Box((36, 36, 2), "uint8", (0.0,), (255.0,))),), Discrete(4, 10))
    published = reference.record(graph, generator)
    obs = reference.observations(graph, generator, 3)
    action, _ = onnxruntime.InferenceSession(onnx.export(graph, spaces, published)).run(["action", "value"], obs)
    logits, _ = reference.head_and_value(graph, published, obs)
    np.testing.assert_array_equal(action, 10 + logits.argmax(axis=1))


def test_the_exported_policy_chooses_among_the_possible_actions_by_their_values():
    graph, generator = reference.GRAPHS["masked values, dueling, atoms"], np.random.default_rng(1)
    fields = {
        "obs.a": Box((2, 2), "float32", (-np.inf,), (np.inf,)),
        "obs.action_mask": Box((6,), "uint8", (0.0,), (1.0,)),
        "obs.b": Discrete(3, -1),
        "obs.c": Box((1,), "float32", (-np.inf,), (np.inf,)),
    }
    published = reference.record(graph, generator)
    obs = reference.observations(graph, generator, 40)
    model = onnx.export(graph, Spaces(tuple(fields.items()), Discrete(6, 10), "obs.action_mask"), published)
    (action,) = onnxruntime.InferenceSession(model).run(["action"], obs)
    greedy = reference.act(graph, published, obs, np.zeros((40, 2), np.float32), np.zeros(40, np.float32))["action"]
    np.testing.assert_array_equal(action, 10 + greedy)
    assert obs["obs.action_mask"][np.arange(40), greedy].all()


SHOT = Composite(
    (
        (("which",), Discrete(3, 5)),
        (("how", 0), Box((2,), "float32", (-2.0, 0.0), (2.0, 10.0))),
        (("how", 1), MultiDiscrete((4, 2), (1, 0), (2, 1), "int16")),
        (("free",), Box((), "float64", (-np.inf,), (np.inf,))),
    )
)


def test_the_exported_policy_has_an_output_for_each_leaf_and_masks_its_choices():
    head = head_of(SHOT)
    graph, generator = reference.actor_critic(reference.FLAT, head, mask="action_mask"), np.random.default_rng(2)
    mask = Box((9,), "uint8", (0.0,), (1.0,))
    spaces = Spaces((("action_mask", mask), ("obs", Box((3,), "float32", (-1.0,), (1.0,)))), SHOT, "action_mask")
    published = reference.record(graph, generator)
    obs = reference.observations(graph, generator, 40)
    session = onnxruntime.InferenceSession(onnx.export(graph, spaces, published))
    names = ["action.which", "action.how.0", "action.how.1", "action.free"]
    assert [output.name for output in session.get_outputs()] == ["value", *names, "log_prob"]
    found = session.run(names, obs)
    nothing = np.zeros((40, *head.noise.shape), np.float32)
    greedy = reference.act(graph, published, obs, nothing, np.zeros(40, np.float32))["action"]
    expected = batched(SHOT, to_environment(greedy, SHOT, environment_array(SHOT, 40)))
    for one, other in zip(found, (expected["which"], *expected["how"], expected["free"]), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert obs["action_mask"][np.arange(40), found[0] - 5].all()


def test_the_exported_policy_gives_multi_discrete_actions_in_their_shape():
    space = MultiDiscrete((4, 2, 3), (1, 0, -3), (3, 1), "int16")
    graph, generator = reference.actor_critic(reference.FLAT, head_of(space)), np.random.default_rng(2)
    spaces = Spaces((("obs", Box((3,), "float32", (-1.0,), (1.0,))),), space)
    published = reference.record(graph, generator)
    obs = reference.observations(graph, generator, 7)
    (action,) = onnxruntime.InferenceSession(onnx.export(graph, spaces, published)).run(["action"], obs)
    logits, _ = reference.head_and_value(graph, published, obs)
    best = np.stack([logits[:, :4].argmax(1) + 1, logits[:, 4:6].argmax(1), logits[:, 6:].argmax(1) - 3], 1)
    assert action.dtype == np.int16
    np.testing.assert_array_equal(action, best[..., None])


@pytest.mark.parametrize("name", [name for name, space in BOXES.items() if space.bounded])
@pytest.mark.parametrize("kind", [SquashedGaussian, Deterministic])
def test_an_exported_actor_gives_its_greedy_action_alone(kind, name):
    graph, generator = reference.without_value(reference.FLAT, kind(2)), np.random.default_rng(1)
    published = reference.record(graph, generator)
    obs = reference.observations(graph, generator, 6)
    spaces = Spaces((("obs", Box((3,), "float32", (-1.0,), (1.0,))),), BOXES[name])
    session = onnxruntime.InferenceSession(onnx.export(graph, spaces, published))
    assert [output.name for output in session.get_outputs()] == ["action"]
    outputs, _ = reference.head_and_value(graph, published, obs)
    unit = np.tanh(outputs[:, :2]).astype(np.float32)
    expected = to_environment(unit, BOXES[name], environment_array(BOXES[name], 6))
    np.testing.assert_allclose(session.run(["action"], obs)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["values, dueling, atoms", "image, dueling atoms"])
def test_exported_action_values_give_the_best_action(name):
    graph, generator = EVERY[name], np.random.default_rng(1)
    image = Box((36, 36, 2), "uint8", (0.0,), (255.0,))
    space = image if graph.encoding[0].kind == "image" else Box((3,), "float32", (-1.0,), (1.0,))
    spaces = Spaces((("obs", space),), Discrete(graph.head.n, 10))
    published = reference.record(graph, generator)
    obs = reference.observations(graph, generator, 6)
    (action,) = onnxruntime.InferenceSession(onnx.export(graph, spaces, published)).run(["action"], obs)
    outputs, _ = reference.head_and_value(graph, published, obs)
    np.testing.assert_array_equal(action, 10 + reference.action_values(graph.head, outputs).argmax(axis=1))


@pytest.mark.parametrize("name", ["masked", "masked values", "masked values, dueling, atoms", "masked, choices"])
def test_where_a_mask_allows_nothing_every_backend_takes_the_first_choice(name):
    graph, generator = EVERY[name], np.random.default_rng(1)
    published, n = reference.record(graph, generator), 40
    obs = reference.observations(graph, generator, n)
    obs[graph.mask][...] = 0
    backends = [onnx.build(graph), torch_backend.build("tests.inference.reference:build_policy", graph, None)]
    if supports(graph):
        backends.append(native.build(graph))
    noise = reference.noise_of(graph, generator, n)
    for backend in backends:
        backend.load(published)
        assert not acted(backend, graph, obs, noise, np.zeros(n, np.float32))["action"].any()


def test_native_says_what_it_does_not_run():
    assert all(map(supports, reference.GRAPHS.values()))
    assert not any(map(supports, (reference.IMAGES | reference.COMPOSED | reference.BRANCHED).values()))
    with pytest.raises(ValueError, match="native"):
        native.build(reference.IMAGES["image, channels last"])


def build_plain(spaces, config):
    """An algorithm of which only ``act`` is there: the value of one is the sum of the observation times the scale."""
    from penstock.algorithm import Algorithm

    def act(published, inputs):
        value = published["scale"] * inputs["obs"].sum(1)
        return {
            "action": value[:, None] + inputs["noise"] * inputs["explore"][:, None],
            "value": value,
        }

    return Algorithm(act, dict, dict, ())


def test_torch_runs_the_act_that_it_loads_by_name():
    spaces = Spaces((("obs", Box((2,), "float32", (-1.0,), (1.0,))),), BOXES["float32"])
    backend = torch_backend.build(f"{__name__}:build_plain", spaces, None)
    scale = np.array([2.0], np.float32)
    backend.load({"scale": scale})
    scale[...] = 0.0
    out = {"action": np.zeros((2, 1), np.float32), "value": np.zeros(2, np.float32)}
    # 2 (1 + 2) = 6 and 2 (3 + 4) = 14; noise 1 and 10 with explore 1 and 0.
    obs, noise = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), np.array([[1.0], [10.0]], np.float32)
    backend.act({"obs": obs, "noise": noise, "explore": np.array([1.0, 0.0], np.float32)}, out)
    np.testing.assert_array_equal(out["value"], [6.0, 14.0])
    np.testing.assert_array_equal(out["action"], [[7.0], [14.0]])


@pytest.mark.parametrize(
    ("sizes", "made"), [("powers", {1, 4, 8}), ("none", {1, 3, 4, 7}), ((6, 2), {2, 6, 12})], ids=str
)
def test_batches_of_cuda_graphs_have_few_sizes_and_padding_changes_no_bit(monkeypatch, sizes, made):
    """Without a GPU: what would be captured is called. ``tests/gpu/test_policies.py`` has one."""
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda shape, *, dtype, pin_memory: empty(shape, dtype=dtype))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda values: values)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(synchronize=lambda: None))
    monkeypatch.setattr(torch_backend, "captured", lambda function, inputs: partial(function, *inputs))
    seen, generator = set(), np.random.default_rng(0)

    def act(published, inputs):
        seen.add(len(inputs["obs"]))
        return {"value": published["scale"] * inputs["obs"].sum(1)}

    policy = torch_backend.CapturedPolicy(act, torch.device("cpu"), BatchSizes(sizes))
    policy.load({"scale": np.array([2.0], np.float32)})
    # 3 comes where 4 has left its rows.
    for count in (4, 1, 3, 7, 4):
        obs = generator.integers(-9, 9, (count, 2)).astype(np.float32)
        out = {"value": np.zeros(count, np.float32)}
        policy.act({"obs": obs, "explore": np.zeros(count, np.float32)}, out)
        np.testing.assert_array_equal(out["value"], 2 * obs.sum(1))
    assert seen == made


@pytest.mark.parametrize("action", [Discrete(3), Box((2,), "float32", (-1.0,), (1.0,))])
@pytest.mark.parametrize("image", [False, True])
def test_torch_agrees_with_the_others_on_ppo(action, image):
    obs = ("obs", Box((36, 36, 2), "uint8", (0.0,), (255.0,)) if image else Box((3,), "float32", (-1.0,), (1.0,)))
    spaces, config = Spaces((obs,), action), PPOConfig(normalize_obs=not image, normalize_value=True)
    graph, generator = policy_graph(spaces, config), np.random.default_rng(0)
    published = reference.record(graph, generator)
    rows, noise = reference.observations(graph, generator, 5), reference.noise_of(graph, generator, 5)
    explore = np.array([0.0, 0.25, 0.5, 1.0, 1.0], np.float32)
    backends = [torch_backend.build("penstock.algorithms.ppo.learn:build", spaces, config), onnx.build(graph)]
    if not image:
        backends.append(native.build(graph))
    for backend in backends:
        backend.load(published)
        agree(acted(backend, graph, rows, noise, explore), reference.act(graph, published, rows, noise, explore))


@pytest.mark.parametrize("n", [1, 7])
@pytest.mark.parametrize("name", EVERY)
def test_torch_agrees_with_the_reference(name, n):
    graph, generator = EVERY[name], np.random.default_rng(n)
    published = reference.record(graph, generator)
    obs, noise = reference.observations(graph, generator, n), reference.noise_of(graph, generator, n)
    explore = generator.uniform(0.0, 1.0, n).astype(np.float32)
    backend = torch_backend.build("tests.inference.reference:build_policy", graph, None)
    backend.load(published)
    agree(acted(backend, graph, obs, noise, explore), reference.act(graph, published, obs, noise, explore))


def test_a_missing_device_is_named():
    spaces = Spaces((), BOXES["float32"])
    with pytest.raises(DeviceError, match="nonsense"):
        torch_backend.build(f"{__name__}:build_plain", spaces, None, "nonsense")


PROGRAM = """
import sys
import numpy as np
from penstock.inference import native, onnx
from penstock.policies.native import supports
from penstock.policies.stacks import hidden, transformer
assert "onnx" not in sys.modules and "onnxruntime" not in sys.modules, "importing the module must be light"
from penstock.policies import Encoding, Gaussian, Linear, Network, PolicyGraph
actor = Network("actor", (Linear(3, 1, 1.0),), (("log_std", 1, 0.0),))
graph = PolicyGraph((Encoding("obs", "flat", 3),), actor, Network("critic", (Linear(3, 1, 1.0),)), Gaussian(1))
for module in (native, onnx):
    backend = module.build(graph)
    backend.load({"actor": np.ones(5, np.float32), "critic": np.ones(4, np.float32)})
    value = np.zeros(1, np.float32)
    obs = {"obs": np.ones((1, 3), np.float32)}
    backend.act(
        {**obs, "noise": np.zeros((1, 1), np.float32), "explore": np.zeros(1, np.float32)}, {"value": value}
    )
    assert value[0] == 4.0
assert "torch" not in sys.modules
"""


def test_a_process_that_runs_native_or_onnx_never_imports_torch():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120)
