"""A user's algorithm is found by its package. One line says which part of it is missing."""

import subprocess
import sys

import pytest

from penstock.algorithm_lookup import (
    ACTION_KINDS,
    algorithms_for,
    check_actions,
    check_learn,
    find_algorithm,
    load_functions,
)
from penstock.config.flags import config_from_arguments
from penstock.config.help import train_help
from penstock.config.sources import from_mapping, from_toml, to_toml, with_changes
from penstock.errors import ConfigError, SpaceError
from penstock.registry import ALGORITHMS, Registry, load

SPEC = """
from dataclasses import dataclass

from penstock.config.fields import tunable

@dataclass(frozen=True)
class Whatever:
    num_steps: int = 16
    colour: str = tunable("red", "what it likes", choices=("red", "blue"))

def spec(spaces, config: Whatever): ...
def init_state(spaces, config, seed): ...
"""
LEARN = "def build(spaces, config): ...\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes an algorithm's package into the working directory, and names it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    before = set(sys.modules)

    def write(spec=SPEC, learn=LEARN, fused=None, init=""):
        (tmp_path / "theirs").mkdir()
        folder = tmp_path / "theirs" / "algo_of_theirs"
        folder.mkdir()
        for name, content in {"__init__": init, "spec": spec, "learn": learn, "fused": fused}.items():
            if content is not None:
                (folder / f"{name}.py").write_text(content)
        return "theirs.algo_of_theirs"

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("theirs"):
            sys.modules.pop(name)


@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_what_ships_is_found_by_the_same_rule(name):
    found = find_algorithm(name)
    check_learn(found)
    references = [found.spec, found.initial, found.learn, found.fused, found.supports]
    assert all(callable(load(reference)) for reference in references if reference is not None)
    assert found.config.__module__.startswith("penstock.algorithms.")
    assert (found.fused is None) == (name in {"r2d2", "bc"})
    assert found.masks == (name in {"ppo", "a2c", "a3c", "impala", "appo", "dqn", "apex", "r2d2", "bc"})


def test_a_users_package_has_a_config_of_any_name(package):
    name = package()
    found = find_algorithm(name)
    check_learn(found)
    assert found.config.__name__ == "Whatever"
    assert found.actions == ACTION_KINDS
    assert (found.fused, found.supports, found.masks) == (None, None, False)
    assert found.learn == "theirs.algo_of_theirs.learn:build"


def test_annotations_may_be_texts_and_the_native_path_be_there(package):
    found = find_algorithm(package(f"from __future__ import annotations\n{SPEC}", fused="def build(): ...\n"))
    assert found.config.__name__ == "Whatever"
    assert found.fused == "theirs.algo_of_theirs.fused:build"
    assert found.supports == "theirs.algo_of_theirs.fused:supports"


def test_its_settings_are_flags_of_train_and_stand_in_its_help(package):
    name = package()
    config = config_from_arguments(["--env", "X", "--algorithm", name, "--colour", "blue", "--num_steps=8"])
    assert (config.algorithm.colour, config.algorithm.num_steps) == ("blue", 8)
    assert config == from_mapping({"env": "X", "algo": name, "colour": "blue", "num_steps": 8})
    for flag in ("--algo", "--algorithm"):
        text = train_help([flag, name, "--help"], 100)
        assert f"Algorithm: {name}\n" in text
        assert "what it likes" in text
        assert "one of red, blue; default red" in text
        assert "--clip_param" not in text
    with pytest.raises(ConfigError, match="--colour takes one of red, blue, not green"):
        config_from_arguments(["--env", "X", "--algo", name, "--colour", "green"])


def test_its_settings_are_read_back_from_a_run_folder(package, tmp_path):
    config = from_mapping({"env": "X", "algo": package(), "colour": "blue"})
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert from_toml(tmp_path / "config.toml") == config


def test_no_torch_is_imported_to_find_or_check_an_algorithm():
    code = "import sys, penstock.algorithm_lookup as a; a.check_learn(a.find_algorithm('ppo')); "
    ended = subprocess.run([sys.executable, "-c", f"{code}sys.exit('torch' in sys.modules)"], check=False)
    assert ended.returncode == 0


