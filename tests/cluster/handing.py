"""The program of a run with two learners that hand their gradients on, and memory for it, without any process."""

import mmap
from pathlib import Path

import numpy as np

from penstock.cluster.cut import apart
from penstock.planning import plan
from penstock.program.graph import Program
from penstock.topologies import async_on_policy
from penstock.wiring.edges import Wiring
from tests.planned import prepared

__all__ = ["spread_program", "wired"]


def spread_program() -> Program:
    """The program, before it is cut: each learner has batches of one rollout."""
    settings = {"learners": 2, "num_workers": 2, "num_envs": 4, "exchange": "parameter_server"}
    found = prepared(**settings, sync_mode="non_blocking")
    return apart(async_on_policy.build(plan(found, Path("run"), quiet=True)), "10.0.0.1")


def wired(program: Program) -> Wiring:
    """The edges of a program, in memory of their own."""
    wiring = Wiring(program.edges, [(node.name, node.group) for node in program.nodes])
    wiring.attach(np.frombuffer(mmap.mmap(-1, wiring.nbytes), np.uint8))
    return wiring
