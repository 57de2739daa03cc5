"""The cores of a cluster, counted for the number of environment processes."""

import contextlib

import pytest

import penstock
from penstock.config.sources import from_mapping
from penstock.errors import ConfigError, UsageError
from penstock.notes import table_in_memory
from penstock.planning import prepare
from penstock.processes.machine import table_memory
from penstock.processes.starts import Processes
from penstock.run import launching, resuming
from penstock.saved_runs.run_folder import RunFolder
from tests.cluster.handing import sharded_program


def test_a_resume_counts_the_cores_of_the_cluster_as_a_new_run_does(tmp_path, monkeypatch) -> None:
    folder = RunFolder.named(tmp_path, "pole")
    folder.make()
    folder.write_config(from_mapping({"env": "CartPole-v1", "num_workers": 2}))

    def prepare(config, processes, given, cluster_cores, *checks):
        raise ConfigError(f"{config.run.num_workers} of {cluster_cores()} cores")

    monkeypatch.setattr(launching, "load", lambda reference: lambda address, modules: contextlib.nullcontext(24))
    monkeypatch.setattr(resuming, "prepare", prepare)
    with pytest.raises(ConfigError, match=r"^auto of 24 cores$"):
        penstock.resume(folder.path, settings={"num_workers": "auto", "runtime": "ray"}, quiet=True)


class JoinedError(Exception):
    """A cluster would have been joined."""


def join(*asked: object) -> None:
    raise JoinedError


APART = {"algo": "dqn", "learners": 2, "exchange": "parameter_server", "sync_mode": "non_blocking"}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"exchange": "gossip"}, "--exchange gossip is for several learners, and this run has one learner"),
        ({"learners": 2, "exchange": "hogwild"}, "--exchange hogwild is for one machine"),
        (
            {"learners": 2, "exchange": "parameter_server", "pace": "async", "sync_mode": "blocking"},
            "--pace async does not go with --sync_mode blocking",
        ),
        ({"learners": 3, "num_envs": 8}, "--num_envs 8 cannot be split evenly over --learners 3"),
        ({"algo": "a3c"}, "--algo a3c stays on one machine: leave --runtime ray out"),
        ({"algo": "dqn", "capacity": 100}, "--capacity 100 keeps too few rows"),
        ({"learners": 2, "mini_batch_size": 63}, "--mini_batch_size 63 cannot be split evenly over 2 learners"),
        ({"algo": "dqn", "reuse": 2.0}, "--reuse 2 needs --sync_mode non_blocking"),
        ({**APART, "reset_every": 9}, "--reset_every 9 needs learners that take each step together"),
        ({**APART, "normalize_obs": True}, "--normalize_obs True needs learners that take each step together"),
        ({"algo": "r2d2", "num_steps": 40}, "--num_steps 40 is more than --learned_steps 32"),
        ({"precision": "float16"}, "--precision float16 is for GPUs: give --device cuda"),
        ({"reward": "lost_rewards:upright"}, "reward lost_rewards:upright: no module named lost_rewards"),
        ({"algo": "bc"}, "bc learns from demonstrations alone, and there are none; give --demonstrations"),
    ],
)
def test_settings_that_do_not_go_together_are_refused_before_a_cluster_is_joined(
    tmp_path, monkeypatch, settings: dict[str, object], says: str
) -> None:
    monkeypatch.setattr(launching, "cores_of", join)
    with pytest.raises(UsageError, match=f"^{says}"):
        penstock.train({"env": "CartPole-v1", "runtime": "ray", "log_dir": str(tmp_path), **settings}, quiet=True)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"begin_with": "{other}"}, "--begin_with .*: it is of Pendulum-v1"),
        ({"algo": "dqn", "demonstrations": "{other}"}, "--demonstrations .*: it is of Pendulum-v1"),
    ],
)
def test_another_run_that_does_not_fit_is_refused_before_a_cluster_is_joined(
    tmp_path, monkeypatch, settings: dict[str, str], says: str
) -> None:
    short = {"runtime": "inline", "num_envs": 1, "num_steps": 8, "timesteps": 8, "eval_episodes": 0}
    other = penstock.train({"env": "Pendulum-v1", **short, "log_dir": str(tmp_path / "other")}, quiet=True).run_folder
    monkeypatch.setattr(launching, "cores_of", join)
    told = {name: value.format(other=other) for name, value in settings.items()}
    with pytest.raises(UsageError, match=f"^{says}"):
        penstock.train({"env": "CartPole-v1", "runtime": "ray", "log_dir": str(tmp_path), **told}, quiet=True)


@pytest.mark.parametrize(("num_workers", "joined"), [("auto", True), (2, False)])
def test_a_cluster_is_joined_to_count_its_cores_only_if_the_workers_depend_on_them(
    num_workers: str | int, joined: bool
) -> None:
    config = from_mapping({"env": "CartPole-v1", "runtime": "ray", "num_workers": num_workers})
    with Processes() as processes, pytest.raises(JoinedError) if joined else contextlib.nullcontext():
        prepare(config, processes, cluster_cores=join)


def test_no_cluster_is_joined_to_count_its_cores_for_games() -> None:
    """Each of their lanes is a session, and they are never in lock step: both are decided before."""
    games = {"env": "gamecore://tests.games.agents:Cart", "algo": "impala", "num_envs": 3, "runtime": "ray"}
    with Processes() as processes:
        run = prepare(from_mapping(games), processes, cluster_cores=join).config.run
    assert (run.num_workers, run.sync_mode) == (3, "non_blocking")


def test_the_note_on_a_large_table_counts_all_shards_where_the_launchers_machine_is_alone() -> None:
    program = sharded_program(capacity=8_000_000, table_on="learners")
    whole, half = table_memory(program, alone=True), table_memory(program, alone=False)
    assert whole == 2 * half
    for alone, nbytes in ((True, whole), (False, half)):
        begun, _ = launching.begin_table(program, None, alone=alone)
        assert begun.node("monitor").settings.first_lines[-1] == table_in_memory(nbytes)
