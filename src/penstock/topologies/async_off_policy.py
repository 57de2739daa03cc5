"""Learning from replay while experience is collected: either side waits only where the table's limiter says so.

Where cores are short the learner goes first, as it does with a stream.
"""

from penstock.program.graph import Program
from penstock.program.plan import Plan
from penstock.topologies.off_policy import replayed

__all__ = ["build"]

NICENESS = 5
"""Of environment processes; see ``async_on_policy``."""


def build(plan: Plan) -> Program:
    """The graph of ``off_policy`` without waiting for versions."""
    return replayed(plan, max_lag=None, order="by_arrival", niceness=NICENESS)
