"""A Ray cluster of three hosts on this machine, for the tests of one module."""

import os
from collections.abc import Iterator

import pytest

pytest.importorskip("ray")

os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    # A lost host is noticed after 5 checks of 0.5 s, not of 3 s. A host that only answers late is not lost for 10 s.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    # Ray starts a worker for each core before anybody asks for one. Nearly none of them is ever used here.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
}
HOST = {"num_cpus": 2, "object_store_memory": 100_000_000}
MACHINE = "127.0.0.2"
"""The address of the machine of the fixture of that name."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    """Three hosts with two cores each. Each process of theirs is ended by its own id."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**HOST, "include_dashboard": False})
    try:
        for _ in range(2):
            made.add_node(**HOST)
        yield made
    finally:
        made.shutdown()


@pytest.fixture
def machine(cluster) -> Iterator[object]:
    """Another machine of the cluster, for a launcher."""
    made = cluster.add_node(**HOST, node_ip_address=MACHINE)
    yield made
    if made in cluster.worker_nodes:
        cluster.remove_node(made)
