"""A bundle of every algorithm, action and network acts as its run does, in every format and precision."""

import hashlib
import json
import math
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import safetensors.numpy
import torch
from onnx.reference import ReferenceEvaluator

import penstock
from penstock.envs.sources import open_source
from penstock.errors import BadDataError, BundleError, ConfigError, DeviceError, RunFolderError
from penstock.inference.onnx import export as onnx_bytes
from penstock.inference.onnx import load_graph
from penstock.policies import Gaussian
from penstock.policies.critic_fields import Deployed
from penstock.saved_runs.manifest import seal
from penstock.serving.bundle import GraphRunner, read_bundle
from penstock.serving.bundle.sample import sample_of
from penstock.serving.bundle.spaces import from_json, to_json
from penstock.serving.quantize import quantized
from penstock.serving.verification import Limits
from penstock.types import Box, Composite, Discrete, MultiDiscrete, Spaces
from tests.inference import reference

pytestmark = pytest.mark.usefixtures("shared_templates")

ENVS = "tests.environments"
TASKS = "benchmarks.learning.tasks"
SMALL = {
    "runtime": "inline",
    "num_envs": 2,
    "num_workers": 1,
    "num_steps": 16,
    "timesteps": 64,
    "eval_episodes": 1,
    "hidden_sizes": (16, 16),
    "backend": "eager",
    "threads": 1,
}
TABLE = {"num_steps": 4, "min_rows": 32, "mini_batch_size": 8}
SEQUENCES = {**TABLE, "memory_size": 8, "burn_in": 2, "learned_steps": 4, "sync_mode": "blocking"}
RUNS = {
    "ppo": {"env": "CartPole-v1", "normalize_obs": True},
    "ppo, box": {"env": "Pendulum-v1", "normalize_obs": True, "normalize_value": True},
    "ppo, lstm": {"env": "Pendulum-v1", "model": "mlp+lstm", "memory_size": 8},
    "ppo, gru, shared": {"env": f"{ENVS}:BlinkEnv", "model": "gru", "memory_size": 8, "share_memory": True},
    "ppo, dict": {"env": f"{ENVS}:DictEnv"},
    "ppo, a field for the critic alone": {"env": f"{ENVS}:DictEnv", "critic_obs": ("dials.b",), "normalize_obs": True},
    "ppo, discrete observation": {"env": f"{ENVS}:CorridorEnv"},
    "ppo, tuple": {"env": f"{ENVS}:TupleEnv", "ignore_obs": ("1.2",)},
    "ppo, multi-discrete": {"env": f"{TASKS}:DigitsEnv"},
    "ppo, multi-binary": {"env": f"{TASKS}:BitsEnv"},
    "ppo, composite": {"env": f"{TASKS}:AimEnv"},
    "ppo, masked composite, lstm": {"env": f"{TASKS}:MaskedAimEnv", "model": "lstm", "memory_size": 8},
    "ppo, mask in the observation": {"env": f"{TASKS}:RanksInObservationEnv"},
    "ppo, image": {"env": f"{ENVS}:EyeEnv", "model": "resnet+gru", "memory_size": 8, "layer_norm": True},
    "ppo, many environments in one": {"env": f"{ENVS}:make_clocks"},
    "a2c": {"algo": "a2c", "env": "CartPole-v1"},
    "dqn": {"algo": "dqn", "env": "CartPole-v1", **TABLE},
    "dqn, image": {"algo": "dqn", "env": f"{ENVS}:EyeEnv", **TABLE},
    "apex": {"algo": "apex", "env": f"{ENVS}:IdentityEnv", **TABLE},
    "sac": {"algo": "sac", "env": "Pendulum-v1", **TABLE},
    "sac, lstm": {"algo": "sac", "env": f"{ENVS}:RecallEnv", "model": "lstm", **SEQUENCES},
    "r2d2": {"algo": "r2d2", "env": f"{ENVS}:BlinkEnv", "model": "lstm", "dueling": True, **SEQUENCES},
    "r2d2, masked": {"algo": "r2d2", "env": f"{TASKS}:RecalledRanksEnv", "model": "gru", **SEQUENCES},
    "td3": {"algo": "td3", "env": "Pendulum-v1", **TABLE},
    "ddpg": {"algo": "ddpg", "env": f"{ENVS}:TargetEnv", **TABLE},
    "dsac": {"algo": "dsac", "env": f"{ENVS}:TargetEnv", **TABLE},
    "dsact": {"algo": "dsact", "env": f"{ENVS}:SteeredEyeEnv", **TABLE},
    "own module": {"env": "CartPole-v1", "model": "examples.own_network.nets:make_policy"},
    "own module with memory": {"env": "Pendulum-v1", "model": "examples.own_network.remembering:Remembering"},
    "own algorithm": {"algo": "examples.own_algorithm", "env": "CartPole-v1"},
}


