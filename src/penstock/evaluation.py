"""What a policy is worth: greedy episodes once its run is over. While it runs, the evaluator node judges."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from penstock.errors import BadDataError, ConfigError, NodeError
from penstock.nodes.evaluation import Ending
from penstock.planning import Prepared
from penstock.program.plan import EvaluationPlan
from penstock.registry import RUNTIMES, load
from penstock.scheduler.outcome import Outcome
from penstock.topologies.evaluation import build
from penstock.types import Arrays

__all__ = ["Asked", "Evaluation", "judge"]


@dataclass(frozen=True)
class Evaluation:
    """Greedy episodes of one policy. Returns are undiscounted sums of the environment's own rewards."""

    mean_return: float
    std_return: float
    mean_length: float
    episodes: int
    """How many were played to their end, and count."""
    env: str
    seed: int
    checkpoint: str | None = field(default=None, compare=False)
    """The name of the checkpoint that played; ``None``: what a run had learned at its end."""
    remark: str = field(default="", compare=False)
    """Why there are fewer episodes than were asked for, in a few words; mostly empty."""


class Asked(NamedTuple):
    """What is asked of an evaluation."""

    episodes: int
    seed: int
    seconds: float | None
    """After so many, no episode begins but the first 5; ``None``: there is no limit."""
    quiet: bool
    """No display."""


def judge(prepared: Prepared, published: Arrays, asked: Asked, deaths: Path) -> Evaluation:
    """Greedy episodes, played side by side by as many processes as the run has environment processes.

    Args:
        prepared: of the run.
        published: the parameters and statistics that play.
        asked: how many episodes, which, and how long.
        deaths: the file that gets the tracebacks of processes that are started again.

    Raises:
        EnvError: a step takes too long, none of the episodes has ended for too long, or the environment cannot be made.
        BadDataError: an episode held NaN or infinity; where these are skipped, all did.
        NodeError: a process failed otherwise, the environment's own errors included.
        KeyboardInterrupt: it was interrupted.
    """
    program = build(_plan(prepared, published, asked, deaths))
    try:
        outcome: Outcome = load(RUNTIMES[prepared.config.run.runtime].launch)(program)
    except NodeError as error:
        if error.plain is None:
            raise
        raise error.plain from error
    if outcome.interrupted:
        raise KeyboardInterrupt
    return _evaluation(outcome.record, prepared.profile.name, asked)


def _plan(prepared: Prepared, published: Arrays, asked: Asked, deaths: Path) -> EvaluationPlan:
    run, profile = prepared.config.run, prepared.profile
    if not isinstance(run.num_workers, int):
        raise ConfigError("an evaluation needs a config that is resolved")
    return EvaluationPlan(
        run=run,
        name=profile.name,
        env=prepared.env,
        spaces=profile.spaces,
        kind=profile.kind,
        policy=prepared.spec.policy,
        inference=prepared.inference,
        published=published,
        num_workers=run.num_workers,
        episodes=asked.episodes,
        seed=asked.seed,
        seconds=asked.seconds,
        quiet=asked.quiet,
        deaths=deaths,
    )


def _evaluation(found: Arrays, env: str, asked: Asked) -> Evaluation:
    """The answers to all tickets, added up in the order of their numbers.

    Raises:
        BadDataError: no episode counts.
    """
    played, spoilt = found["ending"] == Ending.PLAYED, int((found["ending"] == Ending.SPOILT).sum())
    returns, lengths = found["episode_return"][played], found["length"][played]
    if not len(returns):
        raise BadDataError(f"evaluation: every episode of {env} held NaN or infinity")
    remarks = []
    if asked.seconds is not None and len(returns) + spoilt < asked.episodes:
        remarks.append(f"played {len(returns) + spoilt:,} of {asked.episodes:,} within {asked.seconds:g} s")
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
    )
