"""A user's own module as a network: the same numbers as the module itself, and each mistake in one line."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from penstock.algorithms.dqn.spec import DQNConfig
from penstock.algorithms.dqn.spec import spec as dqn_spec
from penstock.algorithms.ppo.spec import PPOConfig, init_state, policy_graph
from penstock.algorithms.sac.spec import SACConfig, actor_graph
from penstock.algorithms.td3.spec import TD3Config
from penstock.algorithms.td3.spec import policy_graph as td3_graph
from penstock.errors import BadDataError, ConfigError, UsageError
from penstock.inference import onnx
from penstock.nodes.learner.losses import refuse_bad_losses
from penstock.torch_networks import own_export
from penstock.torch_networks.own import OwnForward, constant, made
from penstock.torch_networks.own_export import exported
from penstock.torch_networks.policy import Policy
from penstock.types import Box, Discrete, Spaces

VECTOR = Box((3,), "float32", (-1.0,), (1.0,))
PLAIN = Spaces((("obs", VECTOR),), Discrete(2))
DICT = Spaces(
    (("obs.eye", Box((12, 12, 3), "uint8", (0.0,), (255.0,))), ("obs.speed", VECTOR), ("obs.word", Discrete(5))),
    Box((2,), "float32", (-1.0,), (1.0,)),
)
NAMES = "tests.torch_networks.own_modules"


def config(name, **settings):
    return PPOConfig(model=f"{NAMES}:{name}", **settings)


def inputs(spaces, count, generator):
    obs = {}
    for (name, space), spec in zip(spaces.obs, spaces.obs_specs(), strict=True):
        high = space.n if isinstance(space, Discrete) else 256 if space.dtype == "uint8" else 2
        obs[name] = generator.uniform(0.0, high, (count, *spec.shape)).astype(spec.dtype)
    return obs


def acted(graph, published, given, backend):
    """Outputs of ``act`` of torch and of ONNX Runtime."""
    tensors = {name: torch.from_numpy(values) for name, values in given.items()}
    state = {name: torch.as_tensor(values) for name, values in published.items()}
    found = {name: values.detach().numpy() for name, values in Policy(graph).act(state, tensors).items()}
    out = {name: np.zeros_like(values) for name, values in found.items()}
    backend.act(given, out)
    return found, out


@pytest.mark.parametrize(
    ("name", "spaces"),
    [("Plain", PLAIN), pytest.param("Several", DICT, marks=pytest.mark.nightly), ("Remembering", PLAIN)],
)
def test_torch_and_onnx_say_what_the_module_says(name, spaces):
    graph, generator = policy_graph(spaces, config(name)), np.random.default_rng(0)
    backend = onnx.build(graph, exported(graph.actor.own))
    for seed in (1, 2):
        published = {"actor": init_state(spaces, config(name), seed)["actor"]}
        module = made(f"{NAMES}:{name}", spaces, graph.head.outputs, 0)
        for parameter, part in zip(module.parameters(), graph.actor.slices(), strict=False):
            values = published["actor"][part.offset :][: parameter.numel()].reshape(part.shape)
            parameter.data = torch.from_numpy(values)
        backend.load(published)
        for count in (1, 4):
            obs = inputs(spaces, count, generator)
            carry = {spec.name: generator.normal(size=(count, *spec.shape)).astype(np.float32) for spec in graph.carry}
            first = np.arange(count) == 1
            noise = generator.gumbel(size=(count, 2)).astype(np.float32)
            given = {**obs, **carry, "first": first, "noise": noise, "explore": np.ones(count, np.float32)}
            torchs, onnxs = acted(graph, published, given, backend)
            fields = {name.removeprefix("obs."): torch.from_numpy(values) for name, values in obs.items()}
            before = {k.rpartition(".")[2]: torch.from_numpy(v * ~first[:, None]) for k, v in carry.items()}
            with torch.no_grad():
                expected = module(fields.get("obs", fields), *([before] if carry else []))
            np.testing.assert_allclose(torchs["value"], expected[1].numpy(), rtol=1e-5, atol=1e-6)
            if carry:
                for full in carry:
                    np.testing.assert_allclose(torchs[full], expected[2][full.rpartition(".")[2]].numpy(), rtol=1e-5)
            for output, values in torchs.items():
                np.testing.assert_allclose(onnxs[output], values, rtol=1e-5, atol=1e-5)


STEERED = Spaces(PLAIN.obs, DICT.action)


@pytest.mark.parametrize(
    "graph",
    [
        actor_graph(STEERED, SACConfig(model=f"{NAMES}:Recalling")),
        # Four seconds each. Shorter: the one with a memory.
        pytest.param(actor_graph(STEERED, SACConfig(model=f"{NAMES}:Judged")), marks=pytest.mark.nightly),
        pytest.param(td3_graph(STEERED, TD3Config(model=f"{NAMES}:Values")), marks=pytest.mark.nightly),
    ],
)
def test_an_actor_beside_critics_acts_by_onnx_as_by_torch(graph):
    generator = np.random.default_rng(0)
    published = {"actor": graph.actor.initial(generator)}
    backend = onnx.build(graph, exported(graph.actor.own))
    backend.load(published)
    given = {"obs": generator.normal(size=(4, 3)).astype(np.float32), "first": np.arange(4) == 1}
    given |= {spec.name: generator.normal(size=(4, *spec.shape)).astype(np.float32) for spec in graph.carry}
    given |= {"noise": generator.normal(size=(4, 2)).astype(np.float32), "explore": np.ones(4, np.float32)}
    by_torch, by_onnx = acted(graph, published, given, backend)
    assert by_torch.keys() == {"action", *(spec.name for spec in graph.carry)}
    for name, values in by_torch.items():
        np.testing.assert_allclose(by_onnx[name], values, rtol=1e-5, atol=1e-5)


def test_parameters_begin_with_the_runs_seed_and_buffers_do_not():
    first, same, other = (init_state(PLAIN, config("Plain"), seed)["actor"] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)
    buffers = [made(f"{NAMES}:Plain", PLAIN, 2, 0).shift for _ in range(2)]
    torch.testing.assert_close(*buffers)


def test_a_frozen_parameter_is_a_constant():
    graph, whole = policy_graph(PLAIN, config("Frozen")), policy_graph(PLAIN, config("Plain"))
    assert graph.actor.num_parameters == whole.actor.num_parameters - 3
    values = {name: init_state(PLAIN, config(name), 5)["actor"] for name in ("Frozen", "Plain")}
    np.testing.assert_array_equal(values["Frozen"], values["Plain"][:9])
    module = made(f"{NAMES}:Frozen", PLAIN, 2, 0)
    with torch.no_grad():
        module.layer.weight.copy_(torch.from_numpy(values["Frozen"]).view(3, 3))
    obs = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    backend = onnx.build(graph, exported(graph.actor.own))
    backend.load({"actor": values["Frozen"]})
    given = {"obs": obs, "noise": np.zeros((4, 2), np.float32), "explore": np.zeros(4, np.float32)}
    found, by_onnx = acted(graph, {"actor": values["Frozen"]}, given, backend)
    expected = module(torch.from_numpy(obs))[1].detach().numpy()
    np.testing.assert_allclose(found["value"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(by_onnx["value"], expected, rtol=1e-5, atol=1e-6)


def test_a_module_is_tried_inside_its_space():
    space = Box((3,), "float32", (10.0,), (20.0,))
    assert policy_graph(Spaces((("obs", space),), Discrete(2)), config("Roots")).actor.num_parameters == 12


def test_a_memory_over_time_is_step_after_step():
    graph = policy_graph(PLAIN, config("Remembering"))
    policy, generator = Policy(graph), torch.Generator().manual_seed(0)
    published = {"actor": torch.from_numpy(init_state(PLAIN, config("Remembering"), 0)["actor"])}
    obs = torch.randn(2, 4, 3, generator=generator)
    first = torch.tensor([[False, False, True, False], [True, False, False, False]])
    carry = {spec.name: torch.ones(2, *spec.shape) for spec in graph.carry}
    whole = policy(published, {"obs": obs, "first": first, **carry})
    for t in range(4):
        step = policy(published, {"obs": obs[:, t], "first": first[:, t], **carry})
        carry = step.carry
        torch.testing.assert_close(step.value, whole.value.view(2, 4)[:, t])
    torch.testing.assert_close(carry, whole.carry)
    # An episode began two rows ago in lane 0, and four rows ago in lane 1.
    assert carry["carry.actor.0.count"].flatten().tolist() == [2.0, 4.0]


def test_gradients_are_the_modules_own():
    graph = policy_graph(PLAIN, config("Plain"))
    flat = torch.from_numpy(init_state(PLAIN, config("Plain"), 0)["actor"]).requires_grad_()
    obs = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    (found,) = torch.autograd.grad(Policy(graph)({"actor": flat}, {"obs": obs}).value.square().sum(), flat)
    module = made(f"{NAMES}:Plain", PLAIN, 2, 0)
    with torch.no_grad():
        module.layer.weight.copy_(flat[:9].view(3, 3))
        module.layer.bias.copy_(flat[9:])
    module(obs)[1].square().sum().backward()
    torch.testing.assert_close(found, torch.cat((module.layer.weight.grad.flatten(), module.layer.bias.grad)))


@pytest.mark.parametrize("name", ["Plain", "Frozen"])
def test_constants_are_where_the_parameters_are(name):
    layer = policy_graph(PLAIN, config(name)).actor.own
    forward = OwnForward(layer, "actor")
    for device in ("meta", "cpu", "meta"):
        parts = [torch.zeros(shape, device=device) for _, shape in layer.parameters]
        outputs, _ = forward(parts, [torch.zeros(4, 3, device=device)], None)
        assert (outputs.device.type, outputs.shape) == (device, (4, 3))
    # The module that all calls share stays where it is.
    assert constant(layer).shift.device.type == "cpu"


def test_a_module_may_give_action_values():
    spec = dqn_spec(PLAIN, DQNConfig(model=f"{NAMES}:Values"))
    assert spec.policy.actor.num_parameters == 3 * 2 + 2
    with pytest.raises(ConfigError, match="gives the action values itself: leave --dueling off"):
        dqn_spec(PLAIN, DQNConfig(model=f"{NAMES}:Values", dueling=True))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("WrongShape", r"returns outputs as float32 \[3, 1\] for 3 rows; they must be float32 \[3, 2\]"),
        ("ValueColumn", r"returns the value as float32 \[3, 1\] for 3 rows; they must be float32 \[3\]"),
        ("Double", r"returns outputs as float64 \[3, 2\]"),
        ("NotFinite", "gives outputs that are not finite"),
        ("Random", "answers the same observations differently the second time: it must not be random"),
        ("Few", r"returns outputs as float32 \[8, 2\] for 33 rows; they must be float32 \[33, 2\]"),
        ("Lazy", "lazy.weight has no shape yet, as in nn.LazyLinear: call that layer once in __init__"),
        ("InPlace", r"changes what it is given: make a new tensor"),
        ("Counting", "differently the second time: it must not keep anything between two calls but the carry"),
        ("Recording", r"answers otherwise while gradients are recorded: it must not ask is_grad_enabled\(\)$"),
        ("Undeclared", r'takes a carry that is not declared: write carry = \{"h": 64\} on the class, or on the'),
        ("WithoutOutputs", r"TypeError: .*WithoutOutputs.__init__\(\) .*own_modules.py, line \d+\)"),
        ("number", "makes an int, and not a torch.nn.Module"),
        ("Mixing", "answers one row differently when others stand beside it: rows must not mix"),
        ("Normed", "changes the buffer norm.running_mean in training"),
        ("Half", "its parameter layer.weight is float16; make it float32"),
        ("Empty", "the module has no parameters"),
        ("Values", "returns one Tensor; it must return outputs, value"),
        ("Forgetting", r"returns the carry \['h'\]; the class says carry = \{'h': 5, 'count': 1\}"),
        ("Raising", r"KeyError: 'speed' \(.*own_modules.py, line \d+\)"),
        ("InTorch", r"RuntimeError: mat1 and mat2 .* \(.*own_modules.py, line \d+\)"),
        ("Drawing", "Drawing makes drawn differently each time: make it with torch, or from a fixed seed$"),
        ("BadCarry", r'carry = \{\'h\': \'64\'\} does not name widths; write carry = \{"h": 64\}'),
        ("nothing", "makes None, and not a torch.nn.Module"),
        ("absent", "has no absent"),
    ],
)
def test_a_mistake_is_named_in_one_line(name, text):
    with pytest.raises(UsageError, match=text) as caught:
        policy_graph(PLAIN, config(name))
    assert "\n" not in str(caught.value)
    assert NAMES in str(caught.value)


def test_a_module_that_misnames_a_field_is_told_the_names():
    with pytest.raises(ConfigError, match=r"KeyError: 'obs.speed' \(.*\); the observation has eye, speed, word$"):
        policy_graph(DICT, config("Misnaming"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "Branching",
            r"ONNX: a number decides there what is computed \(.*own_modules.py, line \d+\): use torch.where; or try",
        ),
        ("Listed", r"ONNX: forward must not depend on .* rows, nor go through them in Python, as with tolist\(\); try"),
        # Three seconds each. Shorter: the two above.
        pytest.param(
            "Crowded",
            ":Crowded cannot be exported to ONNX: forward must not depend on the number of rows, nor",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "Singular",
            "cannot be exported to ONNX: ONNX has no operation for aten.*svd.*; try --inference torch",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_what_onnx_cannot_express_is_named(name, text, capfd):
    with pytest.raises(ConfigError, match=text) as caught:
        exported(policy_graph(PLAIN, config(name)).actor.own)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_graph_that_is_wrong_on_any_rows_is_refused(monkeypatch):
    layer = policy_graph(PLAIN, config("Plain")).actor.own
    exported.cache_clear()
    monkeypatch.setattr(own_export, "_differing", lambda *_: "value")
    with pytest.raises(ConfigError, match="the exported graph answers other value than the module; try --inference to"):
        exported(layer)


def test_numbers_that_are_not_finite_name_the_module():
    metrics = {"policy_loss": float("nan")}
    with pytest.raises(BadDataError, match=r"update 3: policy_loss is nan; .* see whether --model .*:Plain divides by"):
        refuse_bad_losses(metrics, 3, policy_graph(PLAIN, config("Plain")))
    with pytest.raises(BadDataError, match="nothing of it was kept; a smaller --lr, or rewards"):
        refuse_bad_losses(metrics, 3, policy_graph(PLAIN, PPOConfig()))


def test_observations_are_seen_as_they_are():
    with pytest.raises(ConfigError, match="sees observations as they are: leave --normalize_obs off"):
        policy_graph(PLAIN, config("Plain", normalize_obs=True))


ACT_WITHOUT_TORCH = """
import pickle, sys
sys.modules["torch"] = None
import pickle
import subprocess
import sys

import numpy as np
from penstock.inference import onnx
graph, exported, published = pickle.loads(sys.stdin.buffer.read())
backend = onnx.build(graph, exported)
backend.load(published)
out = {"action": np.full(2, -1), "value": np.zeros(2, np.float32)}
given = {"obs": np.ones((2, 3), np.float32), "noise": np.zeros((2, 2), np.float32), "explore": np.zeros(2, np.float32)}
backend.act(given, out)
assert set(out["action"]) <= {0, 1} and out["value"].all(), out
"""


def test_acting_needs_no_torch():
    graph = policy_graph(PLAIN, config("Plain"))
    given = pickle.dumps((graph, exported(graph.actor.own), init_state(PLAIN, config("Plain"), 0)))
    ended = subprocess.run([sys.executable, "-c", ACT_WITHOUT_TORCH], input=given, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
