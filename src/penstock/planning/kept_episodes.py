"""Which algorithms can learn from kept episodes: those that need nothing of the policy that acted. Reads no episode."""

from penstock.algorithm import AlgorithmSpec

__all__ = ["lacking"]


def lacking(spec: AlgorithmSpec) -> str | None:
    """What an algorithm needs that kept episodes do not hold, to be read after its name; ``None``: nothing."""
    if spec.table is None:
        return "learns from rollouts of its present policy, and kept episodes are of others"
    if spec.table.sequences is not None or spec.policy.carry:
        return "learns with a memory here, which kept episodes do not hold"
    missing = [part.name for part in spec.row if part.name in spec.minibatch]
    return f"learns from {missing[0]} of the policy that acted, which kept episodes do not hold" if missing else None
