"""Names that the launcher and the processes that it starts agree on. Light: the launcher imports it before all else."""

import signal

__all__ = ["ERRAND", "GROUP", "PROBE", "STACKS_SIGNAL", "WORKER"]

GROUP = b"PENSTOCK_GROUP"
"""Environment variable that names the process's placement group. Linux tools such as ``top`` show the same name."""
STACKS_SIGNAL = signal.SIGUSR1
"""At this signal a worker writes the stacks of all its threads to its error pipe."""

# The "module:function" that a process runs.
WORKER = "penstock.processes.worker:work"
ERRAND = "penstock.processes.errand_worker:run"

PROBE = "penstock.envs.sources:probe"
"""The function of the first errand of most commands."""
