"""Plays an evaluation on the machines of a Ray cluster: each machine plays a share of the episodes, in a task of Ray.

A task holds a whole evaluation of its share, with a judge and players in processes of their own, as on one machine. An
episode has its number and its seed wherever it is played. So if a machine is lost, and Ray runs its task again on
another one, the returns are the same. That machine may have joined since, so each task looks whether its own is of the
launcher's kind.
"""

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from penstock.cluster.head import HeadWatch
from penstock.cluster.joining import takes_part
from penstock.cluster.listing import Listed, cluster_address, with_cores
from penstock.cluster.machines import END_LIMIT_S
from penstock.cluster.messages import Facts, facts
from penstock.cluster.ray_errors import line_of
from penstock.cluster.shares import shares
from penstock.errors import LostError, NodeError, PenstockError, RunFolderError
from penstock.metrics.evaluation import Progress, evaluation_display
from penstock.metrics.run_log import RUN_LOG, add_to_log
from penstock.nodes.evaluation import Ending
from penstock.processes.interrupts import Interrupts
from penstock.processes.starts import Processes
from penstock.processes.supervised import supervised_here
from penstock.program.check import check
from penstock.program.graph import Program
from penstock.program.plan import EvaluationPlan
from penstock.saved_runs.episodes import episode_number, list_episodes, write_content
from penstock.saved_runs.run_folder import RunFolder
from penstock.saved_runs.scratch import scratch_folder
from penstock.supervision.outcome import Outcome
from penstock.types import Array, Arrays

__all__ = ["Played", "Share", "evaluated", "play_share", "shares_of"]

RETRIES = 3
"""How often Ray runs a task again whose machine was lost."""
LOOK_S = 0.2
SAME_BITS = (
    "an episode could depend on where it is played: take machines of one kind, or leave --runtime and --distributed out"
)

Build = Callable[[EvaluationPlan], Program]


class Share(NamedTuple):
    """What one machine plays."""

    first: int
    """Number of the first episode."""
    episodes: int
    first_player: int
    players: int


class Played(NamedTuple):
    """A share that was played, or that has failed."""

    record: Arrays
    """The judge's record; empty if the share has failed."""
    failed: tuple[str, str] | None
    """The node that has failed, and its traceback."""
    log: Sequence[str]
    """What its processes have logged: the lines of a run's log."""
    deaths: str
    """The content of its log of deaths."""
    kept: Mapping[int, Array]
    """Number in the name of each kept episode's file -> its content, uint8 ``[bytes]``."""


class _Machine(Listed):
    """A machine that may play a share. It is asked for its facts at once."""

    def __init__(self, node: dict[str, Any]) -> None:
        super().__init__(node)
        self._facts = ray.remote(facts).options(**_placed(self.id, soft=False)).remote()

    def facts(self) -> Facts:
        """As `penstock.cluster.joining.Candidate.facts`."""
        return self.told(self._facts)

    def play(self, plan: ray.ObjectRef, share: Share, build: Build) -> ray.ObjectRef:
        """Begin to play a share here, or elsewhere if this machine is lost. Ready with a `Played`."""
        options = {**_placed(self.id, soft=True), "max_retries": RETRIES, "retry_exceptions": [LostError]}
        return ray.remote(play_share).options(**options).remote(plan, share, build, list(sys.path), facts())


def _placed(machine: str, *, soft: bool) -> dict[str, Any]:
    """Options of a task of Ray on a machine. ``soft``: if this machine is lost, on another one."""
    # No cores are asked for: Ray would let the task wait where another program has reserved them.
    return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(machine, soft=soft)}


