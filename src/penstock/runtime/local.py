"""Runs a program on one machine: one process for each placement group, and one segment that ends with them.

A warden starts the workers, by forks of templates where it can. They inherit file descriptors, and read their tasks
from a file.
"""

from penstock.processes.starts import Processes
from penstock.processes.supervised import supervised_here
from penstock.program.check import check
from penstock.program.graph import Program
from penstock.supervision.outcome import Outcome

__all__ = ["launch"]


def launch(program: Program, processes: Processes) -> Outcome:
    """Run a program to its end, with one process for each placement group.

    Args:
        program: what to run.
        processes: no other program runs in them. At the end none of them is left.

    Raises:
        NodeError: a process failed; with that process's traceback.
    """
    check(program)
    return supervised_here(program, processes)