def settings_of(name: str, log_dir: Path) -> dict[str, object]:
    settings = {**SMALL, **RUNS[name], "log_dir": str(log_dir)}
    if name.startswith("own "):
        del settings["hidden_sizes"]
    return settings


@pytest.fixture(autouse=True)
def short(monkeypatch) -> None:
    """How fast a policy is does not matter here."""
    monkeypatch.setattr("penstock.serving.verification.MEASURED_S", 0.0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The run folder of each name in `RUNS`."""
    log_dir, folders = tmp_path_factory.mktemp("runs"), {}

    def folder(name: str) -> Path:
        if name not in folders:
            folders[name] = penstock.train(settings_of(name, log_dir), quiet=True).run_folder
        return folders[name]

    return folder


def played(policy, run: Path, lanes: int = 3, steps: int = 12):
    """The actions of a session in the run's environment, on its own seeds."""
    config = penstock.from_toml(run / "config.toml").run
    source = open_source(config.env, False, lanes, ignore_obs=config.ignore_obs or (), mask=policy.spaces.mask)
    session, first = policy.session(lanes), np.ones(lanes, np.bool_)
    obs = source.reset(range(lanes))
    actions = []
    for step in range(steps):
        action = session.answer({**obs, "first": first})
        actions.append(action.copy())
        result = source.step(action, lambda lane, step=step: 100 * step + lane)
        first = (result.terminated | result.truncated) if source.same_step else result.reset
        obs = result.obs
    source.close()
    return np.stack(actions)


SLOW = {"own module", "own module with memory", "ppo, image", "dsact"}
"""Five seconds each. Shorter: an own module with a memory, DQN with an image, and SAC.

The image network with a memory is also exported in ``tests/end_to_end/test_networks.py``.
"""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly) if name in SLOW else name for name in RUNS]
)
def test_it_acts_as_its_run_does(trained, tmp_path, name: str) -> None:
    run = trained(name)
    out = penstock.export(run, tmp_path / "policy", format=("onnx", "ort"), observations=24)
    bundle, policy, own = read_bundle(out), penstock.load_policy(out), penstock.load_policy(run)
    assert policy.spaces == own.spaces
    assert [spec.name for spec in policy.carry] == [spec.name for spec in own.carry]
    np.testing.assert_allclose(played(policy, run), played(own, run), rtol=1e-5, atol=1e-5)
    sample = bundle.sample()
    assert sample.rows == 24
    ports = {f"input.{port.name}": port for port in bundle.facts.inputs}
    ports |= {f"output.{port.name}": port for port in bundle.facts.outputs}
    with np.load(out / "sample.npz") as file:
        shapes = {name: (values.dtype.name, values.shape) for name, values in file.items()}
    assert shapes == {name: (port.dtype, (24, *port.shape)) for name, port in ports.items()}
    found = penstock.verify(out, against=run, observations=40)
    assert found.passed, found.table()
    assert [report.precision for report in found.reports] == ["fp32"] * 3
    # The graph for phones is one of those that were compared.
    assert [report.backend for report in found.reports][1:] == ["onnx, CPU", "ort, CPU"]
    assert (out / "policy.ort").read_bytes()[4:8] == b"ORTM", "the format's own mark"