def evaluated(plan: EvaluationPlan, build: Build) -> Outcome:
    """Play an evaluation on all machines; see `penstock.cluster.launch.evaluated`."""
    asked = [_Machine(node) for node in with_cores()]
    machines = [machine for machine in asked if takes_part(machine, SAME_BITS)]
    if not machines:
        raise LostError("no machine of the cluster answers; type the command again")
    given = shares_of(plan, [machine.offer.resources.get("cpu", 0.0) for machine in machines])
    if not plan.quiet:
        sys.stderr.write(f"Ray cluster at {cluster_address()}: {_spread_text(given)}\n")
    held = ray.put(plan)
    playing = {
        machine.play(held, share, build): (share, machine.name)
        for machine, share in zip(machines, given, strict=True)
        if share.players
    }
    lost: list[str] = []
    watch = HeadWatch(cluster_address(), lambda: None, lost.append, _again(plan))
    with Interrupts() as interrupts, watch, _cancelling(playing):
        found = _collected(plan, playing, interrupts, lost)
    records = [record for _, record in sorted(found.items())]
    return Outcome(_joined(records), interrupts.count > 0, {})


def shares_of(plan: EvaluationPlan, cores: Sequence[float]) -> list[Share]:
    """What each machine plays: players by its cores, and episodes by its players, one after the other.

    Args:
        plan: of the whole evaluation.
        cores: of each machine.
    """
    players = shares(min(plan.players, plan.episodes), cores)
    episodes = shares(plan.episodes, players)
    firsts = zip(accumulate(episodes, initial=0), accumulate(players, initial=0), strict=True)
    return [
        Share(first, count, first_player, own)
        for (first, first_player), count, own in zip(firsts, episodes, players, strict=False)
    ]


def _spread_text(given: Sequence[Share]) -> str:
    """How many processes play on how many machines, in words."""
    players, playing = sum(share.players for share in given), sum(share.players > 0 for share in given)
    processes = "1 process plays" if players == 1 else f"{players} processes play"
    return f"{processes} on {playing} of {len(given)} machine{'s' if len(given) > 1 else ''}"


def _again(plan: EvaluationPlan) -> str:
    """What to do if the cluster is lost. Episodes may have been kept by then, and a folder with some is refused."""
    return "type the command again" + ("" if plan.keep is None else ", with another folder for --keep")


def play_share(plan: EvaluationPlan, share: Share, build: Build, path: Sequence[str], wanted: Facts) -> Played:
    """Play a share on this machine.

    Args:
        plan: of the whole evaluation.
        share: of this machine.
        build: makes the program of a plan.
        path: the launcher's module search path. What is missing here is appended.
        wanted: the facts of the launcher's machine.

    Raises:
        LostError: this machine ends the task. Or Ray gave it the share of a lost one, and its facts are others.
    """
    if facts() != wanted:
        raise LostError("Ray went on with it on a machine with another version, other code or another instruction set")
    sys.path.extend(folder for folder in path if folder not in sys.path)
    with scratch_folder("penstock-evaluation-") as scratch:
        folder, kept = RunFolder(scratch), scratch / "kept"
        own = replace(plan, **share._asdict(), quiet=True, folder=folder, keep=None if plan.keep is None else kept)
        record, failed = _run_to_end(check(build(own)))
        return Played(
            record,
            failed,
            _text(scratch / RUN_LOG).splitlines(),
            _text(folder.deaths),
            {episode_number(file): np.fromfile(file, np.uint8) for file in list_episodes(kept)},
        )


def _run_to_end(program: Program) -> tuple[Arrays, tuple[str, str] | None]:
    """Run a program to its end on this machine. Its record, or the node that has failed and its traceback.

    Raises:
        LostError: it was interrupted: this machine leaves the cluster, or the launcher is interrupted.
    """
    try:
        with Processes() as processes:
            outcome = supervised_here(program, processes)
    except NodeError as error:
        return {}, (error.node, error.detail)
    except PenstockError:
        return {}, ("evaluation", traceback.format_exc())
    if outcome.interrupted:
        raise LostError("the machine has ended its share of an evaluation")
    return outcome.record, None


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""


