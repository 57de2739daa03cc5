"""Modules of the user that are not installed go to the other machines of a run."""

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from penstock.algorithm_lookup import find_algorithm
from penstock.cluster.connection import joined
from penstock.cluster.own_code import runtime_env
from penstock.errors import ConfigError
from penstock.planning.own_modules import modules_named, top_level
from penstock.planning.plans import plan
from penstock.saved_runs.checkpoints import list_checkpoints
from penstock.types import EnvRecipe, Wrapper
from tests.cluster.conftest import MACHINE
from tests.cluster.test_deputy import copied, deputies
from tests.planned import prepared
from tests.runtime.nodes import wait_until

ENV = """
import os, pathlib
import gymnasium
import beside, packed.deep, tools.shaping

class Env(gymnasium.Wrapper):
    def __init__(self, told):
        super().__init__(gymnasium.make("CartPole-v1"))
        modules = beside, packed.deep, tools.shaping
        files = [__file__, *(module.__file__ for module in modules)]
        pathlib.Path(told, str(os.getpid())).write_text("\\n".join(files))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an environment, a module and two packages beside it, and data."""
    made = tmp_path / "own"
    for package in ("packed", "penstock"):
        (made / package).mkdir(parents=True)
        (made / package / "__init__.py").touch()
    (made / "packed/deep.py").touch()
    (made / "packed/numbers.txt").write_text("1 2 3")
    (made / "beside.py").touch()
    (made / "own_env.py").write_text(ENV)
    (made / "data").mkdir()
    (made / "data/large.bin").touch()
    (made / "tools").mkdir()
    (made / "tools/shaping.py").touch()
    (made / "tools/large.bin").touch()
    monkeypatch.chdir(made)
    monkeypatch.syspath_prepend(str(made))
    return made


def test_what_lies_beside_a_named_module_goes_along_but_no_data_and_not_penstock(folder: Path) -> None:
    with runtime_env(["own_env", "gymnasium", "no_such_module", "sys"]) as found:
        sent = Path(found["working_dir"])
        assert sorted(path.name for path in sent.iterdir()) == ["beside.py", "own_env.py", "packed", "tools"]
        assert (sent / "packed/numbers.txt").read_text() == "1 2 3"
        # Python imports it although it has no __init__.py, as it does any folder.
        assert [path.name for path in (sent / "tools").iterdir()] == ["shaping.py"]
    assert not sent.exists()


def test_a_folder_that_may_not_be_read_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = folder / "private"
    private.mkdir()
    is_file = Path.is_file

    def refused(path: Path) -> bool:
        # A superuser, who may run these tests, reads every folder.
        if path.parent == private:
            raise PermissionError(path)
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refused)
    with runtime_env(["own_env"]) as found:
        names = {path.name for path in Path(found["working_dir"]).iterdir()}
    assert names == {"beside.py", "own_env.py", "packed", "tools"}


def test_packages_of_several_folders_are_sent_as_one(folder: Path, tmp_path: Path, monkeypatch) -> None:
    other = tmp_path / "other"
    (other / "apart").mkdir(parents=True)
    # A package without an __init__.py is found by its name only.
    (other / "apart/rewards.py").touch()
    monkeypatch.syspath_prepend(str(other))
    with runtime_env(["packed", "apart"]) as found:
        names = {path.name for path in Path(found["working_dir"]).iterdir()}
    assert names == {"apart", "packed", "beside.py", "own_env.py", "tools"}


def test_a_script_goes_along_with_what_lies_beside_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(folder / "script.py"), raising=False)
    (folder / "script.py").touch()
    with runtime_env(["__main__"]) as found:
        names = {path.name for path in Path(found["working_dir"]).iterdir()}
    assert names == {"script.py", "beside.py", "own_env.py", "packed", "tools"}
    # An interactive interpreter has no script.
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    with runtime_env(["__main__"]) as found:
        assert found == {}


@pytest.mark.usefixtures("folder")
def test_nothing_is_sent_if_all_that_a_run_names_is_installed() -> None:
    with runtime_env(["gymnasium", "no_such_module"]) as found:
        assert found == {}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("job", "sent"), [({"working_dir": "gcs://code.zip"}, False), ({"env_vars": {"A": "1"}}, True)]
)
def test_a_job_of_ray_brings_its_own_code(monkeypatch: pytest.MonkeyPatch, job: dict[str, object], sent: bool) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps({"runtime_env": job, "metadata": {}}))
    with runtime_env(["own_env"]) as found:
        assert bool(found) == sent


