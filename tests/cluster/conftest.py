"""A Ray cluster of three hosts on this machine, for the tests of one module."""

import os
from collections.abc import Iterator

import pytest

pytest.importorskip("ray")

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
HOST = {"num_cpus": 2, "object_store_memory": 100_000_000}


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
