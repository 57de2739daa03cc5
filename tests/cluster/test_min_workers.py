"""A run with ``--min_workers`` begins with room for some of its processes, and asks Ray's autoscaler for the rest."""

from collections import Counter
from pathlib import Path

import pytest
from ray.util.placement_group import placement_group_table

from penstock.cluster.connection import joined
from tests.cluster.conftest import HOST
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