@pytest.mark.parametrize(
    "name",
    [
        "ppo, box",
        "own module with memory",
        "ppo, a field for the critic alone",
        pytest.param("ppo, masked composite, lstm", marks=pytest.mark.nightly),
        pytest.param("dqn, image", marks=pytest.mark.nightly),
    ],
)
def test_torch_and_safetensors_hold_the_same_policy(trained, tmp_path, name: str) -> None:
    run = trained(name)
    out = penstock.export(run, tmp_path / "policy", format=("onnx", "safetensors", "torch"), observations=24)
    bundle = read_bundle(out)
    sample = bundle.sample()
    program = torch.export.load(out / "policy.pt2").module()
    answered = program({name: torch.as_tensor(values) for name, values in sample.inputs.items()})
    for port in bundle.facts.outputs:
        values = answered[port.name].numpy()
        assert (values.dtype.name, values.shape) == (port.dtype, (24, *port.shape))
        np.testing.assert_allclose(values, sample.outputs[port.name], rtol=1e-4, atol=1e-4)
    # Any number of rows will do.
    assert len(program({name: torch.as_tensor(values[:1]) for name, values in sample.inputs.items()})) == len(answered)
    parameters = safetensors.numpy.load_file(out / "parameters.safetensors")
    state = safetensors.numpy.load_file(run / "checkpoints" / bundle.facts.run["checkpoint"] / "state.safetensors")
    actor = [values.size for name, values in parameters.items() if name.startswith("actor.")]
    assert sum(actor) == state["actor"].size


def test_a_bundle_asks_for_nothing_that_only_the_critic_has_seen(trained, tmp_path, monkeypatch) -> None:
    run = trained("ppo, a field for the critic alone")
    bundle = read_bundle(penstock.export(run, tmp_path / "policy", format=("onnx", "safetensors"), observations=8))
    assert [port.name for port in bundle.facts.inputs] == ["obs.dials.a", "obs.which"]
    assert [port.name for port in bundle.facts.outputs] == ["action", "log_prob"]
    parameters = safetensors.numpy.load_file(tmp_path / "policy" / "parameters.safetensors")
    assert not [name for name in parameters if name.startswith("critic")]
    # The dial and the two values of `which`.
    assert parameters["obs_mean"].shape == (3,)
    seen = {"dials": {"a": [0.5]}, "which": 1}
    more = {"dials": {"a": [0.5], "b": [9.0]}, "which": 1}
    of_run, of_bundle = penstock.load_policy(run), penstock.load_policy(tmp_path / "policy")
    assert of_run(seen) == of_run(more) == of_bundle(seen) == of_bundle(more)
    # Older versions have exported the whole policy. Such a bundle is used and verified as before.
    with monkeypatch.context() as patched:
        patched.setattr("penstock.deployment.deployed", lambda graph, spaces: Deployed(graph, spaces, graph))
        older = penstock.export(run, tmp_path / "older", observations=8)
    assert [port.name for port in read_bundle(older).facts.inputs] == ["obs.dials.a", "obs.dials.b", "obs.which"]
    assert penstock.load_policy(older)(more) == of_run(seen)
    with pytest.raises(BadDataError, match=r"lacks obs\.dials\.b"):
        penstock.load_policy(older)(seen)
    found = penstock.verify(older, against=run, observations=8)
    assert found.passed, found.table()


def test_a_run_whose_policy_has_another_form_is_refused(trained, tmp_path) -> None:
    """The spaces are the same. One has a memory, the other has none."""
    runs = [trained(name) for name in ("ppo, box", "ppo, lstm")]
    bundles = [penstock.export(run, tmp_path / run.name, observations=8) for run in runs]
    for bundle, run in zip(bundles, reversed(runs), strict=True):
        with pytest.raises(BundleError, match=r"is not of run .*; that run's policy takes obs float32\[3\]"):
            penstock.verify(bundle, against=run, observations=8)


def test_a_program_of_torch_does_not_explore(trained, tmp_path) -> None:
    with pytest.raises(ConfigError, match="--noise True is for onnx"):
        penstock.export(trained("ppo, box"), tmp_path / "policy", format=("onnx", "torch"), noise=True)