FROZEN = "@dataclass(frozen=True)\n"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"spec": None}, r"package theirs.algo_of_theirs has no spec.py$"),
        ({"learn": None}, r"package theirs.algo_of_theirs has no learn.py$"),
        ({"spec": SPEC.replace("def spec", "def specs")}, r"has no function spec\(spaces, config\) -> AlgorithmSpec$"),
        ({"spec": SPEC.replace("def init_state", "def init")}, r"has no function init_state\(spaces, config, seed\)"),
        ({"learn": "def built(): ...\n"}, r"learn has no function build\(spaces, config\) -> Algorithm$"),
        ({"learn": "def build(:\n"}, r"learn cannot be imported: SyntaxError: .*learn.py, line 1\)$"),
        ({"spec": "import nowhere\n"}, r"ModuleNotFoundError: No module named 'nowhere' \(.*spec.py, line 1\)$"),
        ({"spec": "\n\n1 / 0\n"}, r"spec cannot be imported: ZeroDivisionError: .* \(.*spec.py, line 3\)$"),
        ({"init": "import nowhere\n"}, r"No module named 'nowhere' \(.*__init__.py, line 1\)$"),
        ({"spec": SPEC.replace(FROZEN, "@dataclass\n")}, r"Whatever, is no frozen dataclass; write @dataclass\(froz"),
        ({"spec": SPEC.replace(FROZEN, "")}, r"Whatever, is no frozen dataclass"),
        ({"spec": SPEC.replace("config: Whatever", "config")}, r"does not say what its config is; annotate its second"),
        ({"spec": SPEC.replace("config: Whatever", "config: 'Other'")}, r"config of spec .* name 'Other' is not def"),
        ({"spec": SPEC.replace("num_steps: int = 16", "num_steps: int")}, r"Whatever.num_steps has no default"),
        ({"spec": SPEC.replace("num_steps", "steps")}, r"Whatever has no num_steps: int"),
        (
            {"spec": SPEC + 'ACTIONS = ("discret",)\n'},
            r"a tuple of 'discrete', 'bounded', 'unbounded', 'multi_discrete', 'composite', not \('d",
        ),
        ({"spec": SPEC + "MASKS = 1\n"}, r"MASKS in theirs.algo_of_theirs.spec is True or False, not 1$"),
        ({"spec": SPEC + 'ACTIONS = "discrete"\n'}, r"ACTIONS in theirs.algo_of_theirs.spec is a tuple of"),
        (
            {"spec": SPEC.replace("colour", "seed")},
            r"Whatever.seed has the name of a setting that exists already \(.*spec.py\)$",
        ),
        (
            {"spec": SPEC.replace("colour: str", "colour: dict")},
            r"a setting cannot have the type <class 'dict'>: colour \(.*spec.py\)$",
        ),
        (
            {"spec": SPEC.replace('"red", "what', '"green", "what')},
            r"the default of Whatever.colour takes one of red, blue, not green \(.*algo_of_theirs/spec.py\)$",
        ),
        (
            {"spec": SPEC.replace("num_steps: int = 16", "num_steps: int = None")},
            r"the default of Whatever.num_steps takes a whole number, not None \(.*spec.py\)$",
        ),
        ({"spec": SPEC.replace("int = 16", 'int = tunable(16, "", min="1")')}, r"min of Whatever.num_steps is .1.; w"),
        ({"spec": SPEC.replace("int = 16", "int = tunable(16, 1)")}, r"the help of Whatever.num_steps is 1; write a t"),
        ({"spec": SPEC.replace('("red", "blue")', "(1, 2)")}, r"choices of Whatever.colour are \(1, 2\); write a"),
        (
            {"spec": SPEC.replace("choices=", "choice=")},
            r"TypeError: tunable has no choice; it takes min, max, choices, .* \(.*algo_of_theirs/spec.py, line 9\)$",
        ),
        ({"spec": SPEC.replace("int = 16", "list = []")}, r"mutable default .* \(.*algo_of_theirs/spec.py, line 6\)$"),
        (
            {"spec": SPEC.replace("def spec", "    def __post_init__(self): raise ValueError('no')\n\ndef spec")},
            r"Whatever refuses its settings: ValueError: no \(.*spec.py\)$",
        ),
    ],
)
def test_what_is_wrong_with_a_package_is_one_line(package, files, says):
    name = package(**files)
    with pytest.raises(ConfigError, match=rf"^algorithm {name}: .*{says}") as refusal:
        check_learn(find_algorithm(from_mapping({"env": "X", "algo": name}).run.algo))
    assert "\n" not in str(refusal.value)


