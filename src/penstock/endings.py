"""What is said of a run's end, of a failure and of a resume: lines for the user, a card, a last line in the log.

It decides nothing about a run; the learner's record says why it ended.
"""

import contextlib
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.algorithm import AlgorithmSpec
from penstock.config.schema import Config, RunConfig
from penstock.errors import EnvError, NodeError, PenstockError, RunFolderError
from penstock.experiments.card import Evaluated, write_card
from penstock.experiments.checkpoints import TABLE, last_good, list_checkpoints
from penstock.experiments.durable import remove_folder
from penstock.experiments.run_folder import RunFolder
from penstock.metrics.jsonl import JsonLines, read_reports
from penstock.metrics.report import EVAL_RETURN, FINAL, Report
from penstock.metrics.tensorboard import TensorBoard
from penstock.nodes.learner import RETURN_WINDOW, why_done
from penstock.program.draw import bytes_text
from penstock.replay.resumed import Found
from penstock.replay.table_file import Rings
from penstock.types import Arrays

__all__ = [
    "differences",
    "ended_early",
    "evaluation_given_up",
    "leave_failed",
    "log_final",
    "nothing_learned",
    "over_already",
    "remove_unbegun",
    "skipped",
    "table_found",
    "table_in_file",
    "unbegun",
]


def ended_early(run: RunConfig, record: Arrays) -> tuple[str, ...]:
    """Why a run has ended before its timesteps, in one line; nothing if it has not."""
    match why_done(record, run):
        case "target_return":
            reached = float(record["returns"].mean())
            average = f"the last {RETURN_WINDOW} training episodes average {reached:,.1f}"
            return (f"stopped at its target: {average}, --target_return is {run.target_return:,.1f}",)
        case "early_stop":
            best, count = float(record["best_evaluation"]), int(record["since_best"])
            return (f"stopped early: {count} evaluations without improvement, the best was {best:,.1f}",)
        case _:
            return ()


def evaluation_given_up(error: EnvError | NodeError) -> str:
    """Why the final evaluation was given up, in one line."""
    said = f"{error.node}: {last_words(error)}" if isinstance(error, NodeError) else str(error)
    begins = "the evaluation was given up: "
    return said if said.startswith(begins) else begins + said


def last_words(error: NodeError) -> str:
    """The last line that a failed node has said."""
    return ((error.line or error.detail).strip().splitlines() or ["it did not say why"])[-1]


def nothing_learned(spec: AlgorithmSpec, record: Arrays) -> tuple[str, ...]:
    """One line if a run that learns from a table has ended before a gradient step was due."""
    if spec.table is None or int(record["gradient_steps"]) or not int(record["steps"]):
        return ()
    schedule, _ = spec.replay()
    settings = f"--min_rows {schedule.min_rows}, --updates_per_step {schedule.updates_per_step:g}"
    return (f"nothing was learned: {int(record['steps']):,} steps made no gradient step due; see {settings}",)


def over_already(run: RunConfig, folder: Path, record: Arrays) -> tuple[str, ...]:
    """One line if a run that is resumed had nothing left to do, with what to type to go on."""
    if why_done(record, run) is None:
        return ()
    command = f"penstock resume {shlex.quote(str(folder))}"
    # With more timesteps, what else ends it would end it still.
    why = why_done(record, replace(run, timesteps=int(record["steps"]) + 1))
    if why is None:
        go_on = f"{command} --timesteps {2 * int(record['steps'])}"
        return (f"nothing to do: the run has its {run.timesteps:,} timesteps; to go on: {go_on}",)
    never = "none" if why == "target_return" else "0"
    return (f"nothing to do: the run has ended by its {why}; to go on without: {command} --{why} {never}",)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """One line if what the bits of the answer depend on differs between a checkpoint's manifest and this resume."""
    names = ["instruction_set", "backend", "inference", "threads", "penstock"]
    if before.get("backend") == now["backend"] == "fused":
        # The fused update has the same bits on one thread and on two.
        names.remove("threads")
    changed = [f"{name} {before.get(name)} -> {now[name]}" for name in names if before.get(name) != now[name]]
    return (f"not bit-exact: {', '.join(changed)}; all else continued",) if changed else ()


