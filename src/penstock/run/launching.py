"""Launches a program: the processes of a call, the cluster that it joins, the file of its table, its runtime.

Builds no program, and does nothing with what was learned.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from penstock.config.schema import RunConfig
from penstock.config.whole import Config
from penstock.envs.given import Given
from penstock.errors import RunFolderError, UsageError
from penstock.metrics.run_log import add_to_log
from penstock.notes import failure, table_in_file, table_in_memory
from penstock.planning import Prepared
from penstock.planning.own_modules import modules_of
from penstock.processes.machine import table_memory
from penstock.processes.starts import Processes
from penstock.program.graph import Program, file_of_table
from penstock.registry import RUNTIMES, load
from penstock.replay.resumed import Found
from penstock.replay.resumed import begin as begin_file
from penstock.replay.table_file import settle
from penstock.saved_runs.best import prune_checkpoints
from penstock.saved_runs.checkpoints import Checkpoint
from penstock.saved_runs.leftovers import is_unbegun, write_failed_card
from penstock.saved_runs.run_folder import RunFolder
from penstock.serving.export import LIBRARY
from penstock.supervision.outcome import Outcome

__all__ = ["begin_table", "cores_of", "counted_cores", "import_ahead", "joined_cluster", "launch", "opened_processes"]


@contextlib.contextmanager
def opened_processes(processes: Processes | None, run: RunConfig) -> Iterator[Processes]:
    """The processes of a call. They end with the ``with`` block, or at once if the runtime needs none."""
    with processes or Processes() as found:
        if not RUNTIMES[run.runtime].processes:
            found.close()
        yield found


def import_ahead(run: RunConfig) -> None:
    """Import in a thread what is needed later in the run: this process is about to wait for the probe."""
    references = (RUNTIMES[run.runtime].launch, LIBRARY)
    threading.Thread(target=lambda: [load(reference) for reference in references]).start()


def counted_cores(cluster: contextlib.ExitStack, config: Config, given: Given) -> Callable[[], int | None]:
    """A function for `prepare` that joins the run's cluster and returns its cores; ``None`` if it is one machine.

    This process stays joined until the stack ``cluster`` is closed.

    The call raises:
        ConfigError: as `joined_cluster`.
        PenstockError: as `joined_cluster`.
    """
    return lambda: cluster.enter_context(cores_of(config.run.runtime, config.run.address, config, given))


def cores_of(
    runtime: str, address: str | None, config: Config, given: Given
) -> contextlib.AbstractContextManager[int | None]:
    """Join a cluster for the ``with`` block, if the runtime uses one. Gives its cores; ``None`` if it is one machine.

    Args:
        runtime: its name.
        address: of the cluster, as ``--address`` takes it.
        config: names the user's own modules, which the other machines get.
        given: what was passed as an object.

    Raises:
        ConfigError: as `joined_cluster`.
        PenstockError: as `joined_cluster`.
    """
    counted = RUNTIMES[runtime].counted
    if counted is None:
        return contextlib.nullcontext()
    found: contextlib.AbstractContextManager[int | None] = load(counted)(address, modules_of(config, given))
    return found


def joined_cluster(program: Program, run: RunConfig) -> contextlib.AbstractContextManager[bool]:
    """Join the cluster for the ``with`` block, if the runtime uses one. Call it before the run folder is touched.

    Gives whether all nodes run on this machine.

    Raises:
        ConfigError: there is no cluster, or it has no room; or its package is not installed.
        ResourceError: this machine is the only one of the cluster, and has too little memory.
        PenstockError: the cluster cannot be started on this machine.
    """
    joined = RUNTIMES[run.runtime].joined
    if joined is None:
        return contextlib.nullcontext(enter_result=True)
    found: contextlib.AbstractContextManager[bool] = load(joined)(program)
    return found


def begin_table(program: Program, checkpoint: Checkpoint | None, *, alone: bool) -> tuple[Program, Found | None]:
    """Open or make the file of a replay table, if it has one.

    Args:
        program: what is to run.
        checkpoint: the run goes on from here; ``None``: it is new.
        alone: whether all nodes run on this machine.

    Returns:
        The program with a note about a large table for its monitor, and the rows found in the file.
    """
    table, found = file_of_table(program), None
    note = table_in_memory(table_memory(program, alone=alone))
    if table is not None:
        found = begin_file(*table, checkpoint)
        note = table_in_file(*table, found)
    if not note:
        return program, found
    monitor = program.node("monitor")
    settings = replace(monitor.settings, first_lines=(*monitor.settings.first_lines, note))
    return program.with_node(replace(monitor, settings=settings)), found


def launch(processes: Processes, prepared: Prepared, folder: RunFolder, program: Program) -> Outcome:
    """Run a program to its end. A run that fails gets a card that says so, also if the user's own code has failed."""
    table, run = file_of_table(program), prepared.config.run
    try:
        outcome: Outcome = load(RUNTIMES[run.runtime].launch)(program, processes)
        if table is not None:
            settle(table[0])
        if run.eval_interval:
            # The last checkpoint was written before the last evaluations were known.
            prune_checkpoints(folder.path, run.keep_checkpoints, run.keep_every)
    except Exception as error:
        if not (isinstance(error, UsageError) and is_unbegun(folder)):
            with contextlib.suppress(RunFolderError):
                add_to_log(folder.path, f"failed: {failure(error)}")
            error.add_note(write_failed_card(folder, prepared.config, failure(error)))
        raise
    return outcome
