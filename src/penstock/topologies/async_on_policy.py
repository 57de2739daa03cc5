"""Collection overlaps learning: environment nodes never wait for a version, the learner takes what came first.

Two slots for each environment node bound how far collection runs ahead; data older than ``max_policy_lag`` versions is
dropped and counted. Where cores are short the learner goes first: it is the one process that all others wait for.
"""

from penstock.program.graph import Program
from penstock.program.plan import Plan
from penstock.topologies.on_policy import streamed

__all__ = ["build"]

NICENESS = 5
"""Of environment processes: a third of the learner's claim to a core. With equal claims two environment processes and a
learner whose batch takes longer than a rollout do not fill two cores: both come to wait for it, and one core rests."""


def build(plan: Plan) -> Program:
    """The graph of ``on_policy`` with twice the slots and no waiting."""
    return streamed(plan, slots=2 * plan.num_workers, max_lag=None, assemble="by_arrival", niceness=NICENESS)
