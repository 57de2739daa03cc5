"""Spreads a program over all machines of a Ray cluster: environment nodes by cores, learners in turn.

The launcher's machine is *home*. It runs the first learner, all nodes that do not move, and its share of those that do,
exactly as the local runtime does.
"""

import contextlib
from dataclasses import replace
from functools import partial

from penstock.cluster.claims import Claims
from penstock.cluster.connection import joined
from penstock.cluster.crossing import same_bits
from penstock.cluster.cut import host_program, with_relay
from penstock.cluster.head import HeadWatch
from penstock.cluster.joining import Members, takes_part
from penstock.cluster.listing import cluster_address, is_here, offers, own_address
from penstock.cluster.machines import Machine, end_all, machines
from penstock.cluster.movable import movable_envs
from penstock.cluster.places import first_room
from penstock.cluster.relay import Relay
from penstock.cluster.room import learners_apart
from penstock.cluster.safekeeping import Safekeeping
from penstock.cluster.shard_files import shard_files
from penstock.cluster.shard_keeping import ShardKeeping, with_shard_boards
from penstock.cluster.spread_processes import SpreadProcesses
from penstock.cluster.troubles import write_down
from penstock.memory.heap import map_large_blocks
from penstock.memory.segment import Segment
from penstock.processes.starts import Processes
from penstock.processes.supervised import supervised
from penstock.program.graph import Program
from penstock.saved_runs.run_folder import RunFolder
from penstock.supervision.outcome import Outcome
from penstock.wiring.edges import Wiring

__all__ = ["run"]

RESUME = (
    "penstock resume goes on with --address local in a cluster of its own, or with --address host:port on another one"
)


def _told(program: Program) -> Program:
    """The program whose monitor says first on which cluster it runs."""
    found = offers(program)
    cores = sum(offer.resources.get("cpu", 0.0) for offer in found)
    count = "1 machine" if len(found) == 1 else f"{len(found)} machines"
    note = f"Ray cluster at {cluster_address()}: {count} with {cores:g} cores"
    if program.min_workers is not None:
        room, wanted = first_room(program, found), len(movable_envs(program))
        if room < wanted:
            note += f"; {room:.0f} of {wanted} environment processes have room, and the others share it"
    if not is_here(here := own_address()):
        note += (
            f"; Ray takes this machine for {here}, which is none of its addresses: if no update comes, see that "
            "machines do not share a folder /tmp/ray"
        )
    return _telling(program, note)


def _telling(program: Program, note: str) -> Program:
    """The program whose monitor says one more line first; an empty one is left out."""
    if not note:
        return program
    monitor = program.node("monitor")
    settings = replace(monitor.settings, first_lines=(*monitor.settings.first_lines, note))
    return program.with_node(replace(monitor, settings=settings))


def run(program: Program, processes: Processes) -> Outcome:
    """Run a program with movable nodes; see `penstock.cluster.launch.launch`."""
    with joined(program.address, program.modules):
        program = _told(learners_apart(program))
        hosted, bits = host_program(program), same_bits(program)
        far = machines(hosted, set())
        present: list[Machine] = []
        try:
            present += [machine for machine in far if takes_part(machine, bits)]
            return _run(with_shard_boards(with_relay(program)), processes, Members(hosted, present, bits))
        finally:
            # Machines that have joined since are among the present ones only.
            end_all(list(dict.fromkeys((*far, *present))))


def _run(program: Program, processes: Processes, cluster: Members) -> Outcome:
    map_large_blocks()
    wiring = Wiring(program.edges, [(node.name, node.group) for node in program.nodes])
    segment = Segment.create(wiring.nbytes, "penstock")
    wiring.attach(segment.bytes)
    relay = Relay(program, wiring, segment.give_back)
    try:
        with Claims() as claims:
            spread = SpreadProcesses(program, processes, relay, cluster, claims)
            folder = RunFolder(program.node("checkpointer").settings.folder)
            files = shard_files(program, wiring, folder.path)
            keeping: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
            if files is not None:
                checkpoint = program.node("learner").settings.keeper.checkpoint
                program = _telling(program, files.find(checkpoint, spread.place_of, relay))
                keeping = ShardKeeping(
                    files, wiring, spread.place_of, relay, program.deaths, stall_limit_s=program.stall_limit_s
                )
            written = partial(wiring.counters.get, "checkpointer", "checkpoints")
            with (
                HeadWatch(cluster_address(), wiring.want_checkpoint, relay.fail, RESUME),
                Safekeeping(folder, spread.left, wiring.want_checkpoint, written, relay.fail, claims=claims.run),
                keeping,
            ):
                outcome = supervised(program, wiring, segment, spread)
            if files is not None:
                relay.close()
                write_down(program.deaths, files.keep(outcome.record, spread.place_of, relay))
            return outcome
    finally:
        relay.close()
        processes.clear()
        segment.close()
