"""The final evaluation: greedy episodes at the end of a run. While a run goes on, the `EvaluatorNode` plays them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from penstock.config.episode_metrics import EpisodeMetric, episode_metrics
from penstock.config.resolve import available_cores
from penstock.config.schema import RunConfig
from penstock.errors import BadDataError, ConfigError, NodeError
from penstock.metrics.episode_metrics import metrics_in, reported
from penstock.nodes.evaluation import Ending
from penstock.planning import Prepared
from penstock.processes.starts import Processes
from penstock.program.plan import EvaluationPlan
from penstock.registry import RUNTIMES, load
from penstock.saved_runs.run_folder import RunFolder
from penstock.supervision.outcome import Outcome
from penstock.topologies.evaluation import build
from penstock.types import Arrays

__all__ = ["Asked", "Evaluation", "judge", "players_after", "players_here", "runtime_here"]


@dataclass(frozen=True)
class Evaluation:
    """Greedy episodes of one policy. Returns are undiscounted sums of the environment's own rewards.

    Attributes:
        mean_return: over the episodes that count.
        std_return: standard deviation of their returns.
        mean_length: their mean length, in environment steps.
        episodes: number of episodes that were played to their end and count.
        env: name of the environment.
        seed: of the episodes.
        checkpoint: name of the checkpoint that played; ``None``: the parameters at the end of the run.
        remark: why fewer episodes count than asked for, in a few words; mostly empty.
        returns: return of each episode that counts, in the order of their seeds.
        metrics: label of each episode metric (``episode_metrics``) -> its mean, sum, ... over the episodes that have
            it.
    """

    mean_return: float
    std_return: float
    mean_length: float
    episodes: int
    env: str
    seed: int
    checkpoint: str | None = field(default=None, compare=False)
    remark: str = field(default="", compare=False)
    returns: tuple[float, ...] = field(default=(), compare=False, repr=False)
    metrics: Mapping[str, float] = field(default_factory=dict, compare=False)


class Asked(NamedTuple):
    """Settings of one evaluation."""

    episodes: int
    seed: int
    seconds: float | None
    """Seconds after which no episode begins, except the first 5; ``None``: no limit."""
    quiet: bool
    """No display."""
    players: int
    """Most processes that play. Episodes depend on their number only where environments reset themselves."""
    runtime: str
    """Plays them: on this machine, or on all machines of the cluster that this process has joined."""
    keep: Path | None = None
    """Folder for the files of the episodes; ``None``: they are not kept."""


def players_after(run: RunConfig) -> int:
    """Most processes that play once a run, whose config is resolved, has ended on this machine.

    A run on one machine: as many as its environment processes, since this machine has just run those. They may be more
    than its cores, where environments wait. A run on several machines: as `players_here`.
    """
    return players_here(run) if RUNTIMES[run.runtime].machines else _workers(run)


def players_here(run: RunConfig, cores: int | None = None) -> int:
    """Most processes that play if the run may have trained elsewhere: one for each core, if the run has as many.

    Args:
        run: its config, resolved.
        cores: of all machines that play; one process plays even if they have none. ``None``: this machine plays alone.
    """
    return min(_workers(run), available_cores() if cores is None else max(1, cores))


def runtime_here(run: RunConfig) -> str:
    """The runtime of a run, or one like it that needs this machine alone."""
    return RunConfig.runtime if RUNTIMES[run.runtime].machines else run.runtime


def judge(processes: Processes, prepared: Prepared, published: Arrays, asked: Asked, folder: RunFolder) -> Evaluation:
    """Play greedy episodes in processes of their own.

    Args:
        processes: play in these; no other runs.
        prepared: of the run.
        published: the parameters and statistics that play.
        asked: how many episodes, from which seed, in how much time, in how many processes, by which runtime.
        folder: of the run. Its log and its log of deaths get what the processes log, and how they die.

    Raises:
        ConfigError: the environment is a game, which cannot be asked for episodes.
        EnvError: a step takes too long, no episode has ended for too long, or the environment cannot be made.
        BadDataError: an episode held NaN or infinity; with ``bad_numbers`` ``skip``: every episode did.
        NodeError: a process failed otherwise; also for an error of the environment.
        LostError: the head of the cluster was lost, or machines were lost again and again.
        KeyboardInterrupt: it was interrupted.
    """
    plan, runtime = _plan(prepared, published, asked, folder), RUNTIMES[asked.runtime]
    try:
        outcome: Outcome
        if runtime.evaluated is None:
            outcome = load(runtime.launch)(build(plan), processes)
        else:
            outcome = load(runtime.evaluated)(plan, build)
    except NodeError as error:
        if error.plain is None:
            raise
        raise error.plain from error
    if outcome.interrupted:
        raise KeyboardInterrupt
    metrics = episode_metrics(prepared.config.run.episode_metrics)
    return _evaluation(outcome.record, prepared.profile.name, asked, metrics)


def _plan(prepared: Prepared, published: Arrays, asked: Asked, folder: RunFolder) -> EvaluationPlan:
    run, profile = prepared.config.run, prepared.profile
    if profile.kind == "game":
        raise ConfigError(f"{profile.name} is a game that connects to its run, so it cannot be asked for episodes")
    return EvaluationPlan(
        run=run,
        name=profile.name,
        env=prepared.env,
        spaces=profile.spaces,
        kind=profile.kind,
        policy=prepared.spec.policy,
        inference=prepared.inference,
        published=published,
        num_workers=_workers(run),
        players=asked.players,
        episodes=asked.episodes,
        seed=asked.seed,
        seconds=asked.seconds,
        quiet=asked.quiet,
        folder=folder,
        keep=asked.keep,
    )


def _workers(run: RunConfig) -> int:
    if not isinstance(run.num_workers, int):
        raise ConfigError("an evaluation needs a config that is resolved")
    return run.num_workers


def _evaluation(found: Arrays, env: str, asked: Asked, metrics: Sequence[EpisodeMetric]) -> Evaluation:
    """Sum up the played tickets, in the order of their numbers.

    Raises:
        BadDataError: no episode counts.
    """
    played, spoilt = found["ending"] == Ending.PLAYED, int((found["ending"] == Ending.SPOILT).sum())
    returns, lengths = found["episode_return"][played], found["length"][played]
    if not len(returns):
        raise BadDataError(f"evaluation: every episode of {env} held NaN or infinity")
    remarks = []
    if asked.seconds is not None and len(returns) + spoilt < asked.episodes:
        begun = len(returns) + spoilt
        remarks.append(f"played {begun:,} of {asked.episodes:,}, as none begins after --eval_seconds {asked.seconds:g}")
    if spoilt:
        remarks.append(f"left out {spoilt:,} that held NaN or infinity")
    return Evaluation(
        float(returns.mean()),
        float(returns.std()),
        float(lengths.mean()),
        len(returns),
        env,
        asked.seed,
        remark=", ".join(remarks),
        returns=tuple(returns.tolist()),
        metrics=reported(metrics, {name: numbers[played] for name, numbers in metrics_in(found).items()}),
    )
