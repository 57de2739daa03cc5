"""A user's package can do the same as a shipped algorithm: same numbers, native path, choice of topology."""

import sys

import numpy as np
import pytest

import penstock
from penstock.errors import ConfigError
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint

SETTINGS = {"env": "CartPole-v1", "num_envs": 4, "num_steps": 32, "timesteps": 256, "runtime": "inline"}
SETTINGS |= {"num_workers": 1, "eval_episodes": 1, "seed": 3}
ASYNC = """
from dataclasses import replace
from penstock.algorithms.ppo.spec import PPOConfig, init_state
from penstock.algorithms.ppo import spec as ppo
def spec(spaces, config: PPOConfig):
    return replace(ppo.spec(spaces, config), topology="async_on_policy")
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes a package with the parts of a shipped algorithm, except for the parts that are given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))

    def write(like: str, *parts: str, **others: str) -> str:
        (tmp_path / "theirs").mkdir()
        texts = {part: f"from penstock.algorithms.{like}.{part} import *\n" for part in parts} | others
        for part, text in texts.items():
            (tmp_path / "theirs" / f"{part}.py").write_text(text)
        return "theirs"

    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] == "theirs"]:
        sys.modules.pop(name)


def trained(tmp_path, **settings):
    result = penstock.train({**SETTINGS, "log_dir": str(tmp_path / "logs"), **settings}, quiet=True)
    return load_checkpoint(find_checkpoint(result.run_folder))


@pytest.mark.parametrize(
    ("like", "parts", "backend", "settings"),
    [
        ("ppo", ("spec", "learn", "fused"), "fused", {}),
        ("ppo", ("spec", "learn"), "eager", {}),
        ("dqn", ("spec", "learn"), "eager", {"min_rows": 128, "num_steps": 8, "mini_batch_size": 32, "accumulate": 2}),
    ],
)
def test_the_same_functions_give_the_same_bits_under_another_name(tmp_path, package, like, parts, backend, settings):
    mine = trained(tmp_path, algo=package(like, *parts), **settings)
    theirs = trained(tmp_path, algo=like, **settings, backend=backend)
    assert mine.manifest["algorithm"] == "theirs"
    assert mine.manifest["backend"] == backend
    assert "actor" in mine.arrays
    # The clock is the one thing that may differ.
    for name in mine.arrays.keys() - {"elapsed_s"}:
        np.testing.assert_array_equal(mine.arrays[name], theirs.arrays[name], err_msg=name)


def test_a_native_path_that_is_broken_is_one_line(tmp_path, package):
    name = package("ppo", "spec", "learn", fused="import no_such_module\n")
    with pytest.raises(ConfigError, match=r"fused cannot be imported: .* 'no_such_module' \(.*fused.py, line 1\)$"):
        trained(tmp_path, algo=name)


def test_a_topology_that_only_overlaps_is_refused_in_lock_step(tmp_path, package):
    name = package("ppo", "learn", spec=ASYNC.replace("async_on_policy", "actor_learners"))
    says = "--algo theirs does not run with --sync_mode blocking; give --sync_mode non_blocking"
    with pytest.raises(ConfigError, match=says):
        trained(tmp_path, algo=name, sync_mode="blocking")
    assert not (tmp_path / "logs").exists()


def test_auto_is_the_first_sync_mode_of_the_topology(tmp_path, package):
    name = package("ppo", "learn", spec=ASYNC)
    assert int(trained(tmp_path, algo=name).arrays["steps"]) >= 256
    (folder,) = (tmp_path / "logs").iterdir()
    assert 'sync_mode = "non_blocking"' in (folder / "config.toml").read_text()


def test_a_spec_that_gives_something_else_is_refused(tmp_path, package):
    name = package("ppo", "learn", spec=ASYNC.replace("return replace", "return None and replace"))
    with pytest.raises(ConfigError, match=r"algorithm theirs: theirs.spec:spec gives NoneType, no AlgorithmSpec"):
        trained(tmp_path, algo=name)
