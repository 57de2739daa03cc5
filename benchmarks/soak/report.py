"""The report of a soak: bars first, then the figures behind them; as JSON, and as a table for people."""

import math
import signal
import statistics
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bars import Bar
from benchmarks.record import commit, machine, write
from benchmarks.soak.faults import Matched, match, uncaused
from benchmarks.soak.measures import Cycle, Life, cycles, lives, recovery_s, throughput_ratio, varied
from benchmarks.soak.processes import LAUNCHER, TEMPLATE, WARDEN
from benchmarks.soak.sitting import Watched
from penstock.metrics.report import RESTARTS

MB_A_MINUTE = 1.0
THROUGHPUT = 0.9
LONG_MINUTES = 3.0
"""A slope is judged only if its process was watched for this long after its warm-up."""
TOLD_MINUTES = 0.5
"""A slope is reported only if its process was watched for this long."""
ALWAYS = (LAUNCHER, WARDEN, TEMPLATE)


class Asked(NamedTuple):
    """The settings and the bars of a soak."""

    command: str
    run: str
    """The command whose run was watched."""
    minutes: float
    """Minutes with faults."""
    members: Mapping[str, Sequence[str]]
    """Process -> the nodes that it runs."""
    threshold: float
    """Mean return of greedy episodes at the end."""
    warm_up_s: float
    """Warm-up of a process. Memory that it takes meanwhile does not count for its slope."""


class Finding(NamedTuple):
    """All figures that are judged or reported."""

    bars: list[Bar]
    lives: list[Life]
    cycles: list[Cycle]
    matched: list[Matched]
    wrong: list[str]


def find(asked: Asked, watched: Watched, mean_return: float | None) -> Finding:
    """Judge all that was watched so far. The sitting may still go on, or may have failed.

    Args:
        asked: of the sitting.
        watched: so far.
        mean_return: of the policy at the end; ``None`` while there is none.
    """
    matched: list[Matched] = []
    wrong: list[str] = []
    for faults, told in zip(watched.faults, watched.told, strict=True):
        found = match(faults, told, asked.members)
        matched += found
        wrong += [line for entry in found for line in entry.wrong]
        wrong += [f"nobody caused: {line.note}" for line in uncaused(found, told)]
    long = lives(watched.samples, asked.warm_up_s, TOLD_MINUTES)
    both = cycles(watched.reports, watched.spans)
    bars = [
        *_memory(asked, long),
        *_held(asked, watched),
        Bar("steps/s between faults, beside those without", throughput_ratio(both), THROUGHPUT),
        Bar("restarts told of otherwise than they were, or that nobody caused", len(wrong), 0, at_most=True),
        Bar("updates at which rows were lost or doubled", _unbalanced(watched), 0, at_most=True),
        *_ends(watched),
        Bar("return at the end", math.nan if mean_return is None else mean_return, asked.threshold),
    ]
    return Finding(bars, long, both, matched, wrong)


def _memory(asked: Asked, told: Sequence[Life]) -> list[Bar]:
    """The steepest life of each kind of process; NaN where none was long enough."""
    found = [life for life in told if life.minutes >= LONG_MINUTES]
    steepest = {
        name: max((life.mb_a_minute for life in found if life.process.name == name), default=math.nan)
        for name in (*ALWAYS, *asked.members)
    }
    return [Bar(f"{name}: MB a minute", value, MB_A_MINUTE, at_most=True) for name, value in steepest.items()]


