"""Collection overlaps learning: environment nodes never wait for a version, the learner takes what came first.

Two slots for each environment node bound how far collection runs ahead; data older than ``max_policy_lag`` versions is
dropped and counted.
"""

from penstock.program.graph import Program
from penstock.program.plan import Plan
from penstock.topologies.on_policy import wire

__all__ = ["build"]


def build(plan: Plan) -> Program:
    """The graph of ``on_policy`` with twice the slots and no waiting."""
    return wire(plan, slots=2 * plan.num_workers, max_lag=None, assemble="by_arrival")
