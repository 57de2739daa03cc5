"""Every example runs from beginning to end as a user would start it, for a few steps."""

import asyncio
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from gymnasium.spaces import Box
from onnx import TensorProto, helper

from penstock.clients import GameClient
from penstock.doubles import rehearse
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
LIMIT_S = 300.0
"""Seconds after which a process of a test hangs."""


@pytest.fixture
def run(tmp_path):
    """Runs an example in a folder of its own and gives what it printed."""

    def start(name: str, timesteps: int) -> str:
        command = [sys.executable, ROOT / "examples" / f"{name}.py"]
        arguments = ["--timesteps", str(timesteps), "--log_dir", str(tmp_path / "logs")]
        ended = subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["logs"]
        folders = list((tmp_path / "logs").iterdir())
        assert folders
        assert all((folder / "README.md").is_file() for folder in folders)
        return ended.stdout

    return start


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, text
    return float(found[1].replace(",", ""))


def test_own_environment(run):
    printed = run("own_environment", 3_840)
    assert number(r"mean return (-[\d.]+); everything is in", printed) < 0
    assert re.search(r"heater in a cold room: [012], in a hot room: [012]$", printed, re.MULTILINE)


def test_dict_observations(run):
    printed = run("dict_observations", 4_096)
    assert 0 <= number(r"right answers of 16: ([\d.]+)", printed) <= 16
    assert re.search(r"positive\? (yes|no)$", printed, re.MULTILINE)


@pytest.mark.nightly  # Ten seconds. Shorter: ``test_own_environment`` trains from Python, too.
def test_train_from_python(run):
    printed = run("train_from_python", 2_048)
    assert number(r"mean return ([\d.]+) after 2048 steps", printed) >= 8
    assert 8 <= number(r"one greedy episode: (\d+)", printed) <= 500
    assert "to go on: penstock resume" in printed


@pytest.mark.nightly  # Ten seconds. Shorter: ``tests/algorithms/test_bc.py``, ``tests/end_to_end/test_begin_with.py``.
def test_imitate_controller(run):
    printed = run("imitate_controller", 2_048)
    for name in ("controller", "imitated", "gone on by rewards"):
        assert 8 <= number(rf"{name}: the pole stays up for (\d+) of 500 steps", printed) <= 500


@pytest.mark.nightly  # Seven seconds. Shorter: ``tests/envs/test_older_gym.py``.
def test_older_gym_api(run):
    printed = run("older_gym_api", 2_048)
    assert 5 <= number(r"the ball stays on the beam for (\d+) of 200 steps", printed) <= 200


@pytest.mark.nightly  # Twelve seconds. Shorter: ``tests/end_to_end/test_own_reward.py`` trains with such rewards.
def test_own_reward(run):
    printed = run("own_reward", 2_048)
    for name in ("centred", "Calm"):
        assert 8 <= number(rf"{name}: the pole stays up for (\d+) of 500 steps", printed) <= 500
    assert "shaped return" in printed


@pytest.mark.nightly  # Half a minute. Shorter: ``test_mujoco_arm``.
def test_mujoco_arm_learns(run):
    printed = run("mujoco_arm", 1_536)
    assert 0 <= number(r"the tip is ([\d.]+) m from its target, on average of 10 arms", printed) < 0.8


def test_mujoco_arm(monkeypatch):
    """Each reset draws another arm, by its seed alone: the same seed and actions bring the same episode again."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    env = importlib.import_module("mujoco_arm").make_env()

    def played(seed: int) -> tuple[np.ndarray, list[float]]:
        obs, _ = env.reset(seed=seed)
        assert env.observation_space.contains(obs)
        actions = np.random.default_rng(0).uniform(-1.0, 1.0, (20, 2)).astype(np.float32)
        rewards = [float(env.step(action)[1]) for action in actions]
        return env.unwrapped.model.body_mass.copy(), rewards

    (mass, rewards), (other_mass, _), (again, same) = played(1), played(2), played(1)
    assert rewards == same
    assert mass.tolist() == again.tolist() != other_mass.tolist()
    assert env.action_space == Box(-1.0, 1.0, (2,), np.float32)


def test_vector_environment(run):
    printed = run("vector_environment", 3_200)
    assert number(r"mean return (-[\d.]+)", printed) < 0
    assert "from (0.5, 0.5) the policy pushes by [" in printed


def test_many_agents(run):
    printed = run("many_agents", 3_072)
    assert number(r"mean return of a walker (-[\d.]+)", printed) < 0
    assert "with both others at (1, 0) it goes by [" in printed


def test_self_play(run):
    printed = run("self_play", 4_096)
    assert re.search(r"rock, paper, scissors: \[[\d. ]+\]", printed)
    assert 0 <= number(r"the best answer wins ([\d.]+) a round", printed) <= 2


WITHOUT = """
import runpy, sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"penstock", "torch", "gymnasium"}:
            raise ImportError(f"{name} is not needed")

