"""Whether a cluster has room for a program: joins it, and waits for machines that its autoscaler starts."""

import contextlib
import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from penstock.cluster.apart import apart
from penstock.cluster.claims import Claims
from penstock.cluster.connection import joined
from penstock.cluster.crossing import sampled
from penstock.cluster.listing import alone, offers, own_address
from penstock.cluster.movable import movable_envs, movable_learners
from penstock.cluster.places import FewMachinesError, asked_by, first_places, staying_learners
from penstock.cluster.relaunch import ask_deputies
from penstock.processes.machine import check_machine
from penstock.program.graph import Program, Table
from penstock.saved_runs.run_folder import RunFolder

__all__ = ["learners_apart", "with_room"]

MACHINES_S = 600.0
"""Seconds that a run with ``--min_workers`` waits for machines. Those of a cloud start within minutes."""
LOOK_S = 1.0


@contextlib.contextmanager
def with_room(program: Program) -> Iterator[bool]:
    """Within the ``with`` block this process is joined to a cluster that has room for what nodes ask for.

    Gives whether this machine is the only one of the cluster.

    With `Program.min_workers` it waits for the cluster's autoscaler. If the run is resumed, it waits for its deputy's
    answer.

    Raises:
        ConfigError: there is no such cluster.
        ResourceError: this machine is the only one, and has too little memory for all shards of the table.
        RunFolderError: the run trains already, or another machine goes on with it.
    """
    with joined(program.address, program.modules):
        _wait_for_room(program)
        only = alone(program)
        if only:
            _check_whole_table(program)
        # Last: what is refused before leaves the run to its deputy.
        folder = RunFolder(program.node("checkpointer").settings.folder)
        ask_deputies(folder, quiet=program.node("monitor").settings.quiet)
        yield only


def _wait_for_room(program: Program) -> None:
    """Wait for machines that Ray's autoscaler starts, if the run may begin with room for some of its processes.

    Such a run may have room for its learners only on machines that are still to come.

    Raises:
        ConfigError: there is no room for what nodes ask for.
    """
    until = time.monotonic() + MACHINES_S
    waits = program.min_workers is not None
    with Claims() as claims:
        for look in itertools.count():
            spread = apart(program, own_address()) if waits else learners_apart(program)
            try:
                first_places(spread, offers(program))
            except FewMachinesError as error:
                if not waits or time.monotonic() > until:
                    raise
                if look == 0:
                    _ask(claims, spread)
                    if not program.node("monitor").settings.quiet:
                        sys.stderr.write(f"waiting {MACHINES_S / 60:.0f} minutes for machines: {error}\n")
                time.sleep(LOOK_S)
            else:
                return


def _ask(claims: Claims, program: Program) -> None:
    """Ask Ray for room for all that asks for something, so that its autoscaler starts machines."""
    # First the learners that stay here: what is asked for on any machine would take their room.
    for group in staying_learners(program):
        claims.take(group, None, asked_by(program, group))
    # The other learners of a table run on other machines only. So ask for room elsewhere: room on this machine would
    # start no machine.
    ask = claims.ask if sampled(program) is None else claims.ask_elsewhere
    for group in movable_learners(program):
        if asked := asked_by(program, group):
            ask(group, asked)
    for group in movable_envs(program):
        if asked := asked_by(program, group):
            claims.ask(group, asked)


def _check_whole_table(program: Program) -> None:
    """Check that all shards of a table fit into this machine. The first check, which knew no cluster, counted one.

    Raises:
        ResourceError: they do not fit.
    """
    if any(isinstance(edge, Table) and edge.resident for edge in program.edges):
        edges = (replace(edge, resident=False) if isinstance(edge, Table) else edge for edge in program.edges)
        check_machine(replace(program, edges=tuple(edges)), len(program.groups))


def learners_apart(program: Program) -> Program:
    """The program with learners apart, if there are other machines for them."""
    return program if alone(program) else apart(program, own_address())
