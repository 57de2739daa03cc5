"""Collection overlaps learning: environment nodes never wait for a version. The learner takes rollouts as they come.

Two slots for each environment node bound how far collection runs ahead. Rollouts older than ``max_policy_lag`` versions
are dropped and counted. If cores are short, the learner goes first, because all other processes wait for it.

On several machines, an environment node on another machine has as many slots there as on the launcher's machine. So
four of its rollouts may wait. With a small ``max_policy_lag`` a busy learner would drop every second one for its age.
Then each environment node has only one slot on each machine. The cost: environment nodes on the launcher's machine wait
while the learner learns.
"""

from penstock.config.agreement import agreement
from penstock.program.graph import Program
from penstock.program.plan import Plan
from penstock.registry import RUNTIMES
from penstock.topologies import parameter_server
from penstock.topologies.env_nodes import NICENESS
from penstock.topologies.on_policy import streamed

__all__ = ["build"]

_AHEAD = 2
"""Slots of an environment node: one is learned from, one waits."""
_FEW = 4
"""The least ``max_policy_lag`` with which four rollouts of a node, two here and two on its host, do not get too old."""


def build(plan: Plan) -> Program:
    """The graph of ``on_policy`` with more slots and no waiting."""
    run = plan.run
    ahead = 1 if RUNTIMES[run.runtime].machines and run.max_policy_lag < _FEW else _AHEAD
    agreed, slots = agreement(run, from_table=False), ahead * plan.num_workers
    if agreed.apart:
        return parameter_server.at_own_pace(plan, agreed, slots=slots, niceness=NICENESS)
    return streamed(plan, slots=slots, max_lag=None, assemble="by_arrival", niceness=NICENESS)
