"""What is left of a run after its last update: the exported policy, the final evaluation, the card, the result.

Learns nothing, and starts no process but the players of the evaluation.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.config.whole import Config
from penstock.errors import BadDataError, ConfigError, EnvError, NodeError, RunFolderError
from penstock.evaluation import Asked, Evaluation, judge, players_after, runtime_here
from penstock.metrics.final import log_final
from penstock.metrics.run_log import add_to_log
from penstock.notes import (
    ended_early,
    evaluation_failed,
    evaluation_given_up,
    evaluation_interrupted,
    failed_at_the_end,
    interrupted,
    never_seen,
    nothing_learned,
    skipped_rollouts,
    stale_rows,
    updates_lost,
)
from penstock.planning import Prepared
from penstock.policies.critic_fields import deployed
from penstock.processes.starts import Processes
from penstock.saved_runs.card import write_card
from penstock.saved_runs.checkpoints import list_checkpoints
from penstock.saved_runs.leftovers import is_unbegun
from penstock.saved_runs.run_folder import RunFolder
from penstock.serving.export import export
from penstock.serving.policy import Policy
from penstock.supervision.outcome import Outcome
from penstock.trained import policy_of, published_of
from penstock.types import Arrays

__all__ = ["Result", "finish", "logged", "telling_how_to_go_on"]


@dataclass(frozen=True)
class Result:
    """The result of a training run.

    Attributes:
        run_folder: holds the checkpoints, metrics and exported policy.
        evaluation: of the last policy. ``None`` if ``eval_episodes`` is 0, the run was interrupted, or its evaluation
            was given up; a note says why it was given up.
        policy: the last policy, ready to act.
        steps: environment steps of the whole run, all lanes together.
        updates: of the whole run.
        interrupted: Ctrl-C or a signal ended the run, so it can be resumed if it has a checkpoint.
        not_restored: lanes that began a new episode because a resume could not restore theirs.
        resumable: it has a checkpoint. A run that was interrupted twice before its first one has none.
        notes: lines on why the run ended before its timesteps, or on what a resume could not keep; mostly none.
    """

    run_folder: Path
    evaluation: Evaluation | None
    policy: Policy
    steps: int
    updates: int
    interrupted: bool
    not_restored: int = 0
    notes: tuple[str, ...] = ()
    resumable: bool = True


@contextlib.contextmanager
def telling_how_to_go_on(folder: RunFolder) -> Iterator[None]:
    """Add to a KeyboardInterrupt of the ``with`` block the command that continues the run.

    Nothing is added if the interrupt has a text already, or if the run has no checkpoint.

    Raises:
        KeyboardInterrupt: as the body does.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if str(interrupt) or not list_checkpoints(folder.path):
            raise
        raise KeyboardInterrupt(interrupted(folder.path)) from None


def finish(
    processes: Processes,
    prepared: Prepared,
    folder: RunFolder,
    outcome: Outcome,
    begun_anew: int = 0,
    *,
    card_config: Config,
    episodes_before: int = 0,
    had_ended: bool = False,
    quiet: bool,
) -> Result:
    """Everything after the last update: export, card, evaluation.

    Args:
        processes: play the evaluation.
        prepared: the run.
        folder: of the run.
        outcome: of the program.
        begun_anew: lanes whose episode a resume could not restore.
        card_config: settings that the card shows.
        episodes_before: training episodes that had ended before a resume.
        had_ended: a resume had nothing left to learn, so the run did not end now.
        quiet: no display.
    """
    record, run = outcome.record, prepared.config.run
    if not record or is_unbegun(folder):
        # The run was interrupted before its first commit. Its caller says so, and removes the folder.
        raise KeyboardInterrupt
    policy = policy_of(prepared, record)
    no_file = _exported(prepared, folder, published_of(prepared, record))
    steps, updates = int(record["steps"]), int(record["update"])
    # The card is written here and after the evaluation: that may be long or interrupted, and the run is usable now.
    write_card(folder, card_config, steps, updates, None)
    evaluation, given_up = None, ""
    if run.eval_episodes and not outcome.interrupted:
        evaluation, given_up = _evaluated(processes, prepared, folder, record, card_config, quiet=quiet)
    not_restored = begun_anew + sum(counts["not_restored"] for counts in outcome.counters.values())
    saved = [int(path.name.rpartition("-")[2]) for path in list_checkpoints(folder.path)]
    return Result(
        run_folder=folder.path,
        evaluation=evaluation,
        policy=policy,
        steps=steps,
        updates=updates,
        interrupted=outcome.interrupted,
        not_restored=not_restored,
        notes=(
            *no_file,
            *failed_at_the_end(outcome.spared),
            *skipped_rollouts(outcome.counters),
            *stale_rows(run, record),
            *((given_up,) if given_up else ()),
            *_of_its_end(prepared, folder, outcome, saved, episodes_before, has_ended_now=not had_ended),
        ),
        resumable=bool(saved),
    )


