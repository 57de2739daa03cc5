"""Runs on several hosts whose environment nodes ask policy nodes: the bits of one machine, also when these die."""

import contextlib
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from ray.util.placement_group import placement_group_table

from penstock.cluster.connection import joined
from tests.cluster.conftest import HOST
from tests.cluster.test_hosts import APEX, PPO, SAC, Launcher, train
from tests.cluster.test_learners import raylets
from tests.end_to_end import test_memory, test_resume_is_exact
from tests.end_to_end.test_same_answer import fingerprint
from tests.runtime.nodes import wait_until

# Every test here takes ten seconds and more. Shorter, without processes: ``test_acting.py`` collects by the nodes of a
# host, ``test_relay.py`` has their deaths, and ``test_seats.py`` machines that join and go.
pytestmark = pytest.mark.nightly
NODE = {"policy_placement": "node"}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By policies in place, in one process."""
    return fingerprint(train(tmp_path_factory.mktemp("reference"), **PPO, runtime="inline"))


# Shares go by cores: one worker is at home, two are on two hosts, four on three.
@pytest.mark.parametrize(
    ("workers", "more"), [(1, {}), (2, {}), (4, {}), (4, {"policy_nodes": 2, "max_batch": 4, "max_wait": 0.01})]
)
def test_policy_nodes_of_hosts_do_not_change_a_bit(cluster, tmp_path: Path, reference, workers: int, more) -> None:
    settings = {**PPO, **NODE, **more, "num_workers": workers}
    result = train(tmp_path, **settings, runtime="ray", address=cluster.address)
    assert fingerprint(result) == reference


@pytest.mark.parametrize("settings", [SAC, APEX], ids=["sac", "apex"])
def test_learning_from_a_table_does_not_change_a_bit(cluster, tmp_path: Path, settings) -> None:
    alone = train(tmp_path / "alone", **settings, runtime="local", num_workers=4)
    spread = train(tmp_path / "spread", **settings, **NODE, runtime="ray", address=cluster.address, num_workers=4)
    assert fingerprint(spread) == fingerprint(alone)


def test_a_policy_with_memory_does_not_change_a_bit(cluster, tmp_path: Path) -> None:
    alone = test_memory.train(tmp_path / "alone", runtime="local", num_workers=4)
    spread = test_memory.train(tmp_path / "spread", **NODE, runtime="ray", address=cluster.address, num_workers=4)
    assert test_resume_is_exact.fingerprint(spread) == test_resume_is_exact.fingerprint(alone)


@pytest.mark.timeout(400)
def test_impala_asks_policy_nodes_on_each_host_and_reports_their_idle_time(cluster, tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, cluster.address, updates=100, algo="impala", max_wait=0.002, **NODE)
    try:
        for name in ("policy.0", "policy.0.1", "policy.0.2"):
            assert wait_until(partial(launcher.has, 1, f'"idle/{name}":'), 150)
    finally:
        (tmp_path / "gate").touch()
    assert launcher.process.wait() == 0


@pytest.mark.timeout(400)
def test_ray_keeps_what_policy_nodes_ask_for_on_their_machines(cluster, tmp_path: Path) -> None:
    asked = {"resources": "env: {cpu: 0.5}, policy: {cpu: 0.5, memory: 1e8}"}
    launcher = Launcher(tmp_path, cluster.address, 1000, **PPO, **NODE, **asked)
    try:
        with joined(cluster.address):
            assert launcher.next_checkpoint()
            kept = {
                # ``penstock-RUN-policy.0.1-NUMBER``.
                claim["name"].split("-")[2]: (claim["bundles_to_node_id"][0], claim["bundles"][0])
                for claim in placement_group_table().values()
                if claim["state"] == "CREATED" and claim["name"].startswith("penstock-")
            }
            assert set(kept) == {*(f"env.{number}" for number in range(4)), "policy.0", "policy.0.1", "policy.0.2"}
            answering = {machine for group, (machine, _) in kept.items() if group.startswith("policy")}
            assert answering == {machine for group, (machine, _) in kept.items() if group.startswith("env")}
            assert len(answering) == 3
            assert kept["policy.0.1"][1] == {"CPU": 0.5, "memory": 1e8}
    finally:
        launcher.process.terminate()
        # As after Ctrl-C: the last checkpoint is written.
        assert launcher.process.wait() == 130


@pytest.mark.timeout(600)
def test_policy_nodes_of_hosts_that_are_killed_change_no_bit(cluster, tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, cluster.address, updates=100, **PPO, **NODE)
    try:
        assert launcher.next_checkpoint()
        # With an environment node that asks one of them.
        dying = [*on_hosts(cluster, "policy.0"), *on_hosts(cluster, "env.3")]
        assert len(dying) == 3
        for process in dying:
            process.kill()
        for name in ("policy.0.1", "policy.0.2", "env.3"):
            assert wait_until(partial(launcher.has, 1, f"{name} was ended by SIGKILL"), 150)
        assert launcher.next_checkpoint()
    finally:
        (tmp_path / "gate").touch()
    assert launcher.process.wait() == 0
    alone = train(tmp_path / "alone", **launcher.settings, runtime="local")
    assert fingerprint(SimpleNamespace(run_folder=launcher.run_folder())) == fingerprint(alone)


@pytest.mark.timeout(600)
def test_a_host_that_joins_and_is_lost_with_its_policy_node_changes_no_bit(cluster, tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, cluster.address, updates=100, **PPO, **NODE)
    try:
        assert launcher.next_checkpoint()
        # It has 8 of 14 cores: two of four workers move there.
        host = cluster.add_node(**{**HOST, "num_cpus": 8})
        assert wait_until(lambda: launcher.has(2, "moved to a machine that has joined"), 150)
        assert wait_until(lambda: launcher.has(1, "policy.0.3 begins on a machine that is to run environments"), 150)
        assert launcher.next_checkpoint()
        cluster.remove_node(host, allow_graceful=False)
        assert wait_until(lambda: launcher.has(2, "was lost with its machine"), 150)
        assert launcher.next_checkpoint()
    finally:
        (tmp_path / "gate").touch()
    assert launcher.process.wait() == 0
    # Its policy node is needed nowhere: others answer its environments.
    assert not launcher.has(1, "policy.0.3 was lost")
    alone = train(tmp_path / "alone", **launcher.settings, runtime="local")
    assert fingerprint(SimpleNamespace(run_folder=launcher.run_folder())) == fingerprint(alone)


def on_hosts(cluster, group: str) -> list[psutil.Process]:
    """The processes of a placement group on other machines than the launcher's, by its name there."""
    hosts = {pid for node in cluster.worker_nodes for pid in raylets(node)}
    found = []
    for process in psutil.Process().children(recursive=True):
        # It may end meanwhile.
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == group and hosts & {above.pid for above in process.parents()}:
                found.append(process)
    return found
