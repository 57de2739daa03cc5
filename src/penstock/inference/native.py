"""The native kernel as a policy backend. Imports no torch; does not run images or convolutions."""

from penstock.kernels.policy import PolicyKernel
from penstock.policies import PolicyGraph
from penstock.policies.native import layout_of

__all__ = ["build"]


def build(graph: PolicyGraph) -> PolicyKernel:
    """A backend for ``graph``, at the fastest instruction-set level.

    Raises:
        ValueError: the kernel cannot run ``graph``. Check with `penstock.policies.native.supports` first.
    """
    return PolicyKernel(layout_of(graph))
