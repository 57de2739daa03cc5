"""The way in: a program with environment nodes runs on a Ray cluster, any other one on this machine. Imports no Ray."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from penstock.cluster.movable import movable_envs
from penstock.errors import ConfigError
from penstock.processes.starts import Processes
from penstock.processes.supervised import supervised_here
from penstock.program.check import check
from penstock.program.graph import Program
from penstock.program.plan import EvaluationPlan
from penstock.registry import load
from penstock.supervision.outcome import Outcome

__all__ = ["counted", "evaluated", "joined", "launch"]


def joined(program: Program) -> contextlib.AbstractContextManager[bool]:
    """Within the ``with`` block this process is joined to the cluster at ``program.address``, if the program needs it.

    Gives whether all nodes run on this machine, because the cluster has no other one.

    Raises:
        ConfigError: Ray is not installed, there is no cluster at that address, or it has no room for what
            nodes ask for.
        ResourceError: this machine is the only one of the cluster, and has too little memory.
        PenstockError: Ray does not start here.
    """
    if not movable_envs(program):
        if program.demands:
            raise ConfigError("--resources: this run has no processes that a cluster could place; leave it out")
        return contextlib.nullcontext(enter_result=True)
    cluster: contextlib.AbstractContextManager[bool] = _of_ray("penstock.cluster.room:with_room")(program)
    return cluster


def counted(address: str | None, modules: Sequence[str]) -> contextlib.AbstractContextManager[int | None]:
    """Within the ``with`` block this process is joined to a cluster. Gives its cores; ``None`` if it is one machine.

    Args:
        address: of the cluster, as ``--address`` takes it.
        modules: top-level modules that the run names.

    Raises:
        ConfigError: as `joined`.
        PenstockError: as `joined`.
    """
    found: contextlib.AbstractContextManager[int | None] = _of_ray("penstock.cluster.connection:counted")(
        address, modules
    )
    return found


def launch(program: Program, processes: Processes) -> Outcome:
    """Run a program to its end on the cluster at ``program.address``.

    Args:
        program: what to run.
        processes: no other program runs in them. At the end none of them is left, here or elsewhere.

    Raises:
        ConfigError: Ray is not installed, there is no cluster at that address, or a machine of it cannot take part.
        NodeError: a process failed; with that process's traceback.
    """
    check(program)
    if movable_envs(program):
        outcome: Outcome = _of_ray("penstock.cluster.spread:run")(program, processes)
        return outcome
    return supervised_here(program, processes)


def evaluated(plan: EvaluationPlan, build: Callable[[EvaluationPlan], Program]) -> Outcome:
    """Play an evaluation on the cluster that this process has joined (`counted`). Its record is that of one machine.

    Args:
        plan: of the whole evaluation.
        build: makes the program of a plan.

    Raises:
        ConfigError: a machine of the cluster cannot take part.
        NodeError: a process failed; with that process's traceback.
        PenstockError: a process failed with an error that needs no traceback; of the same kind, with its machine.
        LostError: Ray's head was lost, or machines were lost again and again.
        RunFolderError: an episode cannot be written.
    """
    outcome: Outcome = _of_ray("penstock.cluster.evaluations:evaluated")(plan, build)
    return outcome


def _of_ray(reference: str) -> Any:  # noqa: ANN401 - as `load`
    """What a module that imports Ray defines.

    Raises:
        ConfigError: Ray is not installed.
    """
    try:
        return load(reference)
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise ConfigError("--distributed True and --runtime ray need Ray; type: pip install 'penstock[ray]'") from None
