"""DSAC-T as native gradient steps: those of DSAC with its three refinements. Imports no torch."""

from functools import partial

from penstock.algorithm import FusedReplay
from penstock.algorithms.dsac.fused import update
from penstock.algorithms.dsact.spec import DSACTConfig
from penstock.algorithms.off_policy.fused import supports
from penstock.algorithms.sac.spec import policy_graph
from penstock.types import Spaces

__all__ = ["build", "supports"]


def build(spaces: Spaces, config: DSACTConfig) -> FusedReplay:
    """DSAC-T on ``spaces`` without torch. Check with `supports` first that the native update can train the networks."""
    graph = policy_graph(spaces, config, "dsact")
    return FusedReplay(partial(update, graph, config, critics=config.critics, bound=config.bound_scale, refined=True))
