"""Notes: the lines that tell the user how a run ended, why it failed, and what a resume could not keep.

Writes no file and decides nothing about a run: the learner's record says why a run ended.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import dropwhile
from pathlib import Path
from typing import Any

import numpy as np

from penstock.algorithm import KL_COEF, AlgorithmSpec
from penstock.config.schema import RunConfig
from penstock.config.sources import shown
from penstock.config.whole import Config
from penstock.errors import BadDataError, EnvError, NodeError, PenstockError, StallError
from penstock.metrics.episode_metrics import metrics_in, missing_metrics, perhaps_misspelt
from penstock.metrics.report import RETURN_WINDOW
from penstock.nodes.learner import why_done
from penstock.program.draw import bytes_text
from penstock.replay.resumed import Found
from penstock.replay.table_file import Rings
from penstock.saved_runs.checkpoints import TABLE, Checkpoint
from penstock.supervision.lives import Exit, describe
from penstock.types import Arrays

__all__ = [
    "changes",
    "differences",
    "ended_early",
    "evaluation_given_up",
    "evaluation_interrupted",
    "failed_at_the_end",
    "failure",
    "goes_on_from",
    "interrupted",
    "never_seen",
    "nothing_learned",
    "nothing_to_do",
    "skipped_rollouts",
    "stale_rows",
    "table_differences",
    "table_in_file",
    "table_in_memory",
    "unchanged",
    "updates_lost",
    "without_effect",
]

_TRACEBACK = "Traceback (most recent call last):"
_STACKS = re.compile(r"^(?:Current thread|Thread) 0x", re.MULTILINE)
"""Where Python's ``faulthandler`` begins the stacks of a process."""

_LARGE_TABLE = 256 << 20
"""Bytes. The user is told about a table in memory that is at least this large."""
_MANY_STALE = 0.01
"""The user is told if more than this share of all rows was dropped for its age."""
_LESS = "a smaller --capacity needs less"
_OF_THE_END = frozenset({"eval_episodes", "eval_seconds"})
"""A resume with nothing to do has used these settings for its evaluation."""


def ended_early(run: RunConfig, record: Arrays, folder: Path) -> tuple[str, ...]:
    """One line on why a run ended before its timesteps; empty if it did not."""
    match why_done(record, run):
        case "target_return":
            reached = float(record["returns"].mean())
            average = f"the last {RETURN_WINDOW} training episodes average {reached:,.1f}"
            return (f"stopped at its target: {average}, --target_return is {run.target_return:,.1f}",)
        case "early_stop":
            best, count = float(record["best_evaluation"]), int(record["since_best"])
            kept = f"penstock eval {shlex.quote(str(folder))} --checkpoint best"
            why = f"stopped early: {count} evaluations without improvement, the best was {best:,.1f}"
            return (f"{why}; the policy of the run is its latest, and {kept} plays the best one",)
        case _:
            return ()


def evaluation_given_up(error: EnvError | NodeError) -> str:
    """One line on why the final evaluation was given up."""
    text = str(error)
    if isinstance(error, NodeError):
        text = f"{error.node}: {_last_line(error)}" if error.node else _last_line(error)
    begins = "the evaluation was given up: "
    return text if text.startswith(begins) else begins + text


def evaluation_failed(error: BadDataError) -> str:
    """One line on a final evaluation that met bad numbers."""
    return f"the evaluation failed: {failure(error)}"


def evaluation_interrupted(folder: Path) -> str:
    """One line on an interrupted final evaluation: the run itself is whole."""
    run = shlex.quote(str(folder))
    return f"the evaluation was interrupted; the run in {folder} is complete: penstock eval {run} evaluates it"


def interrupted(folder: Path) -> str:
    """One line on a command that was interrupted, and whose run has a checkpoint."""
    return f"interrupted; continue with: penstock resume {shlex.quote(str(folder))}"


def failed_at_the_end(spared: Sequence[Exit]) -> tuple[str, ...]:
    """One line on processes that failed when nothing was needed of them any more; empty if there are none."""
    if not spared:
        return ()
    first = spared[0]
    others = f" and {len(spared) - 1} more" if len(spared) > 1 else ""
    why = _last_line(NodeError(first.group, first.detail or describe(first)))
    return (f"{first.group}{others} failed while the run ended, which costs the run nothing: {why}",)


