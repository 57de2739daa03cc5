"""What the calls on a run folder refuse before they open it."""

import contextlib

import pytest

import penstock
from penstock import run
from penstock.config.sources import from_mapping
from penstock.envs.given import Given
from penstock.errors import ConfigError, RunFolderError
from penstock.saved_runs.run_folder import RunFolder


def test_a_number_of_episodes_is_at_least_1() -> None:
    with pytest.raises(ConfigError, match=r"^episodes of evaluate takes a whole number of at least 1, not 0$"):
        penstock.evaluate("nowhere", episodes=0)


def test_a_number_of_processes_is_at_least_1() -> None:
    with pytest.raises(ConfigError, match=r"^num_workers of evaluate takes a whole number of at least 1, not 0$"):
        penstock.evaluate("nowhere", num_workers=0)


@pytest.mark.parametrize("call", [penstock.load_policy, penstock.evaluate, penstock.resume])
def test_a_tilde_stands_for_the_home_of_the_user(tmp_path, monkeypatch, call) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(RunFolderError, match=f"^{tmp_path}/nowhere is no run folder"):
        call("~/nowhere")


def test_a_resume_counts_the_cores_of_the_cluster_as_a_new_run_does(tmp_path, monkeypatch) -> None:
    folder = RunFolder.named(tmp_path, "pole")
    folder.make()
    folder.write_config(from_mapping({"env": "CartPole-v1", "num_workers": 2}))

    def prepare(config, processes, given, cluster_cores):
        raise ConfigError(f"{config.run.num_workers} of {cluster_cores} cores")

    monkeypatch.setattr(run, "load", lambda reference: lambda address, modules: contextlib.nullcontext(24))
    monkeypatch.setattr(run, "prepare", prepare)
    with pytest.raises(ConfigError, match=r"^auto of 24 cores$"):
        penstock.resume(folder.path, settings={"num_workers": "auto", "runtime": "ray"}, quiet=True)


@pytest.mark.parametrize(("env", "joined"), [("CartPole-v1", True), ("gamecore://games:Agent", False)])
def test_no_cluster_is_joined_to_count_its_cores_for_games(monkeypatch, env: str, joined: bool) -> None:
    monkeypatch.setattr(run, "load", lambda reference: lambda address, modules: contextlib.nullcontext(24))
    with run._counted(from_mapping({"env": env, "runtime": "ray"}), Given()) as cores:
        assert cores == (24 if joined else None)
