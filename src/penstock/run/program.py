"""The program of a plan: built by its topology, checked against this machine, drawn as text. Runs nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.config.sources import from_mapping
from penstock.config.whole import Config
from penstock.envs.given import Given, named
from penstock.planning import Prepared, check_ports, plan, prepare
from penstock.processes.machine import check_machine, shared_memory
from penstock.processes.starts import Processes
from penstock.program.draw import draw as draw_program
from penstock.program.graph import Program
from penstock.program.plan import Plan
from penstock.registry import RUNTIMES, TOPOLOGIES, load
from penstock.types import EnvFactory

__all__ = ["checked_on_machine", "draw", "program_of"]


def program_of(the_plan: Plan) -> Program:
    """Build the program of a plan, with the topology for its algorithm and sync mode."""
    topology = TOPOLOGIES[the_plan.learning.spec.topology]
    program: Program = load(topology.modes[the_plan.run.sync_mode])(the_plan)
    return program


def checked_on_machine(program: Program, prepared: Prepared) -> Program:
    """Check that this machine has the memory, disk, files and ports that a program needs at least.

    Returns:
        The same program.

    Raises:
        ResourceError: the machine has too little of one of them, or a port is taken.
    """
    check_machine(program, len(program.groups) if RUNTIMES[prepared.config.run.runtime].processes else 0)
    check_ports(prepared.config.run)
    return program


def draw(config: Config | Mapping[str, Any], *, env: EnvFactory | None = None) -> str:
    """Show the program of a config as text: its nodes, the edges between them, and which process runs which node.

    Starts no run. The environment is made once, to read its spaces.

    Args:
        config: a `Config`, or a mapping from setting names to values, as for `penstock.train`.
        env: a callable that makes an environment, if the environment has no name.

    Returns:
        Several lines; the last one has the size of the shared memory.

    Raises:
        UsageError: the environment, its spaces or a setting cannot be used.

    Example:
        print(penstock.draw({"env": "Pendulum-v1"}))
    """
    given = Given(env)
    if not isinstance(config, Config):
        settings, given = named(config, env)
        config = from_mapping(settings)
    with Processes() as processes:
        prepared = prepare(config, processes, given)
    program = program_of(plan(prepared, Path(prepared.config.run.log_dir), quiet=True))
    shared = shared_memory(program) / (1 << 20)
    return f"{draw_program(program)}\nmemory\n  {shared:,.1f} MiB shared, besides the memory of each process"