def updates_lost(saved: int, updates: int) -> str:
    """One line on a run that ended at once, so that its last checkpoint has fewer updates than were learned."""
    return f"the last checkpoint has {saved:,} updates; what the run learned after them, up to {updates:,}, is lost"


def failure(error: Exception) -> str:
    """One line on why a run failed, for its card."""
    if isinstance(error, NodeError):
        return _last_line(error)
    line = (str(error).strip().splitlines() or ["it did not say why"])[-1]
    return line if isinstance(error, PenstockError) else f"{type(error).__name__}: {line}"


def goes_on_from(checkpoint: Checkpoint, timesteps: int) -> str:
    """One line on the checkpoint from which a resume goes on."""
    steps = int(checkpoint.manifest["steps"])
    return f"goes on from checkpoint {checkpoint.path.name}: {steps:,} steps of {timesteps:,}"


def _last_line(error: NodeError) -> str:
    """What a failed node's error says, without its traceback or its stacks, in one line."""
    if isinstance(error, StallError):
        return error.stood
    said = error.line or error.detail
    if _TRACEBACK in said:
        return _exception_in(said)
    lines = _STACKS.split(said)[0].strip().splitlines()
    return lines[-1] if lines else "it did not say why"


def _exception_in(said: str) -> str:
    """The exception below the last traceback: its first line, and its last one, which may be a note on where it was."""
    below = said.rpartition(_TRACEBACK)[2].strip("\n").splitlines()
    own = [line.strip() for line in dropwhile(lambda line: line.startswith(" "), below) if line.strip()]
    if own:
        return "; ".join(dict.fromkeys((own[0], own[-1])))
    # The lines of an exception group are all set in. A traceback may also have been cut off.
    return below[-1].strip() if below else "it did not say why"


def never_seen(record: Arrays, before: int = 0) -> tuple[str, ...]:
    """One line on episode metrics that none of the latest training episodes has had; else empty.

    Args:
        record: the learner's.
        before: training episodes that had ended before a resume. They may not have been asked for these metrics.
    """
    count = min(int(record["episodes"]) - before, RETURN_WINDOW)
    names = perhaps_misspelt({name: not np.isnan(numbers).all() for name, numbers in metrics_in(record).items()})
    return (missing_metrics(names, count, latest=True),) if count > 0 and names else ()


def nothing_learned(spec: AlgorithmSpec, record: Arrays) -> tuple[str, ...]:
    """One line if a run with a replay table ended before its first gradient step was due; else empty."""
    if spec.table is None or int(record["gradient_steps"]) or not int(record["steps"]):
        return ()
    schedule, _ = spec.replay()
    settings = f"--min_rows {schedule.min_rows}, --updates_per_step {schedule.updates_per_step:g}"
    return (f"nothing was learned: {int(record['steps']):,} steps made no gradient step due; see {settings}",)


def nothing_to_do(run: RunConfig, folder: Path, record: Arrays) -> tuple[str, ...]:
    """One line if a resumed run had ended already, with the command that continues it; else empty."""
    if why_done(record, run) is None:
        return ()
    command = f"penstock resume {shlex.quote(str(folder))}"
    # More timesteps do not help a run that its target or --early_stop has ended.
    why = why_done(record, replace(run, timesteps=int(record["steps"]) + 1))
    if why is None:
        steps = int(record["steps"])
        has = f"its {run.timesteps:,} timesteps" if steps == run.timesteps else f"done {steps:,} steps"
        return (f"nothing to do: the run has {has}; to go on: {command} --timesteps {2 * steps}",)
    never = "none" if why == "target_return" else "0"
    return (f"nothing to do: --{why} has ended the run; to go on without it: {command} --{why} {never}",)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """One line if this resume cannot give the same bits as the run before; else empty.

    Args:
        before: manifest of the checkpoint.
        now: manifest of this resume.
    """
    names = ["instruction_set", "backend", "inference", "threads", "penstock"]
    if before.get("backend") == now["backend"] == "fused":
        # The fused update has the same bits on one thread and on two.
        names.remove("threads")
    changed = [f"{name} {before.get(name)} -> {now[name]}" for name in names if before.get(name) != now[name]]
    return (f"not bit-exact: {', '.join(changed)}; all else continued",) if changed else ()