sys.meta_path.insert(0, Refused())
runpy.run_path(sys.argv[1], run_name="__main__")
"""


# Nine seconds each. Shorter: ``tests/serving/test_bundle.py`` shows that bundles act as their runs do.
@pytest.mark.nightly
@pytest.mark.parametrize("settings", ["--env CartPole-v1", "--env Pendulum-v1 --model gru --memory_size 8"])
def test_run_bundle(penstock, tmp_path, settings):
    """It runs where penstock, torch and gymnasium cannot be imported."""
    penstock(f"train {settings} --timesteps 256 --num_envs 2 --num_steps 16 --mini_batch_size 32 --eval_episodes 1")
    assert "penstock verify policy --against" in penstock("export latest --out policy --observations 16")
    assert "on 16 observations" in penstock("verify policy")
    script = ROOT / "examples" / "run_bundle.py"
    command = [sys.executable, "-c", WITHOUT.replace("sys.argv[1]", repr(str(script))), "policy"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert number(r": 16 answers, largest error ([\d.e+-]+)$", ended.stdout.strip()) < 1e-4


@pytest.fixture
def remembering(tmp_path) -> Path:
    """A bundle by hand: its action is the observation and the sum of those before."""
    shapes = {"obs": ["n", 2], "first": ["n"], "carry.sum": ["n", 2], "action": ["n", 2], "next.carry.sum": ["n", 2]}
    kinds = {"first": TensorProto.BOOL}
    values = [
        helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape) for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Add", ["obs", "carry.sum"], ["action"]),
        helper.make_node("Identity", ["action"], ["next.carry.sum"]),
    ]
    graph = helper.make_graph(nodes, "policy", values[:3], values[3:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, tmp_path / "policy.onnx")
    roles = {"obs": "observation", "first": "first", "carry.sum": "carry"}
    ports = [{"name": name, "dtype": "float32", "shape": ["n", 2], "role": role} for name, role in roles.items()]
    action = {"name": "action", "dtype": "float32", "shape": ["n", 2], "role": "action"}
    box = {"kind": "box", "shape": [2], "dtype": "float32", "low": [-1.0, None], "high": [1.0, None]}
    facts = {"inputs": ports, "outputs": [action], "spaces": {"action": box}}
    (tmp_path / "manifest.json").write_text(json.dumps(facts))
    np.savez(tmp_path / "sample.npz", **{"input.obs": np.eye(2, dtype=np.float32)})
    return tmp_path


def test_control_loop(remembering):
    """It shows what it saw and fails at its limit, where penstock, torch and gymnasium cannot be imported."""
    script = ROOT / "examples" / "control_loop.py"
    for limit, code in ((1e9, 0), (0, 1)):
        arguments = [remembering, "--hz", "1000", "--seconds", "0.05", "--limit_us", str(limit)]
        command = [sys.executable, "-c", WITHOUT.replace("sys.argv[1]", repr(str(script))), *arguments]
        ended = subprocess.run(command, cwd=remembering, capture_output=True, text=True, check=False)
        assert ended.returncode == code, ended.stderr
        answer, wake = ended.stdout.splitlines()
        figures = "p50 {0} us, p99 {0} us, p99.9 {0} us, longest {0} us".format(r"[\d,]+")
        assert re.fullmatch(rf"answer +{figures}", answer)
        assert re.fullmatch(rf"wake-up late by +{figures}; [\d,]+ of [\d,]+ deadlines missed", wake)


STAND_IN = """
#pragma once
#include <array>
#include <cstdint>
#include <exception>
#include <vector>

enum { ORT_LOGGING_LEVEL_WARNING, OrtArenaAllocator, OrtMemTypeDefault, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 };

