"""Environment processes and policy nodes of a run in words. Pure functions of its settings."""

from penstock.config.schema import RunConfig

__all__ = ["policy_nodes_text", "processes_text"]


def processes_text(num_workers: int | str) -> str:
    """Environment processes in words: ``1 process``, ``2 processes``."""
    return "1 process" if num_workers == 1 else f"{num_workers} processes"


def policy_nodes_text(run: RunConfig) -> str:
    """Policy nodes in words: ``2 policy nodes, max_batch 64``. Empty if environment processes run the policy.

    Args:
        run: settings of the run, whose placement is decided.
    """
    if run.policy_placement != "node":
        return ""
    nodes = "policy node" if run.policy_nodes == 1 else f"{run.policy_nodes} policy nodes"
    given = [name for name in ("max_batch", "max_wait") if getattr(run, name) != getattr(RunConfig, name)]
    return ", ".join([nodes, *(f"{name} {getattr(run, name):g}" for name in given)])
