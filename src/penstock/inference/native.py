"""The native kernel as a policy backend. Imports no torch; does not run images or convolutions."""

from penstock.kernels.policy import PolicyKernel, supports
from penstock.network import PolicyGraph

__all__ = ["build", "supports"]


def build(graph: PolicyGraph) -> PolicyKernel:
    """A backend for ``graph`` at the fastest instruction-set level; ``ValueError`` unless it `supports` the graph."""
    return PolicyKernel(graph)