# What int8 makes of an untrained network is close, but near ties of its preferences may turn.
QUANTIZED = (
    "ppo, box",
    "ppo, gru, shared",
    "ppo, masked composite, lstm",
    "ppo, image",
    "dqn, image",
    "sac",
    "own module with memory",
)


@pytest.mark.parametrize("precision", ["int8", "fp16"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly) if name in SLOW else name for name in QUANTIZED]
)
def test_it_is_quantised_from_the_runs_own_observations(trained, tmp_path, name: str, precision: str) -> None:
    out = penstock.export(
        trained(name), tmp_path / "policy", quantize=precision, format=("onnx", "ort"), observations=64
    )
    found = penstock.verify(out, quantized_limits=Limits(0.9, 0.02))
    assert found.passed, found.table()
    assert [report.precision for report in found.reports] == ["fp32", precision, precision]
    kind = {"int8": onnx.TensorProto.INT8, "fp16": onnx.TensorProto.FLOAT16}[precision]
    weights = onnx.load(out / f"policy.{precision}.onnx").graph.initializer
    assert any(tensor.data_type == kind and len(tensor.dims) > 1 for tensor in weights)
    assert penstock.load_policy(out).facts.precision == precision
    assert penstock.load_policy(out, precision="fp32").spaces == penstock.load_policy(out).spaces


def test_large_observations_stay_finite_in_fp16() -> None:
    """The largest fp16 number is 65,504: what is normalised in float32 must not be cast before."""
    graph = reference.actor_critic(reference.FLAT, Gaussian(1), normalize_obs=True)
    published = reference.record(graph, np.random.default_rng(0))
    published["obs_mean"] += 1e6
    box = Box((3,), "float32", (-math.inf,), (math.inf,))
    spaces = Spaces((("obs", box),), Box((1,), "float32", (-1.0,), (1.0,)))
    model = onnx_bytes(graph, spaces, published)
    obs = {"obs": (1e6 + np.random.default_rng(1).normal(size=(20, 3))).astype(np.float32)}
    wanted, found = (load_graph(graph).run(["action"], obs)[0] for graph in (model, quantized(model, "fp16", obs)))
    np.testing.assert_allclose(found, wanted, atol=5e-3)


def test_large_observations_that_are_not_normalised_stay_finite_in_fp16() -> None:
    """The reference of ONNX computes fp16 in fp16, which ONNX Runtime does not do on a CPU."""
    graph = reference.actor_critic(reference.FLAT, Gaussian(1))
    box = Box((3,), "float32", (-math.inf,), (math.inf,))
    spaces = Spaces((("obs", box),), Box((1,), "float32", (-1.0,), (1.0,)))
    model = onnx_bytes(graph, spaces, reference.record(graph, np.random.default_rng(0)))
    obs = {"obs": (1e6 * np.random.default_rng(1).normal(size=(20, 3))).astype(np.float32)}
    found = ReferenceEvaluator(onnx.load_from_string(quantized(model, "fp16", obs))).run(["action"], obs)[0]
    np.testing.assert_allclose(found, load_graph(model).run(["action"], obs)[0], atol=5e-3)


@pytest.mark.parametrize(
    ("precision", "hidden", "text"),
    [
        ("int8", (8,), "int8 keeps the first and the last layer in float32"),
        ("fp16", (), "fp16 keeps the first layer in float32"),
    ],
)
def test_a_network_of_first_and_last_layers_has_no_smaller_form(
    precision: str, hidden: tuple[int, ...], text: str
) -> None:
    graph = reference.actor_critic(reference.FLAT, Gaussian(1), hidden)
    spaces = Spaces((("obs", Box((3,), "float32", (-1.0,), (1.0,))),), Box((1,), "float32", (-1.0,), (1.0,)))
    model = onnx_bytes(graph, spaces, reference.record(graph, np.random.default_rng(0)))
    with pytest.raises(ConfigError, match=text):
        quantized(model, precision, {"obs": np.zeros((4, 3), np.float32)})