def test_a_run_names_the_modules_of_its_environment_wrappers_reward_algorithm_and_network() -> None:
    wrappers = Wrapper("wraps.of_mine:Slow", {}), Wrapper(b"pickled", {})
    recipe = EnvRecipe("games.car:Car-v0", {}, wrappers)
    algorithm = find_algorithm("ppo")._replace(package="my_package.my_algorithm")
    found = modules_named(recipe, "rewards:shaped", algorithm, model="nets:Net")
    assert found == ("games.car", "wraps.of_mine", "__main__", "rewards", "my_package.my_algorithm", "nets")
    assert top_level(found) == ("games", "wraps", "__main__", "rewards", "my_package", "nets")
    assert modules_named("CartPole-v1", None, find_algorithm("ppo"), model='{"mlp": [64]}') == ()
    assert modules_named("gamecore://agents:Agent") == ("agents",)
    assert modules_named(b"pickled") == ("__main__",)
    for name in ("pettingzoo:mine.chase", "pettingzoo:mine.chase:make"):
        assert modules_named(name) == ("mine.chase",)
    assert modules_named("envpool:Pong-v5") == modules_named("dm_env_rpc://127.0.0.1:9000") == ()


@pytest.mark.usefixtures("folder")
def test_what_is_too_large_to_be_sent_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def refuse(**_: object) -> None:
        raise ray.exceptions.RuntimeEnvSetupError(
            "Package size (600MiB) exceeds the maximum size of 512MiB. To exclude"
        )

    monkeypatch.setattr(ray, "init", refuse)
    what_to_do = r"maximum size of 512MiB; name in a file .gitignore in your package"
    with pytest.raises(ConfigError, match=what_to_do), joined("local", ["own_env"]):
        pytest.fail("it was joined")


@pytest.mark.nightly  # Twenty-five seconds. Shorter: those above say what is sent, and to whom.
def test_environments_of_other_machines_import_what_was_sent(cluster, folder: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.mkdir()
    flags = ["--num_workers", "4", "--num_steps", "32", "--timesteps", "512", "--eval_episodes", "1"]
    where = ["--distributed", "True", "--address", cluster.address, "--log_dir", str(tmp_path / "logs")]
    own = ["--env", "own_env:Env", "--env_args", json.dumps({"told": str(told)})]
    subprocess.run([sys.executable, "-P", "-m", "penstock", "train", *own, *flags, *where], check=True, cwd=folder)
    places = [path.read_text().split() for path in told.iterdir()]
    sent = [place for place in places if not place[0].startswith(str(folder))]
    # Four processes on three machines with two cores each: two at home.
    assert len(sent) == 2
    for files in sent:
        assert all("runtime_resources" in file for file in files)


# A minute. Shorter: the test above, and those of ``test_deputy.py``.
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_users_code_is_there_after_the_launchers_machine_is_lost(cluster, machine, folder, tmp_path: Path) -> None:
    told, logs = tmp_path / "told", tmp_path / "logs"
    told.mkdir()
    words = ["--env", "own_env:Env", "--env_args", json.dumps({"told": str(told)}), "--num_workers", "4"]
    words += ["--timesteps", "1000000000", "--runtime", "ray", "--address", cluster.address, "--log_dir", str(logs)]
    launcher = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.cluster.on_machine", MACHINE, "train", *words], cwd=folder
    )
    try:
        assert wait_until(lambda: copied(logs, "update-00000001"), 150)
        # All machines of this test share a disk: now the code is nowhere but where Ray has brought it.
        folder.rename(folder.with_name("gone"))
        before = set(told.iterdir())
    finally:
        launcher.kill()
        cluster.remove_node(machine, allow_graceful=False)
        launcher.wait()
    try:
        assert wait_until(lambda: len(set(told.iterdir()) - before) >= 4, 150)
        assert wait_until(lambda: any(map(list_checkpoints, logs.glob("*-2"))), 60)
    finally:
        for process in psutil.process_iter(["cmdline"]):
            if "resume" in (words := process.info["cmdline"] or []) and any(str(logs) in word for word in words):
                process.terminate()
    for place in set(told.iterdir()) - before:
        assert all("runtime_resources" in file for file in place.read_text().split())
    assert wait_until(lambda: not deputies(), 150)


def test_a_plan_knows_the_modules_of_its_run(tmp_path: Path) -> None:
    run = prepared(env="tests.environments:IdentityEnv")
    assert plan(run, tmp_path, quiet=True).modules == ("tests",)
    # Installed ones are named as well. An algorithm of penstock is not.
    assert plan(prepared(env="CartPole-v1"), tmp_path, quiet=True).modules == ()
