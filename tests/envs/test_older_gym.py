"""``gym:ID`` and ids of modules that register with ``gym``: by modules made here, and at night by ``gym`` itself."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import penstock
from penstock.envs.gymnasium import ScalarSource
from penstock.envs.names import find, note
from penstock.envs.sources import open_source, probe
from penstock.errors import EnvError
from tests.envs.test_older_api import Before021, From026

SPECS = {"CartPole-v1": None, "Counter-v0": None}


class Registry021:
    """The registry before gym 0.24: it holds its dict."""

    env_specs = SPECS


def make_021(name, **arguments):
    """Make an environment as before gym 0.24: all other arguments are the environment's own."""
    return made(Before021(), name, arguments)


def make_026(name, max_episode_steps=None, disable_env_checker=None, **arguments):
    """Make an environment as since gym 0.24."""
    assert disable_env_checker, "its checker fails with numpy 2"
    return made(From026(), name, arguments)


def made(env, name, arguments):
    env.name, env.arguments = name, arguments
    return env


def gym_module(make, registry):
    module = ModuleType("gym")
    module.make = make
    module.envs = SimpleNamespace(registry=registry)
    return module


VERSIONS = {"0.21": (make_021, Registry021()), "0.26": (make_026, SPECS)}


@pytest.fixture(params=VERSIONS)
def gym(monkeypatch, request):
    monkeypatch.setitem(sys.modules, "gym", gym_module(*VERSIONS[request.param]))


@pytest.mark.usefixtures("gym")
def test_an_id_of_gym_is_made_by_gym_although_gymnasium_has_the_same_id():
    profile = probe("gym:CartPole-v1")
    assert profile.name == "gym:CartPole-v1"
    assert profile.restorable
    assert [spec.shape for _, spec in profile.spaces.obs] == [(1,)]
    env = find("gym:CartPole-v1")(size=3)
    assert (env.name, env.arguments) == ("CartPole-v1", {"size": 3})
    lanes = open_source("gym:CartPole-v1", vector=False, num_lanes=2)
    assert lanes.reset([7, 8])["obs"].tolist() == [[7], [8]]


@pytest.mark.usefixtures("gym")
def test_an_id_that_gym_lacks_gets_similar_ones_of_gym():
    line = r"^module gym registers no environment Count-v0; did you mean gym:Counter-v0, "
    with pytest.raises(EnvError, match=line):
        find("gym:Count-v0")
    # Gymnasium has this one.
    with pytest.raises(EnvError, match=r"^module gym registers no environment Acrobot-v1\b"):
        find("gym:Acrobot-v1")


@pytest.mark.usefixtures("gym")
def test_a_module_that_registers_with_gym_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "registers_with_gym", ModuleType("registers_with_gym"))
    assert find("registers_with_gym:Counter-v0")().name == "Counter-v0"
    with pytest.raises(EnvError, match=r"^module registers_with_gym registers no environment Counter-v9$"):
        find("registers_with_gym:Counter-v9")


@pytest.mark.usefixtures("gym")
def test_gym_has_no_vector_environments_of_ids():
    with pytest.raises(EnvError, match="makes one environment at a time"):
        find("gym:CartPole-v1", vector=True)


def test_gymnasium_under_the_name_of_gym(monkeypatch):
    import gymnasium

    monkeypatch.setitem(sys.modules, "gym", gymnasium)
    assert [spec.shape for _, spec in probe("gym:CartPole-v1").spaces.obs] == [(4,)]


def test_without_gym_it_is_said_to_be_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "gym", None)
    with pytest.raises(EnvError, match=r"^environment gym:CartPole-v1: no module named gym is installed or in /"):
        find("gym:CartPole-v1")


def test_games_of_gym_are_not_said_to_be_preprocessed():
    assert note("PongNoFrameskip-v4")
    assert not note("gym:PongNoFrameskip-v4")


def checker_of(module):
    """A checker that stands in a module of that name, and asks numpy for a type that numpy 2 lacks."""
    place = {"__name__": module, "numpy": np}
    exec("def check():\n    numpy.bool8\n", place)
    return place["check"]


class Checked(From026):
    check = staticmethod(checker_of("gym.utils.passive_env_checker"))

    def step(self, action):
        self.check()
        return super().step(action)


class AsksItself(Checked):
    check = staticmethod(checker_of("my_own.environment"))


def stepped(env):
    lanes = ScalarSource("mine", [env])
    lanes.reset([0])
    lanes.step(np.array([0]), lambda lane: 0)


def test_a_checker_of_gym_that_fails_with_numpy_2_is_to_be_left_out():
    line = r"^lane 0 of mine: the environment checker of gym .* by gym\.make\(\.\.\., disable_env_checker=True\)$"
    with pytest.raises(EnvError, match=line) as caught:
        stepped(Checked())
    assert caught.value.__suppress_context__
    assert "\n" not in str(caught.value)


def test_an_environment_that_asks_for_the_type_itself_has_its_own_error():
    with pytest.raises(AttributeError, match="has no attribute 'bool8'"):
        stepped(AsksItself())


TOOLS = ("pip==24.0", "setuptools==66.1.1", "wheel==0.38.4")
"""Later ones refuse what gym 0.21 says of itself."""
FORMS = """
import gym
env = gym.make("CartPole-v1").unwrapped
print(gym.__version__, type(env.reset()).__name__, len(env.step(0)))
"""


def python(path: Path, *words: object) -> str:
    """What Python prints that finds modules in this folder first."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), os.environ["PYTHONPATH"]])}
    return subprocess.run(
        [sys.executable, *map(str, words)], env=env, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


# Half a minute, and it installs gym. Shorter: those above make environments of both APIs.
@pytest.mark.nightly
@pytest.mark.parametrize(("version", "forms"), [("0.21.0", "0.21.0 ndarray 4"), ("0.26.2", "0.26.2 tuple 5")])
def test_ppo_learns_from_an_environment_of_gym_itself(tmp_path: Path, version: str, forms: str) -> None:
    """gym is installed without its dependencies: penstock has those that it needs here, in versions of today."""
    tools, package = tmp_path / "tools", tmp_path / "package"
    install = ("-m", "pip", "install", "-q", "--no-deps", "--target")
    python(tools, *install, tools, *TOOLS)
    python(tools, *install, package, "--no-build-isolation", f"gym=={version}", "gym-notices==0.0.8")
    assert python(package, "-c", FORMS).strip() == forms
    small = ["--num_envs=4", "--num_workers=2", "--num_steps=64", "--eval_episodes=2", f"--log_dir={tmp_path / 'logs'}"]
    python(package, "-m", "penstock", "train", "--env", "gym:CartPole-v1", "--timesteps=1024", *small)
    (run,) = (tmp_path / "logs").iterdir()
    # Every lane goes on in the middle of its episode.
    assert "could not be restored" not in python(package, "-m", "penstock", "resume", run, "--timesteps=2048")
    metrics = penstock.read_metrics(run)
    assert metrics.query("rows/learned", "last") == 2048
    assert 8 < metrics.query("rollout/return_mean", "last") < 200
    assert metrics.query("eval/episodes", "last") == 2