def test_noise_makes_its_actions_explore(trained, tmp_path) -> None:
    """With noise and explore the graph gives what the run's own backend gives, in the environment's units."""
    for name in ("ppo, box", "dqn", "sac", "td3", "ppo, masked composite, lstm"):
        run = trained(name)
        out = penstock.export(run, tmp_path / "policy", noise=True, observations=16)
        bundle, own = read_bundle(out), penstock.load_policy(run)
        sample, greedy = bundle.sample(), GraphRunner(bundle, bundle.graph())
        outputs = [port.name for port in bundle.facts.outputs if port.role == "action"]
        still = greedy.run(sample.inputs, outputs)
        for output in outputs:
            np.testing.assert_allclose(still[output], sample.outputs[output], rtol=1e-5, atol=1e-5)
        (shape,) = (port.shape for port in bundle.facts.inputs if port.name == "noise")
        noise = np.random.default_rng(0).uniform(0.0, 1.0, (16, *shape)).astype(np.float32)
        given = {**sample.inputs, "noise": noise, "explore": np.ones(16, np.float32)}
        spec = own.spaces.action_spec()
        action = np.zeros((16, *spec.shape), spec.dtype)
        own.backend.act(given, {"action": action})
        wanted = sample_of((sample.inputs, {"action": action}), own.spaces).outputs
        moved = greedy.run(given, outputs)
        assert any((moved[output] != still[output]).any() for output in outputs), name
        for output in outputs:
            np.testing.assert_allclose(moved[output], wanted[output], rtol=1e-4, atol=1e-4)


def test_it_is_the_same_bits_as_the_run_on_onnx_runtime(tmp_path) -> None:
    run = penstock.train({**SMALL, "env": "Pendulum-v1", "inference": "onnx", "log_dir": str(tmp_path)}, quiet=True)
    out = penstock.export(run.run_folder, tmp_path / "policy", observations=16)
    bundle, own = penstock.load_policy(out), penstock.load_policy(run.run_folder)
    np.testing.assert_array_equal(played(bundle, run.run_folder, steps=50), played(own, run.run_folder, steps=50))
    obs = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    np.testing.assert_array_equal(np.stack([bundle(row) for row in obs]), bundle(obs))


def test_a_checkpoint_is_named_and_the_environment_is_played_apart(tmp_path) -> None:
    settings = {**SMALL, "env": "CartPole-v1", "log_dir": str(tmp_path), "save_interval": 1, "runtime": "local"}
    run = penstock.train(settings, quiet=True).run_folder
    first = read_bundle(penstock.export(run, tmp_path / "policy", checkpoint="1", observations=8))
    assert first.facts.run["checkpoint"] == "update-00000001"
    assert first.facts.run["steps"] == 32
    assert penstock.verify(tmp_path / "policy", against=run, observations=8).against.endswith("update-00000001")


@pytest.fixture
def bundle(trained, tmp_path) -> Path:
    return penstock.export(trained("ppo"), tmp_path / "policy", observations=8)


def test_threads_with_a_policy_each_answer_the_parts_of_a_batch_as_one_call_does(trained, tmp_path) -> None:
    bundle = penstock.export(trained("ppo, box"), tmp_path / "policy", observations=8)
    observations = np.random.default_rng(0).normal(size=(301, 3)).astype(np.float32)
    policies = [penstock.load_policy(bundle) for _ in range(3)]
    with ThreadPoolExecutor(len(policies)) as pool:
        parts = pool.map(lambda policy, rows: policy(rows), policies, np.array_split(observations, len(policies)))
        actions = np.concatenate(list(parts))
    whole = policies[0](observations)
    assert whole.dtype == np.float32
    np.testing.assert_array_equal(actions, whole)


