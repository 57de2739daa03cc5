"""The slow imports of processes: modules that take seconds, and that are imported before a process is forked."""

from penstock.config.schema import RunConfig
from penstock.types import BackendSpec

__all__ = ["policy_imports", "slow_imports"]


def policy_imports(run: RunConfig, inference: BackendSpec) -> tuple[str, ...]:
    """Modules of a process that runs the policy that take seconds to import: torch, if it runs the policy."""
    return slow_imports(run, inference.build) if run.inference == "torch" else ()


def slow_imports(run: RunConfig, reference: str) -> tuple[str, ...]:
    """The module of ``reference``, to be imported before a process is forked, where that is safe."""
    # CUDA does not survive a fork once it is initialised, and an import may initialise it.
    return (reference.partition(":")[0],) if run.device == "cpu" else ()
