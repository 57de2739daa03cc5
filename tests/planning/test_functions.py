"""What the update of a user's algorithm gives is tried before a run begins, in a process apart that may end."""

import sys

import pytest

import penstock
from penstock.errors import ConfigError

SETTINGS = {"env": "CartPole-v1", "algo": "theirs", "num_envs": 4, "num_steps": 32, "timesteps": 256}
SETTINGS |= {"num_workers": 1, "eval_episodes": 1}
ENDS = """
import os, signal
from penstock.algorithms.ppo.fused import supports
def build(spaces, config):
    {how}
"""
NATIVE = "from penstock.algorithms.ppo.fused import *\n"
HEADLESS = """
from penstock.algorithms.ppo import spec as ppo
def init_state(spaces, config, seed):
    return {name: values for name, values in ppo.init_state(spaces, config, seed).items() if name != "actor"}
"""
WITHOUT_TORCH = """
import sys
from penstock.algorithms.ppo import fused
from penstock.algorithms.ppo.fused import supports
def build(spaces, config):
    if "torch" in sys.modules:
        raise ImportError("torch was imported")
    return fused.build(spaces, config)
"""
WHICH = """
from penstock.algorithms.ppo import fused
from penstock.algorithms.ppo.fused import supports
def build(spaces, config):
    made = fused.build(spaces, config)
    def update(shape, threads):
        update = made.update(shape, threads)
        update.{method} = None
        return update
    return made._replace(update=update)
"""


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Trains with the package of PPO whose ``fused.py`` is this text. The other text is added to its ``spec.py``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))

    def train(fused: str, spec: str = "", **settings: object) -> penstock.Result:
        (tmp_path / "theirs").mkdir()
        for part, text in (("spec", spec), ("learn", "")):
            (tmp_path / "theirs" / f"{part}.py").write_text(f"from penstock.algorithms.ppo.{part} import *\n{text}")
        (tmp_path / "theirs" / "fused.py").write_text(fused)
        return penstock.train({**SETTINGS, "log_dir": str(tmp_path / "logs"), **settings}, quiet=True)

    yield train
    for name in [name for name in sys.modules if name.partition(".")[0] == "theirs"]:
        sys.modules.pop(name)


@pytest.mark.parametrize(
    ("how", "says"), [("os.kill(os.getpid(), signal.SIGSEGV)", "by SIGSEGV"), ("os._exit(3)", "with exit code 3")]
)
def test_a_native_update_that_ends_its_process_is_one_line(trained, tmp_path, how: str, says: str) -> None:
    with pytest.raises(
        ConfigError, match=f"^algorithm theirs cannot be tried on made-up rows: it ended its process {says}$"
    ):
        trained(ENDS.format(how=how))
    assert not (tmp_path / "logs").exists()


def test_a_first_state_without_a_network_is_refused(trained, tmp_path) -> None:
    with pytest.raises(
        ConfigError, match=r"init_state in theirs\.spec does not give actor, the parameters of a network"
    ):
        trained(NATIVE, HEADLESS)
    assert not (tmp_path / "logs").exists()


def test_a_missing_function_is_named_with_what_it_takes(trained) -> None:
    with pytest.raises(ConfigError, match=r"theirs\.fused has no function supports\(graph, config\) -> bool$"):
        trained("def build(spaces, config):\n    pass\n")


def test_it_is_tried_without_torch(trained) -> None:
    assert trained(WITHOUT_TORCH).steps >= 256


@pytest.mark.parametrize(("learners", "method"), [(1, "run"), (2, "gradients")])
def test_those_methods_are_tried_that_the_learners_call(trained, tmp_path, learners: int, method: str) -> None:
    with pytest.raises(ConfigError, match=rf"algorithm theirs: update in theirs.fused .* has no method {method};"):
        trained(WHICH.format(method=method), learners=learners, num_workers=learners)
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("how", "says"), [("os.kill(os.getpid(), signal.SIGSEGV)", "by SIGSEGV"), ("os._exit(0)", "with no error")]
)
def test_supports_that_ends_its_process_is_one_line(trained, tmp_path, how: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^supports of algorithm theirs cannot be called: .* process {says}$"):
        trained(f"import os, signal\ndef supports(graph, config):\n    {how}\n")
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("supports", "says"),
    [
        ("return 1", r"supports in theirs\.fused gives 1; return True or False"),
        ("return graph.no", r"supports in theirs\.fused fails: AttributeError: .*'no' \(.*fused\.py, line 2\)"),
    ],
)
def test_supports_says_true_or_false(trained, tmp_path, supports: str, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"^algorithm theirs: {says}$"):
        trained(f"def supports(graph, config):\n    {supports}\n", runtime="inline")
    assert not (tmp_path / "logs").exists()