# ONNX Runtime's wheel of the tests has no CUDA, so it goes on with the CPU and says so by a warning only.
@pytest.mark.filterwarnings("ignore:Specified provider 'CUDAExecutionProvider'")
def test_what_cannot_compute_here_is_left_out_and_no_figure_of_the_cpu_bears_its_name(bundle, monkeypatch) -> None:
    text = (
        "ONNX Runtime computes with CPUExecutionProvider in place of CUDAExecutionProvider, whose libraries are missing"
    )
    with pytest.raises(DeviceError, match=text):
        load_graph((bundle / "policy.onnx").read_bytes(), "CUDAExecutionProvider")
    monkeypatch.setattr("penstock.deployment._providers", lambda: ["CPUExecutionProvider", "CUDAExecutionProvider"])
    found = penstock.verify(bundle)
    assert [report.backend for report in found.reports] == ["onnx, CPU"]
    assert found.table().splitlines()[-1].startswith(f"left out: {text}")
    assert found.to_json()["left_out"] == [*found.left_out]


def test_one_altered_byte_is_one_line_that_names_the_file(bundle) -> None:
    for name in ("policy.onnx", "sample.npz", "manifest.json"):
        path = bundle / name
        content = path.read_bytes()
        path.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
        with pytest.raises(BundleError, match=rf"^bundle .*policy cannot be used: {name} has been altered$"):
            penstock.load_policy(bundle)
        path.write_bytes(content)
    penstock.load_policy(bundle)


@pytest.mark.parametrize("name", ["policy.onnx", "sample.npz", "manifest.json"])
def test_a_missing_file_is_one_line_that_names_it(bundle, name) -> None:
    (bundle / name).unlink()
    with pytest.raises(BundleError, match=rf"^bundle .*policy cannot be used: {name} is missing$"):
        penstock.load_policy(bundle)


def test_a_newer_format_is_one_line(bundle) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(json.dumps({**manifest, "format": 9}))
    with pytest.raises(BundleError, match="it has format 9, which a newer penstock wrote"):
        penstock.load_policy(bundle)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kind": "training"}, "manifest.json is not that of a policy"),
        ({"spaces": {"action": 3}}, "manifest.json is not that of a policy"),
        (
            {"run": {"name": "r", "algorithm": "ppo", "env": "e", "checkpoint": "c"}},
            "manifest.json is not that of a policy",
        ),
        ({"run": {"name": "r", "env": "e", "checkpoint": "c", "update": 1}}, "manifest.json is not that of a policy"),
        ({"run": []}, "manifest.json is not that of a policy"),
        ({"files": {}}, "manifest.json does not list policy.onnx"),
        ({"files": []}, "manifest.json is not that of a policy"),
    ],
)
def test_a_manifest_of_something_else_is_one_line(bundle, change, text) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    files = manifest.pop("files") if "files" not in change else change["files"]
    del manifest["manifest_sha256"]
    body = {**manifest, "files": files, **change}
    content = json.dumps(body, sort_keys=True, separators=(",", ":"))
    sealed = {**body, "manifest_sha256": hashlib.sha256(content.encode()).hexdigest()}
    (bundle / "manifest.json").write_text(json.dumps(sealed))
    with pytest.raises(BundleError, match=f"cannot be used: {re.escape(text)}$"):
        penstock.load_policy(bundle)


