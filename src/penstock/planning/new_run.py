"""What a new run refuses before it starts or joins a cluster, and what a search refuses before its trials.

Nothing of it depends on the number of environment processes, which the cores of a cluster may decide. Settles nothing.
"""

from penstock.planning.beginning import check_beginning
from penstock.planning.functions import check_functions
from penstock.planning.plans import check_plan
from penstock.planning.prepared import Prepared
from penstock.planning.table_size import check_sequences
from penstock.processes.starts import Processes

__all__ = ["check_new_run"]


def check_new_run(prepared: Prepared, processes: Processes) -> None:
    """Check that a new run can learn with these settings.

    Args:
        prepared: as `prepare` gives it to its ``checks``.
        processes: as `check_functions` takes them.

    Raises:
        UsageError: it cannot.
    """
    check_sequences(prepared.config, prepared.spec)
    check_plan(prepared)
    check_beginning(prepared)
    check_functions(prepared, processes)