namespace Ort {
struct Exception : std::exception {
    const char* what() const noexcept override { return "obs has a wrong length"; }
};
struct Env { Env(int, const char*) {} };
struct RunOptions { RunOptions(std::nullptr_t) {} };
struct SessionOptions {
    void SetIntraOpNumThreads(int) {}
    void SetInterOpNumThreads(int) {}
};
struct MemoryInfo {
    static MemoryInfo CreateCpu(int, int) { return {}; }
};
struct About {
    std::size_t GetElementCount() const { return 1; }
    int GetElementType() const { return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64; }
};
struct Value {
    float* numbers;
    std::size_t count;
    std::int64_t choice;
    About GetTensorTypeAndShapeInfo() const { return {}; }
    template <typename T> const T* GetTensorData() const { return reinterpret_cast<const T*>(&choice); }
    template <typename T>
    static Value CreateTensor(const MemoryInfo&, T* numbers, std::size_t count, const std::int64_t*, std::size_t) {
        return {numbers, count, 0};
    }
};
struct Session {
    Session(Env&, const char*, const SessionOptions&) {}
    std::size_t GetInputCount() const { return 1; }
    std::vector<Value> Run(const RunOptions&, const char**, const Value* obs, int, const char**, int) {
        if (obs->count != 2) throw Exception();
        return {Value{nullptr, 1, obs->numbers[0] < obs->numbers[1]}};
    }
};
}
"""


def test_onnx_cpp(tmp_path):
    """It compiles, and shows what it measures. The runtime is a stand-in, as its Python package has no headers."""
    (tmp_path / "onnxruntime_cxx_api.h").write_text(STAND_IN)
    source = ROOT / "examples" / "onnx_cpp" / "policy.cpp"
    program = tmp_path / "policy"
    compile_it = [os.environ.get("CXX", "c++"), "-std=c++17", "-I", tmp_path, source, "-o", program]
    subprocess.run(compile_it, check=True)

    def ended(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)

    answered = ended("policy.onnx", "50", "1", "2")
    assert answered.returncode == 0, answered.stderr
    action, times = answered.stdout.splitlines()
    assert action == "action 1"
    found = re.fullmatch(r"50 calls: p50 (.+) us, p99 (.+) us, p99\.9 (.+) us, longest (.+) us", times)
    assert found
    shown = [float(one) for one in found.groups()]
    assert shown == sorted(shown)
    assert ended("policy.onnx", "50", "1").stderr == "obs has a wrong length\n"
    assert ended("policy.onnx").returncode == 2


WATCHED = """
import sys
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv
from gymnasium.wrappers import TimeLimit

class Watched:
    def step(self, action):
        assert "torch" not in sys.modules, "a process that steps environments has imported torch"
        return super().step(action)

class CartPole(Watched, CartPoleEnv):
    pass

class Pendulum(Watched, PendulumEnv):
    pass

def make_pendulum():
    return TimeLimit(Pendulum(), 200)

def make_env():
    return TimeLimit(CartPole(), 500)