def test_a_manifest_leads_to_no_file_outside(bundle, tmp_path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    found = read_bundle(bundle)
    sealed = seal(1, found.facts.to_json(), {**found.files, "../secret": b"secret"})
    (bundle / "manifest.json").write_bytes(sealed)
    with pytest.raises(BundleError, match=r"lists \.\./secret, which is no file of a bundle$"):
        penstock.load_policy(bundle)


def test_what_is_no_bundle_is_not_overwritten(trained, tmp_path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    penstock.export(trained("ppo"), mine, observations=4)
    penstock.export(trained("a2c"), mine, observations=4)
    assert read_bundle(mine).facts.run["algorithm"] == "a2c"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    # Others have a manifest, too.
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "manifest.json").write_text('{"name": "my app"}')
    checkpoint = next((trained("ppo") / "checkpoints").iterdir())
    for taken in (tmp_path / "notes", tmp_path / "file", tmp_path / "site", checkpoint, trained("ppo")):
        with pytest.raises(BundleError, match="is there already and is no bundle; give another --out"):
            penstock.export(trained("ppo"), taken)


def test_a_link_to_a_bundle_stays_a_link(trained, bundle, tmp_path) -> None:
    link = tmp_path / "current"
    link.symlink_to(bundle)
    before = (bundle / "manifest.json").read_bytes()
    penstock.export(trained("a2c"), out=link)
    assert link.is_symlink()
    assert (bundle / "manifest.json").read_bytes() != before


def test_what_does_not_fit_a_bundle_is_refused(trained, bundle, tmp_path) -> None:
    with pytest.raises(BundleError, match=r"has no graph in int8, only in fp32$"):
        penstock.load_policy(bundle, precision="int8")
    with pytest.raises(BundleError, match="holds one checkpoint only"):
        penstock.load_policy(bundle, checkpoint="best")
    with pytest.raises(ConfigError, match="precision int8 is for bundles"):
        penstock.load_policy(trained("ppo"), precision="int8")
    with pytest.raises(RunFolderError, match="is no run folder"):
        penstock.load_policy(tmp_path)
    with pytest.raises(BundleError, match="is missing"):
        penstock.verify(tmp_path)
    with pytest.raises(BundleError, match=r"ppo.* is a run, not a bundle; make one: penstock export \S+ --out policy"):
        penstock.verify(trained("ppo"))
    text = r"is not of run .*: its spaces are obs float32\[\d+\] in \[.+\] and action .+, not obs [^()]+$"
    with pytest.raises(BundleError, match=text):
        penstock.verify(bundle, against=trained("sac"), checkpoint="latest")
    others = tmp_path / "run"
    (others / "checkpoints").mkdir(parents=True)
    shutil.copy(trained("ppo") / "config.toml", others)
    with pytest.raises(BundleError, match=r"comes from update-\d+ of run .*, and run run has no such checkpoint"):
        penstock.verify(bundle, against=others)


@pytest.mark.parametrize(
    "setting", [{"observations": 9}, {"seed": 1}, {"checkpoint": "best"}], ids=lambda given: next(iter(given))
)
def test_settings_of_the_compared_run_need_one(trained, tmp_path, setting: dict[str, object]) -> None:
    out = penstock.export(trained("ppo"), tmp_path / "policy", observations=8)
    with pytest.raises(ConfigError, match=rf"^--{next(iter(setting))} needs --against RUN"):
        penstock.verify(out, **setting)


def test_a_quantised_graph_that_is_too_coarse_says_what_to_do(trained, tmp_path) -> None:
    out = penstock.export(trained("sac"), tmp_path / "policy", observations=8, quantize="int8")
    told = penstock.verify(out, quantized_limits=Limits(1.0, 0.0)).table().splitlines()[-2:]
    assert told[0].startswith("int8 is too coarse for this policy")
    assert "--quantized_agreement" in told[1]


def test_another_policy_does_not_pass(trained, tmp_path) -> None:
    out = penstock.export(trained("sac"), tmp_path / "policy", observations=8)
    found = penstock.verify(out, against=trained("td3"), checkpoint="latest", observations=50)
    assert not found.passed
    assert found.reports[1].action_error > 1e-4
    assert "FAILS" in found.table()


SPACES = Spaces(
    (
        ("action_mask", Box((9,), "uint8", (0.0,), (1.0,))),
        ("obs.a", Box((2, 3), "float64", (-math.inf,) * 6, (1.0, 2.0, 3.0, 4.0, 5.0, math.inf))),
        ("obs.b", Discrete(3, -1)),
    ),
    Composite(
        (
            (("how", 0), Box((), "int16", (-5.0,), (5.0,))),
            (("how", 1), MultiDiscrete((4, 2), (1, 0), (2, 1), "int16")),
            (("which",), Discrete(3, 5)),
        )
    ),
    "action_mask",
)


def test_spaces_survive_json() -> None:
    for spaces in (SPACES, replace(SPACES, obs=SPACES.obs[1:], unread=SPACES.obs[:1])):
        assert from_json(json.loads(json.dumps(to_json(spaces), allow_nan=False))) == spaces


def test_spaces_of_older_versions_are_read() -> None:
    written = to_json(SPACES)
    del written["unread"]
    assert from_json(written) == SPACES