def _collected(
    plan: EvaluationPlan, playing: dict[ray.ObjectRef, tuple[Share, str]], interrupts: Interrupts, lost: Sequence[str]
) -> dict[Share, Arrays]:
    """Wait until all shares are played, or the launcher is interrupted. What is played leaves ``playing``.

    Args:
        plan: of the whole evaluation.
        playing: each share that is played, and the name of its machine.
        interrupts: of the launcher.
        lost: filled with a reason if Ray's head is lost.

    Raises:
        PenstockError: a process failed; of the kind of its own error, if that needs no traceback.
        LostError: Ray's head is lost, or machines were lost again and again.
        RunFolderError: an episode cannot be written.
    """
    found: dict[Share, Arrays] = {}
    begun = time.monotonic()
    with contextlib.ExitStack() as closing:
        display = None if plan.quiet else evaluation_display(plan.episodes)
        if display is not None:
            closing.callback(display.close)
        while playing and not interrupts.count and not lost:
            ready, _ = ray.wait(list(playing), timeout=LOOK_S)
            for answer in ready:
                share, machine = playing.pop(answer)
                found[share] = _received(plan, machine, answer)
            if display is not None:
                returns = _returns(found.values())
                mean = sum(returns) / len(returns) if returns else None
                display.show(Progress(len(returns), mean, time.monotonic() - begun, None))
    if playing and lost and not interrupts.count:
        raise LostError(lost[0])
    return found


def _received(plan: EvaluationPlan, machine: str, answer: ray.ObjectRef) -> Arrays:
    """The record of a share. What its processes have logged and kept is written here.

    Raises:
        PenstockError: a process failed; of the kind of its own error, if that needs no traceback.
        LostError: machines were lost again and again.
        RunFolderError: an episode cannot be written.
    """
    try:
        played: Played = ray.get(answer)
    except RayError as error:
        if isinstance(error, RayTaskError) and not isinstance(error, LostError):
            raise NodeError(machine, str(error)) from None
        why = f"{machine} was lost, and so were those that went on with its episodes"
        raise LostError(f"{why}: {line_of(error)}; {_again(plan)}") from None
    _write_logs(plan.folder, machine, played)
    if played.failed is not None:
        node, detail = played.failed
        failed = NodeError(f"{node} on {machine}", detail)
        if failed.plain is None:
            raise failed
        raise type(failed.plain)(f"{machine}: {failed.plain}") from failed
    for number, content in played.kept.items():
        _keep(plan.keep, number, content)
    # Ray's own arrays would keep the whole answer, with its kept episodes, in the object store until the end.
    return {name: values.copy() for name, values in played.record.items()}


def _write_logs(folder: RunFolder, machine: str, played: Played) -> None:
    """Add the logs of a share to those of the run. An evaluation does not need them, so a full disk does not end it."""
    with contextlib.suppress(RunFolderError):
        for line in played.log:
            who, _, text = line.partition(" ")[2].partition(": ")
            add_to_log(folder.path, f"{who} on {machine}: {text}")
    if played.deaths:
        with contextlib.suppress(OSError), folder.deaths.open("a", encoding="utf-8") as log:
            log.write(f"{machine}:\n{played.deaths}")


def _keep(folder: Path | None, number: int, content: Array) -> None:
    if folder is None:
        return
    try:
        write_content(folder, number, content)
    except OSError as error:
        raise RunFolderError(f"{folder} cannot be written: {error.strerror or error}") from None


def _returns(records: Iterable[Arrays]) -> list[float]:
    return [
        value for record in records for value in record["episode_return"][record["ending"] == Ending.PLAYED].tolist()
    ]


def _joined(records: Sequence[Arrays]) -> Arrays:
    """The records of shares as one, in the order of their episodes."""
    names = [name for name, values in records[0].items() if values.ndim] if records else []
    return {name: np.concatenate([record[name] for record in records]) for name in names}


@contextlib.contextmanager
def _cancelling(playing: Mapping[ray.ObjectRef, object]) -> Iterator[None]:
    """End the tasks that still play when the block ends. Their processes have some seconds to close environments."""
    try:
        yield
    finally:
        left = list(playing)
        with contextlib.suppress(RayError):
            for answer in left:
                ray.cancel(answer)
            if left:
                _, left = ray.wait(left, num_returns=len(left), timeout=END_LIMIT_S)
            for answer in left:
                ray.cancel(answer, force=True)
