"""The cores of a cluster, counted for the number of environment processes."""

import contextlib

import pytest

import penstock
from penstock.config.sources import from_mapping
from penstock.envs.given import Given
from penstock.errors import ConfigError
from penstock.notes import table_in_memory
from penstock.processes.machine import table_memory
from penstock.run import launching, resuming
from penstock.saved_runs.run_folder import RunFolder
from tests.cluster.handing import sharded_program


def test_a_resume_counts_the_cores_of_the_cluster_as_a_new_run_does(tmp_path, monkeypatch) -> None:
    folder = RunFolder.named(tmp_path, "pole")
    folder.make()
    folder.write_config(from_mapping({"env": "CartPole-v1", "num_workers": 2}))

    def prepare(config, processes, given, cluster_cores):
        raise ConfigError(f"{config.run.num_workers} of {cluster_cores} cores")

    monkeypatch.setattr(launching, "load", lambda reference: lambda address, modules: contextlib.nullcontext(24))
    monkeypatch.setattr(resuming, "prepare", prepare)
    with pytest.raises(ConfigError, match=r"^auto of 24 cores$"):
        penstock.resume(folder.path, settings={"num_workers": "auto", "runtime": "ray"}, quiet=True)


@pytest.mark.parametrize(("env", "joined"), [("CartPole-v1", True), ("gamecore://games:Agent", False)])
def test_no_cluster_is_joined_to_count_its_cores_for_games(monkeypatch, env: str, joined: bool) -> None:
    monkeypatch.setattr(launching, "load", lambda reference: lambda address, modules: contextlib.nullcontext(24))
    with launching.counted_cores(from_mapping({"env": env, "runtime": "ray"}), Given()) as cores:
        assert cores == (24 if joined else None)


def test_the_note_on_a_large_table_counts_all_shards_where_the_launchers_machine_is_alone() -> None:
    program = sharded_program(capacity=8_000_000, table_on="learners")
    whole, half = table_memory(program, alone=True), table_memory(program, alone=False)
    assert whole == 2 * half
    for alone, nbytes in ((True, whole), (False, half)):
        begun, _ = launching.begin_table(program, None, alone=alone)
        assert begun.node("monitor").settings.told[-1] == table_in_memory(nbytes)