def _held(asked: Asked, watched: Watched) -> list[Bar]:
    """Changes between quiet parts: descriptors and threads of processes without faults, and the number of processes."""
    bars = []
    for name in ALWAYS:
        looks = [samples for process, samples in watched.samples.items() if process.name == name]
        files = max((varied((look.part, look.held.files) for look in samples) for samples in looks), default=math.nan)
        threads = max(
            (varied((look.part, look.held.threads) for look in samples) for samples in looks), default=math.nan
        )
        bars += [
            Bar(f"{name}: change of descriptors", files, 0, at_most=True),
            Bar(f"{name}: change of threads", threads, 0, at_most=True),
        ]
    others = [
        varied((look.part, look.held.files) for look in samples)
        for process, samples in watched.samples.items()
        if process.name in asked.members
    ]
    bars.append(Bar("nodes: change of descriptors within a life", max(others, default=math.nan), 0, at_most=True))
    counts = max((varied(looks) for looks in watched.counts), default=math.nan)
    return [*bars, Bar("change of the number of processes", counts, 0, at_most=True)]


def _unbalanced(watched: Watched) -> float:
    said = [report.unbalanced for report in watched.reports if report.unbalanced is not None]
    return sum(count > 0 for count in said) if said else math.nan


def _ends(watched: Watched) -> list[Bar]:
    """What remained after every end, and whether every resume went on from there."""
    ended = watched.ended
    torn = sum(end.checkpoint is None for end in ended)
    seams = sum(
        before.checkpoint is not None and not follows(after.first, before.checkpoint)
        for before, after in pairwise(ended)
    )
    return [
        Bar("processes left 2 s after an end", sum(end.left for end in ended), 0, at_most=True),
        Bar("ends after which the last checkpoint was not whole", torn, 0, at_most=True),
        Bar("resumes that did not go on behind the last checkpoint", seams, 0, at_most=True),
    ]


def follows(first: tuple[int, int], checkpoint: tuple[int, int]) -> bool:
    """Whether a run went on behind a checkpoint: with more updates, each of as many steps as those before.

    Its first report need not be of the very next update, because reports are dropped while the monitor opens.
    """
    update, steps = first[0] - checkpoint[0], first[1] - checkpoint[1]
    return update > 0 and steps * checkpoint[0] == checkpoint[1] * update


def save(path: Path, asked: Asked, watched: Watched, mean_return: float | None, broken: str | None) -> Finding:
    """Write the report as JSON to ``path``, and as a table beside it; returns what it says.

    Args:
        path: with the ending ``.json``.
        asked: of the sitting.
        watched: so far.
        mean_return: of the policy at the end; ``None`` while there is none.
        broken: why the sitting could not go on, if so; empty while it does go on.
    """
    found = find(asked, watched, mean_return)
    state = "finished" if broken is None else (broken or "under way")
    write(
        path,
        {
            "command": asked.command,
            "run": asked.run,
            "state": state,
            "bars": [bar.entry() for bar in found.bars],
            "faults": counted(found.matched),
            "wrong": found.wrong,
            "steps_per_s": _rates(found.cycles),
            "recovery_s": recoveries(watched),
            "lives": [_life(life) for life in found.lives],
            "ends": [end._asdict() for end in watched.ended],
            "restarts": [_entry(entry, watched) for entry in found.matched],
        },
    )
    path.with_suffix(".md").write_text(table(asked, watched, found, state))
    return found


def counted(matched: Sequence[Matched]) -> dict[str, dict[str, int]]:
    """Process -> how often it was ended and stopped, and how many restarts the run has counted of it."""
    found: dict[str, dict[str, int]] = {}
    for fault, told, _ in matched:
        entry = found.setdefault(fault.process, {"SIGKILL": 0, "SIGSTOP": 0, "told": 0})
        entry[signal.Signals(fault.signal).name] += 1
        entry["told"] += bool(told)
    return dict(sorted(found.items()))


def found_after(matched: Sequence[Matched], process: str) -> list[float]:
    """Seconds until the run has found that a process was stopped, for each time."""
    stopped = [entry for entry in matched if entry.fault.signal == signal.SIGSTOP and entry.fault.process == process]
    return [min(line.at for line in entry.told) - entry.fault.at for entry in stopped if entry.told]