def table_found(spec: AlgorithmSpec, manifest: Mapping[str, Any], found: Found | None) -> tuple[str, ...]:
    """One line if a run that learns from a table was resumed without all of its checkpoint's rows.

    Args:
        spec: of the algorithm.
        manifest: of the checkpoint.
        found: what was in the table's file, if it has one.
    """
    if spec.table is None or TABLE in manifest["files"]:
        return ()
    if found is None:
        found = Found(why="its rows did not go with the checkpoint")
    if found.why:
        what = f"the replay table begins empty ({found.why})"
    elif found.altered:
        what = (
            f"of {found.rows:,} replay rows {found.left_out:,} are left out, {found.altered:,} of them because rows in "
            "the file were altered: with these goes what the same environment process wrote before"
        )
    elif found.left_out:
        what = (
            f"of {found.rows:,} replay rows {found.left_out:,} were overwritten after the checkpoint and are left out"
        )
    elif not found.same_ranks:
        what = "priorities of replay rows are those of the run's end, not of the checkpoint"
    else:
        return ()
    return (f"not bit-exact: {what}; all else continued",)


def table_in_file(path: Path, rings: Rings, found: Found) -> str:
    """What a run says at its start of a table that lies in a file."""
    kept = f", {found.rows - found.left_out:,} rows in it" if found.rows else ""
    return f"the replay table is a file of {bytes_text(rings.file_bytes)}{kept}: {path}"


def skipped(counters: Mapping[str, Mapping[str, int]]) -> tuple[str, ...]:
    """One line if rollouts were dropped for what they held."""
    count = sum(counts["skipped"] for counts in counters.values())
    if not count:
        return ()
    return (f"{count} rollouts held NaN or infinity and were skipped; their rows stand under rows/spoilt",)


def leave_failed(folder: RunFolder, config: Config, error: PenstockError) -> str:
    """Write the card of a run that failed; returns a line on what is left of it."""
    last_line = last_words(error) if isinstance(error, NodeError) else str(error).strip().splitlines()[-1]
    good = last_good(folder.path)
    steps, update = (good.manifest["steps"], good.manifest["update"]) if good else (0, 0)
    with contextlib.suppress(RunFolderError):
        write_card(folder, config, steps, update, None, failure=last_line)
    if good is None:
        return f"it has no checkpoint; its folder: {folder.path}"
    return (
        f"its last checkpoint, update {update}, is good; to continue: penstock resume {shlex.quote(str(folder.path))}"
    )


def unbegun(folder: RunFolder) -> bool:
    """True while a run has no checkpoint and no line in its log: nothing could be done with it."""
    log = folder.metrics_path
    return not list_checkpoints(folder.path) and not (log.exists() and log.stat().st_size)


def remove_unbegun(folder: RunFolder) -> None:
    """Remove the folder of a run that was interrupted so early that there is nothing of use in it."""
    with contextlib.suppress(OSError):
        if unbegun(folder):
            remove_folder(folder.path)


def log_final(folder: Path, evaluation: Evaluated, update: int, steps: int, time_s: float) -> None:
    """Add the final evaluation to the metrics, as those during the run are; once, however often the run is ended.

    Raises:
        RunFolderError: they cannot be written.
    """
    values = {
        EVAL_RETURN: evaluation.mean_return,
        "eval/return_std": evaluation.std_return,
        "eval/length_mean": evaluation.mean_length,
        "eval/episodes": float(evaluation.episodes),
        FINAL: 1.0,
    }
    try:
        if any(report.update == update and values.items() <= report.values.items() for report in read_reports(folder)):
            return
        sinks = (JsonLines(folder, update), TensorBoard(folder))
        for sink in sinks:
            sink.write(Report(update, steps, time_s, values))
            sink.close()
    except OSError as error:
        raise RunFolderError(f"cannot write the metrics in {folder}: {error.strerror or error}") from error