"""


@pytest.fixture
def penstock(tmp_path):
    """Runs a command beside the examples ``my_package.my_algorithm`` and ``own_network``, and gives what it printed."""
    shutil.copytree(ROOT / "examples" / "own_algorithm", tmp_path / "my_package" / "my_algorithm")
    shutil.copytree(ROOT / "examples" / "own_network", tmp_path / "own_network")
    (tmp_path / "watched.py").write_text(WATCHED)

    def call(line: str, code: int = 0) -> str:
        command = [Path(sys.executable).parent / "penstock", *line.split()]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == code, ended.stderr
        return ended.stdout + ended.stderr

    return call


# Twenty seconds. Shorter: its settings below are shown and refused, and ``tests/serving/test_bundle.py`` trains it.
@pytest.mark.nightly
def test_own_algorithm(penstock, tmp_path):
    """It learns, is evaluated, resumed, loaded and exported like what ships; acting processes import no torch."""
    train = "train --env watched:make_env --algorithm my_package.my_algorithm --num_workers 2"
    printed = penstock(f"{train} --timesteps 40_960 --eval_episodes 20")
    assert number(r"return ([\d.]+) ± ", printed) > 100
    (folder,) = (tmp_path / "logs").iterdir()
    assert folder.name.startswith("watched_make_env-my_package.my_algorithm-")
    assert (folder / "policy.onnx").is_file()
    assert 'algo = "my_package.my_algorithm"' in (folder / "config.toml").read_text()
    assert json.loads(penstock("eval latest --episodes 5 --json"))["mean_return"] > 50
    assert number(r"return ([\d.]+) ± ", penstock("resume latest --timesteps 43_008 --lr 5e-3 --eval_episodes 5")) > 50
    code = "import sys, penstock; print(penstock.load_policy(sys.argv[1])([0.0, 0.0, 0.0, 0.0]))"
    command = [sys.executable, "-c", code, folder]
    loaded = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert loaded.stdout.strip() in {"0", "1"}, loaded.stderr


# Nine seconds and more each. Shorter: ``tests/serving/test_bundle.py`` trains it, ``tests/updates/test_updaters.py``
# compiles an update, and ``tests/end_to_end/test_policy_placement.py`` has policy nodes.
@pytest.mark.nightly
@pytest.mark.parametrize(
    "settings",
    [
        "--sync_mode non_blocking --num_workers 2 --backend compiled",
        "--runtime inline --accumulate 4",
        "--policy_placement node --inference torch",
    ],
)
def test_own_algorithm_runs_in_every_way(penstock, settings):
    train = "train --env CartPole-v1 --algo my_package.my_algorithm --timesteps 1_024 --eval_episodes 2"
    assert number(r"return ([\d.]+) ± ", penstock(f"{train} {settings}")) >= 8


def test_own_algorithm_is_helped_with_and_refused_like_the_others(penstock):
    shown = penstock("train --algo my_package.my_algorithm --help")
    assert "Algorithm: my_package.my_algorithm" in shown
    assert "width of the one hidden layer" in shown
    said = penstock("train --env Pendulum-v1 --algo my_package.my_algorithm", 2)
    assert said.startswith(
        "penstock: error: my_package.my_algorithm needs Discrete actions; the environment has a Box "
    )
    said = penstock("train --env CartPole-v1 --algo my_package.my_algoritm", 2)
    assert said.startswith("penstock: error: algorithm my_package.my_algoritm: there is no package my_package.my_alg")
    assert said.count("\n") == 1


def test_own_algorithm_says_in_one_line_that_its_learn_cannot_be_imported(penstock, tmp_path):
    learn = tmp_path / "my_package" / "my_algorithm" / "learn.py"
    learn.write_text(f"import no_such_module\n{learn.read_text()}")
    said = penstock("train --env CartPole-v1 --algo my_package.my_algorithm --timesteps 1_024", 2)
    (line,) = [line for line in said.splitlines() if line.startswith("penstock: error:")]
    assert "ModuleNotFoundError: No module named 'no_such_module' (" in line
    assert "Traceback" not in said


OWN_MODEL = "--model own_network."


# Ten seconds each and more, mostly for the export. Shorter: ``tests/end_to_end/test_networks.py`` trains modules.
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("settings", "timesteps", "least"),
    [
        (f"--env watched:make_env {OWN_MODEL}nets:make_policy --backend eager", 16_384, 50),
        (f"--env watched:make_env {OWN_MODEL}remembering:Remembering --backend eager", 2_048, 8),
        (
            f"--env watched:make_pendulum --algo sac {OWN_MODEL}steering:Steering --backend eager --min_rows 512",
            1_024,
            -2_000,
        ),
    ],
    ids=["plain", "memory", "actor and critic"],
)
def test_own_network(penstock, tmp_path, settings, timesteps, least):
    """It learns and is evaluated by the line that the example names; acting processes import no torch."""
    printed = penstock(f"train {settings} --num_workers 2 --num_steps 128 --timesteps {timesteps} --eval_episodes 20")
    assert number(r"return ([-\d.,]+) ± ", printed) > least
    (folder,) = (tmp_path / "logs").iterdir()
    assert (folder / "policy.onnx").is_file()


def test_own_algorithm_is_short():
    files = list((ROOT / "examples" / "own_algorithm").iterdir())
    assert sum(len(path.read_text().splitlines()) for path in files if path.is_file()) < 150


@pytest.mark.nightly  # Eight seconds. Shorter: the one whose ``learn`` cannot be imported.
def test_own_algorithm_that_fails_in_every_update_ends_its_run(penstock, tmp_path):
    learn = tmp_path / "my_package" / "my_algorithm" / "learn.py"
    # A dry run has no rewards, so it is not seen there.
    failing = "statistics=lambda state, rollout: {0: {}}[int(rollout['reward'].any())],"
    learn.write_text(learn.read_text().replace("statistics=lambda state, rollout: {},", failing))
    said = penstock("train --env CartPole-v1 --algo my_package.my_algorithm --timesteps 1_024 --max_restarts 1", 1)
    assert "learner was started 1 time more, without any progress; at last:" in said
    assert "KeyError: 1" in said


@pytest.mark.nightly  # Ten seconds. Shorter: ``tests/games`` trains from games.
def test_game(tmp_path):
    """The two commands of its docstring: games connect to a run and train it, and end once the run is over."""
    folder = ROOT / "examples/game"
    port = free_port()
    train = [sys.executable, "-m", "penstock", "train", "--algo", "appo", "--env", "gamecore://cart_agent:CartAgent"]
    train += ["--tcp_port", str(port), "--timesteps", "2000", "--num_steps", "16", "--mini_batch_size", "32"]
    train += ["--log_dir", tmp_path / "logs"]
    # Once the run has answered, games need not wait for it: then nobody there means that it is over.
    play = [sys.executable, "cart_game.py", f"tcp://localhost:{port}", "--games", "4", "--patience", "3"]
    with (tmp_path / "said").open("w") as said:
        run = subprocess.Popen(train, cwd=folder, stdout=said, stderr=said)
    try:
        with GameClient(f"tcp://localhost:{port}", "first", patience=150.0) as first:
            first.start()
            first.stop()
        games = subprocess.run(play, cwd=folder, check=False)
        run.wait()
    finally:
        run.kill()
        run.wait()
    assert (games.returncode, run.returncode) == (0, 0), (tmp_path / "said").read_text()
    (made,) = (tmp_path / "logs").iterdir()
    assert "2,0" in (made / "README.md").read_text()


def test_plan_pendulum(penstock, tmp_path):
    command = [sys.executable, ROOT / "examples/plan_pendulum.py", "--episodes", "1", "--keep", tmp_path / "kept"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert number(r"mean return (-[\d.]+) over 1 episodes, nothing was trained", said) > -500
    penstock(
        f"train --algo td3 --env Pendulum-v1 --demonstrations {tmp_path / 'kept'} --imitation 2.5 --timesteps 1_100"
    )


def test_own_learner():
    command = [sys.executable, ROOT / "examples/own_learner.py"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout
    assert 100 <= number(r"^([\d,]+) updates on \d+ rows of 2 processes", said) < 20_000
    assert "greedy return 1, the best is 1" in said


def test_duel(monkeypatch):
    """Two addresses play one game, each with its own policy: who goes for the coin beats who stays where it is."""
    monkeypatch.syspath_prepend(ROOT / "examples" / "duel")
    game = importlib.import_module("duel_game")
    totals: list[float] = []
    for_the_coin = rehearse(
        "duel_agent:DuelAgent", act=lambda seen: 1 + int(np.sign(seen["obs"][0, 2] - seen["obs"][0, 0]))
    )
    with for_the_coin as first, rehearse("duel_agent:DuelAgent", act=lambda _: 1) as second:
        asyncio.run(game.play([first.tcp, second.tcp], number=0, patience=5.0, duels=2, totals=totals))
        asyncio.run(game.play([first.tcp], number=1, patience=5.0, duels=1, totals=totals))
    assert len(totals) == 3
    assert min(totals) > 0


@pytest.mark.nightly  # Half a minute. Shorter: ``test_duel``.
def test_duel_trains_against_a_served_policy(tmp_path):
    """The commands of its docstring, shorter: one side learns, the other is the policy of the run before."""
    folder = ROOT / "examples/duel"
    ports = [free_port(), free_port()]
    urls = [f"tcp://localhost:{port}" for port in ports]
    penstock = [sys.executable, "-m", "penstock"]
    train = [*penstock, "train", "--config", "duel.toml", "--tcp_port", str(ports[0]), "--timesteps", "1024"]
    started: list[subprocess.Popen] = []
    with (tmp_path / "said").open("w") as said:

        def start(*command) -> subprocess.Popen:
            started.append(subprocess.Popen(command, cwd=folder, stdout=said, stderr=said))
            return started[-1]

        def play(*urls: str) -> subprocess.CompletedProcess:
            command = [sys.executable, "duel_game.py", "--patience", "20", *urls]
            return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=LIMIT_S)

        try:
            first = start(*train, "--log_dir", tmp_path / "first")
            alone = play(urls[0])
            assert first.wait(LIMIT_S) == 0, (tmp_path / "said").read_text()
            (run,) = (tmp_path / "first").iterdir()
            start(*penstock, "serve", run, "--tcp_port", str(ports[1]), "--port", "0")
            second = start(*train, "--log_dir", tmp_path / "second")
            against = play(*urls)
            assert number(r"^(\d+) duels", against.stdout) > 5, (tmp_path / "said").read_text()
            assert second.wait(LIMIT_S) == 0, (tmp_path / "said").read_text()
        finally:
            for process in started:
                process.kill()
                process.wait()
    for game in (alone, against):
        assert game.returncode == 0, game.stderr
        assert number(r"^(\d+) duels; in the last", game.stdout) > 5


def test_every_example_is_tested():
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    tested |= {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    examples = [path for path in (ROOT / "examples").iterdir() if path.suffix != ".md" and path.name[:2] != "__"]
    assert {path.stem for path in examples} <= tested
    listed = (ROOT / "examples/README.md").read_text()
    assert all(f"[{path.name}" in listed for path in examples)
