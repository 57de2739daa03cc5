"""A comparison as a table for the terminal, and as JSON. Prints nothing."""

import json
from collections.abc import Callable
from typing import Any

from penstock.config.agreement import learners_text
from penstock.config.nodes_text import policy_nodes_text, processes_text
from penstock.config.schema import RunConfig
from penstock.config.sources import shown
from penstock.metrics.episode_metrics import EPISODE
from penstock.saved_runs.code import code_text
from penstock.saved_runs.comparison.bootstrap import CONFIDENCE, Estimate
from penstock.saved_runs.comparison.measures import Comparison, Measure
from penstock.saved_runs.comparison.sides import Side
from penstock.saved_runs.launches import SETTINGS
from penstock.saved_runs.parts import parts_text

__all__ = ["as_json", "as_table", "described", "of_what"]

_GAP = "   "


def as_json(found: Comparison) -> str:
    """One JSON object: the sides, then every measure with its value and interval for each side.

    Shares are from 0 to 1. ``differences`` are those of each other side to the first.
    """
    task = found.sides[0].runs[0].settings
    body: dict[str, Any] = {
        "env": task.env,
        "returns": found.returns,
        "confidence": CONFIDENCE,
        "sides": [_side(side) for side in found.sides],
    }
    for measure in found.measures:
        at = {} if measure.at is None else {"at": measure.at}
        body[measure.name] = {
            **at,
            "sides": [one and one._asdict() for one in measure.sides],
            "differences": [one and one._asdict() for one in measure.differences],
        }
    return json.dumps(body)


def as_table(found: Comparison) -> str:
    """The comparison as lines of text: the runs of each side, a line for each measure, and how to read it."""
    first = found.sides[0].name
    heads = ["", *(side.name for side in found.sides), *(f"{side.name} - {first}" for side in found.sides[1:])]
    rows = [heads]
    for measure in found.measures:
        shown_sides = [_number(measure, one) for one in measure.sides]
        rows.append([_title(measure), *shown_sides, *(_number(measure, one, "+") for one in measure.differences)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    lines = [_GAP.join([title.ljust(widths[0]), *map(str.rjust, cells, widths[1:])]).rstrip() for title, *cells in rows]
    task = found.sides[0].runs[0].settings
    sides = [f"  {side.name}  {described(side, found)}{_own_code(side)}" for side in found.sides]
    return "\n".join((f"{shown(task.env)}: {of_what(found)}", *sides, "", *lines, "", *_notes(found)))


def of_what(found: Comparison) -> str:
    """What the returns are of, in words."""
    if found.returns == "evaluation":
        return "mean return of the evaluations during the run"
    return "mean return of the last 100 training episodes"


def described(side: Side, found: Comparison) -> str:
    """The runs of a side in one line, with their number of processes if it differs between the sides."""
    steps = [run.last.steps for run in side.runs]
    seconds = [run.last.time_s for run in side.runs]
    seeds = ", ".join(str(run.settings.seed) for run in side.runs)
    reached = f"{_span(steps, ',.0f')} steps in {_span(seconds, ',.1f')} s"
    counts = {part.run.num_workers for one in found.sides for run in one.runs for part in run.parts}
    of_each = [
        _of_runs(side, lambda run: processes_text(run.num_workers) if len(counts) > 1 else ""),
        _of_runs(side, policy_nodes_text, otherwise="policy in place"),
        _of_runs(side, learners_text, otherwise="1 learner"),
    ]
    nodes = "".join(f"{text}; " for text in of_each if text)
    if len(side.runs) == 1:
        return f"{side.runs[0].path.resolve().name} ({side.algorithm}, {nodes}seed {seeds}): {reached}"
    return f"{len(side.runs)} runs of {side.algorithm} ({nodes}seeds {seeds}): {reached}"


def _own_code(side: Side) -> str:
    """The commits of the user's own code, as the end of a line; empty if none is known."""
    commits = dict.fromkeys(text for run in side.runs if (text := code_text(run.code)))
    return f"; own code: {' or '.join(commits)}" if commits else ""


def _of_runs(side: Side, text_of: Callable[[RunConfig], str], otherwise: str = "") -> str:
    """What is said of a side's runs, each text once. ``otherwise`` stands for a run of which nothing is said."""
    found = list(dict.fromkeys(parts_text(run.parts, text_of, otherwise) for run in side.runs))
    return "" if found == [""] else " or ".join(text or otherwise for text in found)


def _span(numbers: list[int] | list[float], form: str) -> str:
    low, high = format(min(numbers), form), format(max(numbers), form)
    return low if low == high else f"{low} to {high}"


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "algorithm": side.algorithm,
        "interval_over": "runs" if len(side.runs) > 1 else "episodes",
        "runs": [
            {
                "path": str(run.path),
                "seed": run.settings.seed,
                "steps": run.last.steps,
                "time_s": run.last.time_s,
                "code": run.code,
                **_settings(run.settings),
                "parts": [{"begin": part.begin, **_settings(part.run)} for part in run.parts],
            }
            for run in side.runs
        ],
    }


def _settings(run: RunConfig) -> dict[str, Any]:
    """The settings that the lines of the sides are made of."""
    return {name: getattr(run, name) for name in SETTINGS}


def _title(measure: Measure) -> str:
    if measure.name == "return_at_equal_steps":
        return f"return after {measure.at:,.0f} steps"
    if measure.name == "return_at_equal_wall_time":
        return f"return after {measure.at:,.1f} s"
    if measure.name == "final_evaluation":
        return "return at the end, greedy"
    if measure.name == "steps_per_second":
        return "steps/s"
    if measure.name.startswith(EPISODE):
        return f"{measure.name.removeprefix(EPISODE)} after {measure.at:,.0f} steps, in training"
    return f"idle: {measure.name.removeprefix('idle/')}"


def _number(measure: Measure, one: Estimate | None, sign: str = "") -> str:
    """``475.1 [470.2, 480.0]``; a dash for a side that does not have the measure."""
    if one is None:
        return "-"
    form = f"{sign},.1f"
    if measure.name == "steps_per_second":
        form = f"{sign},.0f"
    elif measure.name.startswith(EPISODE):
        form = f"{sign},.3g"
    elif measure.name.startswith("idle/"):
        form = f"{sign}.1%"
    if one.low is None or one.high is None:
        return f"{one.value:{form}}"
    return f"{one.value:{form}} [{one.low:{form}}, {one.high:{form}}]"


def _notes(found: Comparison) -> list[str]:
    """How to read the dashes, if there are any, and the intervals."""
    several = [side.name for side in found.sides if len(side.runs) > 1]
    single = [side.name for side in found.sides if len(side.runs) == 1]
    notes = [f"[low, high]: {CONFIDENCE:.0%} interval by bootstrap."]
    if several:
        notes.append(f"Over the runs of {', '.join(several)}.")
    if single:
        notes.append(f"Over the episodes of the one run of {', '.join(single)}: another seed may differ by more.")
    missing = [measure for measure in found.measures if None in measure.sides]
    why = "; ".join(dict.fromkeys(_why_missing(measure) for measure in missing))
    return [*([f"-: a run of the side {why}."] if why else []), " ".join(notes)]


def _why_missing(measure: Measure) -> str:
    """Why a side does not have this measure: what its run lacks."""
    if measure.at is not None:
        return "had not reported it by then"
    if measure.name == "final_evaluation":
        return "was not evaluated at its end"
    return "reported no such node" if measure.name.startswith("idle/") else "has no time"
