"""Collection overlaps learning: environment nodes never wait for a version. The learner takes rollouts as they come.

Two slots for each environment node bound how far collection runs ahead. Rollouts older than ``max_policy_lag`` versions
are dropped and counted. If cores are short, the learner goes first, because all other processes wait for it.
"""

from penstock.config.agreement import agreement
from penstock.program.graph import Program
from penstock.program.plan import Plan
from penstock.topologies import parameter_server
from penstock.topologies.env_nodes import NICENESS
from penstock.topologies.on_policy import streamed

__all__ = ["build"]


def build(plan: Plan) -> Program:
    """The graph of ``on_policy`` with twice the slots and no waiting."""
    agreed, slots = agreement(plan.run, from_table=False), 2 * plan.num_workers
    if agreed.apart:
        return parameter_server.at_own_pace(plan, agreed, slots=slots, niceness=NICENESS)
    return streamed(plan, slots=slots, max_lag=None, assemble="by_arrival", niceness=NICENESS)