def recoveries(watched: Watched) -> dict[str, dict[str, float]]:
    """Process -> median and longest time from its end until updates come as before; not of those that were stopped."""
    killed = (fault for faults in watched.faults for fault in faults if fault.signal == signal.SIGKILL)
    struck = sorted((fault.at, fault.process) for fault in killed)
    seconds: dict[str, list[float]] = {}
    spans = {span.begun: span for span in watched.spans if span.process is not None}
    begun = sorted(spans)
    for at, process in struck:
        index = bisect_right(begun, at)
        if index < len(begun) and spans[begun[index]].process == process:
            value = recovery_s(watched.reports, spans[begun[index]], at)
            if value is not None:
                seconds.setdefault(process, []).append(value)
    return {
        name: {"median": round(statistics.median(values), 2), "max": round(max(values), 2)}
        for name, values in sorted(seconds.items())
    }


def table(asked: Asked, watched: Watched, found: Finding, state: str) -> str:
    """The table for people: settings, every bar, faults by process, and times of recovery."""
    here, recovered = machine(), recoveries(watched)
    lines = [
        f"# Soak: {sum(map(len, watched.faults))} faults in {asked.minutes:g} minutes",
        "",
        f"`{asked.command}`, commit {commit()}, {here['cores']} cores of {here['processor']}; {state.splitlines()[0]}.",
        "",
        "| what | measured | bar | |",
        "|---|---|---|---|",
    ]
    for bar in found.bars:
        measured = math.isfinite(bar.value)
        value = f"{bar.value:.2f}" if measured else "-"
        verdict = "holds" if bar.holds else ("**falls short**" if measured else "too short to judge")
        lines.append(f"| {bar.name} | {value} | {'at most' if bar.at_most else 'at least'} {bar.bar:g} | {verdict} |")
    lines += ["", "| process | SIGKILL | until updates come as before, median / longest | SIGSTOP | found after |"]
    lines.append("|---|---|---|---|---|")
    for name, entry in counted(found.matched).items():
        took, stopped = recovered.get(name), found_after(found.matched, name)
        took_s = f"{took['median']:.2f} / {took['max']:.2f} s" if took else "-"
        stopped_s = f"{min(stopped):.1f} to {max(stopped):.1f} s" if stopped else "-"
        lines.append(f"| {name} | {entry['SIGKILL']} | {took_s} | {entry['SIGSTOP']} | {stopped_s} |")
    rates = _rates(found.cycles)
    lines += ["", f"Steps/s, medians of {len(found.cycles)} cycles: {rates['quiet'] or 0:,} without faults, "]
    lines[-1] += (
        f"{rates['between_faults'] or 0:,} between them, {rates['with_recoveries'] or 0:,} with all recoveries."
    )
    return "\n".join(lines) + "\n"


def _rates(both: Sequence[Cycle]) -> dict[str, Any]:
    """Medians over the cycles."""
    quiet = [cycle.quiet for cycle in both]
    return {
        "quiet": round(statistics.median(quiet)) if quiet else None,
        "between_faults": round(statistics.median(cycle.faults for cycle in both)) if both else None,
        "with_recoveries": round(statistics.median(cycle.struck for cycle in both)) if both else None,
        "ratio_of_each_cycle": [round(cycle.faults / cycle.quiet, 3) for cycle in both],
    }


def _life(life: Life) -> dict[str, Any]:
    return {
        "process": life.process.name,
        "minutes": round(life.minutes, 1),
        "mb_a_minute": round(life.mb_a_minute, 3),
        "own_mb": round(life.own_mb, 1),
        "shared_mb": round(life.shared_mb, 1),
    }


def _entry(entry: Matched, watched: Watched) -> dict[str, Any]:
    fault, told, _ = entry
    begun = watched.reports[0].at if watched.reports else fault.at
    return {
        "at_s": round(fault.at - begun, 1),
        "process": fault.process,
        "signal": signal.Signals(fault.signal).name,
        "told": [f"{RESTARTS}{line.node} {line.number}, {line.uptime_s:.1f} s" for line in told],
        "after_s": round(min((line.at for line in told), default=math.nan) - fault.at, 2),
    }