def _evaluated(
    processes: Processes, prepared: Prepared, folder: RunFolder, record: Arrays, card_config: Config, *, quiet: bool
) -> tuple[Evaluation | None, str]:
    """Play the final evaluation, and write it into the log and on the card.

    Returns:
        The evaluation, and an empty text; or ``None``, and why it was given up.

    Raises:
        BadDataError: an episode held NaN or infinity. The card says so.
    """
    run, steps, updates = prepared.config.run, int(record["steps"]), int(record["update"])
    asked = Asked(run.eval_episodes, run.seed, run.eval_seconds, quiet, players_after(run), runtime_here(run))
    try:
        with _noting_its_end(folder, steps, updates):
            evaluation = judge(processes, prepared, published_of(prepared, record), asked, folder)
    except (EnvError, NodeError) as error:
        given_up = evaluation_given_up(error)
        write_card(folder, card_config, steps, updates, None, unevaluated=given_up)
        return None, given_up
    except BadDataError as error:
        with contextlib.suppress(RunFolderError):
            write_card(folder, card_config, steps, updates, None, unevaluated=evaluation_failed(error))
        raise
    elapsed_s = float(record["elapsed_s"])
    log_final(folder.path, evaluation, updates, steps, elapsed_s, axis=run.tensorboard_axis)
    write_card(folder, card_config, steps, updates, evaluation)
    return evaluation, ""


def _of_its_end(
    prepared: Prepared,
    folder: RunFolder,
    outcome: Outcome,
    saved: Sequence[int],
    episodes_before: int,
    *,
    has_ended_now: bool,
) -> tuple[str, ...]:
    """Lines on why the run ended where it did, and on what it did not learn or lost.

    Args:
        prepared: the run.
        folder: of the run.
        outcome: of the program.
        saved: the updates that have a checkpoint, in their order.
        episodes_before: training episodes that had ended before a resume.
        has_ended_now: false if a resume had nothing left to learn.
    """
    record, updates = outcome.record, int(outcome.record["update"])
    if saved and saved[-1] < updates:
        return (updates_lost(saved[-1], updates),)
    if outcome.interrupted or not has_ended_now:
        return ()
    return (
        *ended_early(prepared.config.run, record, folder.path),
        *nothing_learned(prepared.spec, record),
        *never_seen(record, episodes_before),
    )


@contextlib.contextmanager
def _noting_its_end(folder: RunFolder, steps: int, updates: int) -> Iterator[None]:
    """If the final evaluation in the ``with`` block is interrupted or meets bad numbers, the run's log says so.

    Raises:
        BadDataError: as the body does.
        KeyboardInterrupt: as the body does, with what to type.
    """
    try:
        yield
    except BadDataError as error:
        with contextlib.suppress(RunFolderError):
            _log_end(folder.path, steps, updates, evaluation_failed(error))
        raise
    except KeyboardInterrupt:
        with contextlib.suppress(RunFolderError):
            _log_end(folder.path, steps, updates, evaluation_interrupted(folder.path))
        raise KeyboardInterrupt(evaluation_interrupted(folder.path)) from None


def logged(result: Result) -> Result:
    """Add the notes of a result to the run's log, and how the run ended. Returns the result."""
    ended = "stopped" if result.interrupted else "ended"
    _log_end(result.run_folder, result.steps, result.updates, *result.notes, ended=ended)
    return result


def _log_end(folder: Path, steps: int, updates: int, *notes: str, ended: str = "ended") -> None:
    add_to_log(folder, *notes, f"{ended} after {steps:,} steps, at update {updates:,}")


def _exported(prepared: Prepared, folder: RunFolder, published: Arrays) -> tuple[str, ...]:
    """Write ``policy.onnx``. Returns a line if the policy is a module that ONNX cannot express, else nothing."""
    try:
        found = deployed(prepared.spec.policy, prepared.profile.spaces)
        export(folder.path, found.spaces, found.graph, found.record(published))
    except ConfigError as error:
        return (f"no policy.onnx: {error}",)
    return ()
