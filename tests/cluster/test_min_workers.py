"""A run with ``--min_workers`` begins with room for some of its processes, and asks Ray's autoscaler for the rest."""

from collections import Counter
from pathlib import Path

import pytest
from ray.util.placement_group import placement_group_table

from penstock.cluster.connection import joined
from tests.cluster.conftest import HOST, MACHINE
from tests.cluster.test_hosts import PPO, Launcher
from tests.runtime.nodes import wait_until


def claims() -> Counter[str]:
    """How many claims of runs are in each state. What is ``PENDING``, an autoscaler starts machines for."""
    found = placement_group_table().values()
    states = Counter(claim["state"] for claim in found if claim["name"].startswith("penstock-"))
    del states["REMOVED"]
    return states


@pytest.mark.nightly  # Half a minute each. Shorter: `test_places.py` decides who has room.
@pytest.mark.timeout(400)
def test_processes_without_room_share_that_of_others_until_a_machine_joins(cluster, tmp_path: Path) -> None:
    # One process has room on each of the three machines with two cores.
    asked = {"resources": "env: {cpu: 1.5}", "min_workers": 2}
    launcher = Launcher(tmp_path, cluster.address, 1000, **PPO, **asked)
    try:
        with joined(cluster.address):
            assert launcher.next_checkpoint()
            assert claims() == {"CREATED": 3, "PENDING": 1}
            joining = cluster.add_node(**HOST)
            assert wait_until(lambda: claims() == {"CREATED": 4}, 60)
            assert wait_until(lambda: launcher.has(1, "moved to a machine that has joined"), 60)
            assert launcher.next_checkpoint()
            cluster.remove_node(joining)
    finally:
        launcher.process.terminate()
        # As after Ctrl-C: the last checkpoint is written.
        assert launcher.process.wait() == 130


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_a_run_waits_for_machines_until_the_minimum_has_room(cluster, tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, cluster.address, 2, **PPO, resources="env: {cpu: 3}", min_workers=2)
    try:
        with joined(cluster.address):
            assert wait_until(lambda: claims() == {"PENDING": 4}, 60)
            assert not launcher.log_dir.exists()
            joining = cluster.add_node(**{**HOST, "num_cpus": 6})
            (tmp_path / "gate").touch()
            assert launcher.process.wait(120) == 0
            cluster.remove_node(joining)
    finally:
        launcher.process.kill()


def with_gpus() -> dict[str, str]:
    """Each learner -> the machine on which Ray keeps a GPU for it."""
    found = {}
    for claim in placement_group_table().values():
        if claim["state"] == "CREATED" and claim["bundles"][0].get("GPU") == 1:
            # ``penstock-RUN-learner.1-NUMBER``.
            found[claim["name"].split("-")[2]] = claim["bundles_to_node_id"][0]
    return found


# Half a minute. Shorter: `test_room.py` waits, and `test_places.py` decides who has room.
@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_a_run_waits_for_a_machine_with_gpus_for_its_learners(cluster, tmp_path: Path) -> None:
    # Ray believes what it is told of GPUs, and the learners are on the CPU.
    made = [cluster.add_node(**HOST, num_gpus=1, node_ip_address=MACHINE)]
    three = {"learners": 3, "num_workers": 3, "num_envs": 6, "mini_batch_size": 48, "sync_mode": "blocking"}
    asked = {"resources": "env: {cpu: 0.5}, learner: {gpu: 1}", "min_workers": 2}
    launcher = Launcher(tmp_path, cluster.address, 1000, MACHINE, **{**PPO, **three}, **asked)
    try:
        with joined(cluster.address):
            # The first learner has the GPU of its machine, and all environments have room.
            assert wait_until(lambda: claims() == {"CREATED": 4, "PENDING": 2}, 60)
            assert not launcher.log_dir.exists()
            made.append(cluster.add_node(**HOST, num_gpus=2))
            assert launcher.next_checkpoint()
            here, joined_later = (node.node_id for node in made)
            assert with_gpus() == {"learner": here, "learner.1": joined_later, "learner.2": joined_later}
    finally:
        launcher.process.terminate()
        assert launcher.process.wait() == 130
        for node in made:
            cluster.remove_node(node)