def changes(before: Config, given: Config, now: Config) -> tuple[str, ...]:
    """Lines on the settings that a resume changes, but for the timesteps, which the first line names; or empty.

    Args:
        before: config of the run.
        given: the same with what the user has given.
        now: config of this resume, with everything decided.
    """
    was, found = before.values(), now.values()
    changed = [name for name in _given_anew(before, given, now) if name != "timesteps"]
    told = ", ".join(f"--{name} {shown(was[name])} -> {shown(found[name])}" for name in changed)
    lines = [f"changed: {told}"] if changed else []
    if "eval_episodes" in changed and now.run.eval_interval:
        fewer, more = sorted((before.run.eval_episodes, now.run.eval_episodes))
        lines.append(
            f"the best checkpoint is chosen among evaluations of {fewer} and of {more} episodes: a high return of few "
            "episodes may be luck"
        )
    return tuple(lines)


def unchanged(before: Config, given: Config, now: Config, go_on: str) -> tuple[str, ...]:
    """One line on the settings that a resume with nothing to do did not change; else empty.

    Args:
        before: config of the run.
        given: the same with what the user has given.
        now: config of this resume, with everything decided.
        go_on: the line of `nothing_to_do`. The settings in its command are left out.
    """
    was, found = before.values(), now.values()
    kept = [name for name in _given_anew(before, given, now) if name not in _OF_THE_END and f" --{name} " not in go_on]
    told = ", ".join(f"--{name} is still {shown(was[name])}, not {shown(found[name])}" for name in kept)
    return (f"{told}: give {'it' if len(kept) == 1 else 'them'} in the command above as well",) if kept else ()


def _given_anew(before: Config, given: Config, now: Config) -> list[str]:
    """Names of the settings that the user has given other values than the run has."""
    was, asked, found = before.values(), given.values(), now.values()
    return [name for name in asked if asked[name] != was.get(name) != found[name]]


def without_effect(before: Config, now: Config) -> tuple[str, ...]:
    """One line if a resume was given a setting that changes nothing; else empty.

    Args:
        before: config of the run.
        now: config of this resume.
    """
    given, target = getattr(now.algorithm, KL_COEF, None), getattr(now.algorithm, "kl_target", 0.0)
    if not target or given == getattr(before.algorithm, KL_COEF, None):
        return ()
    return (f"--kl_coef {given:g} changes nothing: the checkpoint holds the weight that --kl_target {target:g} adapts",)


def table_differences(spec: AlgorithmSpec, manifest: Mapping[str, Any], found: Found | None) -> tuple[str, ...]:
    """One line if a run was resumed without all replay rows and priorities of its checkpoint; else empty.

    Args:
        spec: of the algorithm.
        manifest: of the checkpoint.
        found: the rows found in the table's file; ``None`` if the table has no file.
    """
    if spec.table is None or TABLE in manifest["files"]:
        return ()
    if found is None:
        found = Found(why="its rows did not go with the checkpoint")
    if found.why:
        what = f"the replay table begins empty ({found.why})"
    elif found.altered:
        what = (
            f"of {found.rows:,} replay rows {found.left_out:,} are left out, {found.altered:,} of them because the "
            "file was altered: the altered rows, and all older rows of the same environment process"
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
    """One line on the file of a replay table: its size, how many rows it holds, its path, what makes it smaller."""
    size = bytes_text(rings.file_bytes)
    if found.rows:
        return f"the replay table is a file of {size}, {found.rows - found.left_out:,} rows in it: {path}"
    return f"the replay table is a file of {size}: {path}; {_LESS}"


def table_in_memory(count: int) -> str:
    """One line on the memory of a replay table; empty if it takes little."""
    return f"the replay table takes {bytes_text(count)} of memory; {_LESS}" if count >= _LARGE_TABLE else ""


def stale_rows(run: RunConfig, record: Arrays) -> tuple[str, ...]:
    """One line if more than ``_MANY_STALE`` of all rows were dropped for their age; else empty."""
    stale, steps = int(record["stale"]), int(record["steps"])
    if stale <= _MANY_STALE * (steps + stale):
        return ()
    dropped = f"{stale:,} of {steps + stale:,} rows were dropped (rows/stale)"
    return (f"{dropped}: they, or all gradients of their batch, were older than --max_policy_lag {run.max_policy_lag}",)


def skipped_rollouts(counters: Mapping[str, Mapping[str, int]]) -> tuple[str, ...]:
    """One line if rollouts were skipped because of NaN or infinity; else empty."""
    count = sum(counts["skipped"] for counts in counters.values())
    if not count:
        return ()
    return (f"{count} rollouts held NaN or infinity and were skipped; rows/spoilt counts their rows",)
