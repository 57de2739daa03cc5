"""Programs of runs on several machines, and memory for them, without any process.

Two learners that hand their gradients on, of a stream or of a ranked table, or have a shard each; three that share each
batch; environment nodes that ask policy nodes.
"""

import mmap
from pathlib import Path

import numpy as np

from penstock.cluster.apart import apart
from penstock.planning import plan
from penstock.program.graph import Program
from penstock.topologies import async_off_policy, async_on_policy, off_policy, on_policy
from penstock.types import Array
from penstock.wiring.edges import Wiring
from tests.planned import prepared

__all__ = [
    "asking_program",
    "kept",
    "ranking_program",
    "sharded_program",
    "sharing_program",
    "spread_program",
    "wired",
]


def spread_program() -> Program:
    """The program of learners that hand their gradients on, before it is cut: each has batches of one rollout."""
    settings = {"learners": 2, "num_workers": 2, "num_envs": 4, "exchange": "parameter_server"}
    found = prepared(**settings, sync_mode="non_blocking")
    return apart(async_on_policy.build(plan(found, Path("run"), quiet=True)), "10.0.0.1")


def sharing_program() -> Program:
    """The program of three learners that share each batch, before it is cut."""
    settings = {"learners": 3, "num_workers": 3, "num_envs": 6, "mini_batch_size": 48, "runtime": "ray"}
    return apart(on_policy.build(plan(prepared(**settings), Path("run"), quiet=True)), "10.0.0.1")


def ranking_program(**settings: object) -> Program:
    """The program of learners that hand their gradients on and rank the rows of one table, before it is cut."""
    small = {"algo": "dqn", "prioritised": True, "env": "CartPole-v1", "num_workers": 2, "num_envs": 4, "num_steps": 8}
    small |= {"learners": 2, "runtime": "ray", "exchange": "parameter_server", "sync_mode": "non_blocking"}
    small |= {"capacity": 64, "min_rows": 16, "mini_batch_size": 8, "hidden_sizes": (8,)}
    found = prepared(**{**small, **settings})
    return apart(async_off_policy.build(plan(found, Path("run"), quiet=True)), "10.0.0.1")


def sharded_program(**settings: object) -> Program:
    """The program of a run with two learners that step together, each with a shard of a table, before it is cut."""
    small = {"algo": "sac", "env": "Pendulum-v1", "num_workers": 2, "num_envs": 4, "num_steps": 8, "capacity": 512}
    small |= {"learners": 2, "runtime": "ray", "min_rows": 64, "mini_batch_size": 16}
    return apart(off_policy.build(plan(prepared(**{**small, **settings}), Path("run"), quiet=True)), "10.0.0.1")


def asking_program(workers: int = 2, policy_nodes: int = 1, resources: str | None = None) -> Program:
    """The program of a run in lock step whose environment nodes ask policy nodes, before it is cut."""
    sizes = {"num_workers": workers, "num_envs": 2 * workers, "policy_nodes": policy_nodes, "resources": resources}
    found = prepared(**sizes, policy_placement="node", runtime="ray", inference="native")
    return on_policy.build(plan(found, Path("run"), quiet=True))


def wired(program: Program) -> Wiring:
    """The edges of a program, in memory of their own."""
    wiring = Wiring(program.edges, [(node.name, node.group) for node in program.nodes])
    wiring.attach(np.frombuffer(mmap.mmap(-1, wiring.nbytes), np.uint8))
    return wiring


def kept(part: Array) -> None:
    """Give no memory back. These programs have no rows that stay on hosts."""
    raise AssertionError(f"{part.nbytes} bytes were to be given back")