def test_a_change_that_the_config_class_refuses_on_a_resume_is_one_line(package):
    checks = "    def __post_init__(self):\n        if self.colour == 'blue': raise ValueError('no')\n\ndef spec"
    name = package(spec=SPEC.replace("def spec", checks))
    before = from_mapping({"env": "X", "algo": name})
    with pytest.raises(ConfigError, match=rf"^algorithm {name}: Whatever refuses its settings: ValueError: no "):
        with_changes(before, {"colour": "blue"})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere.at_all", r"^algorithm nowhere.at_all: there is no package nowhere, neither installed nor in "),
        ("json.at_all", r"^algorithm json.at_all: there is no package json.at_all, neither installed nor in "),
        ("email", r"^algorithm email: package email has no spec.py$"),
        (
            "email.message",
            r"^algorithm email.message: email.message is a file; an algorithm is a folder with spec.py in it$",
        ),
        (
            "sacc",
            r"^unknown algorithm 'sacc', and no package of this name is installed or in .*; did you mean sac.*\?$",
        ),
        ("my/algorithm", r"^unknown algorithm 'my/algorithm'; your own is named by its package, as in"),
        ("my..algorithm", r"^unknown algorithm 'my..algorithm'"),
    ],
)
def test_a_package_that_is_not_there_is_one_line(name, says):
    with pytest.raises(ConfigError, match=says):
        find_algorithm(name)


def test_functions_that_cannot_be_imported_are_one_line_without_a_cause(package):
    name = package(learn="import nowhere\ndef build(): ...\n")
    check_learn(find_algorithm(name))
    with pytest.raises(ConfigError, match=r"learn cannot be imported: .* 'nowhere' \(.*learn.py, line 1\)$") as refusal:
        load_functions(f"{name}.learn:build")
    assert refusal.value.__suppress_context__
    assert refusal.value.__cause__ is None


@pytest.fixture
def three(monkeypatch):
    known = {name: f"penstock.algorithms.{name}" for name in ("ppo", "dqn", "td3")} | {"broken": "no_such_package"}
    monkeypatch.setattr("penstock.algorithm_lookup.ALGORITHMS", Registry("algorithm", known))


def test_algorithms_are_listed_by_the_actions_they_serve(three):
    assert algorithms_for("bounded") == "ppo or td3"
    assert algorithms_for("discrete") == "ppo or dqn"
    assert algorithms_for("unbounded") == "ppo"
    assert algorithms_for(masks=True) == "ppo or dqn"


@pytest.mark.parametrize(
    ("serves", "kind", "says"),
    [
        (
            ("discrete",),
            "bounded",
            "mine needs Discrete actions; the environment has a Box of real-numbered actions: use ppo or td3",
        ),
        (
            ("bounded",),
            "discrete",
            "mine needs a Box of real-numbered actions; the environment has Discrete actions: use ppo or dqn",
        ),
        (
            ("bounded",),
            "unbounded",
            "mine needs a Box with bounds; the environment's Box of actions is not bounded: use ppo",
        ),
        (
            ("unbounded",),
            "bounded",
            "mine needs a Box without bounds; the environment's Box of actions is bounded: use ppo or td3",
        ),
        (
            ("discrete", "bounded"),
            "unbounded",
            "mine needs a Box with bounds; the environment's Box of actions is not bounded: use ppo",
        ),
        (
            ("discrete",),
            "multi_discrete",
            "mine needs Discrete actions; the environment has MultiDiscrete or MultiBinary actions: use ppo",
        ),
        (
            ("bounded",),
            "composite",
            "mine needs a Box of real-numbered actions; the environment has a Tuple or Dict of actions: use ppo",
        ),
        (
            ("discrete", "composite"),
            "bounded",
            "mine needs Discrete actions or a Tuple or Dict of actions; the environment has a Box.*: use ppo or td3",
        ),
    ],
)
def test_actions_that_an_algorithm_does_not_serve_are_refused_and_others_named(three, serves, kind, says):
    with pytest.raises(SpaceError, match=f"^{says}$"):
        check_actions("mine", serves, kind)
    check_actions("mine", (*serves, kind), kind)
