"""What is seen of a cluster in its soak, and what must hold: memory stays flat, and nothing is left.

Judged is the growth of

- the memory of Ray's head and raylets, and of penstock's launcher, learner, deputy and actors on hosts. The first and
  the second host are never lost, so theirs live as long as the run;
- the memory of environment processes. Faults end them after some minutes, so the median over their lives is judged;
- the bytes of objects in Ray's stores. The memory of a process leaves out what it shares, and with it these objects.

The bar is what half an hour can tell. Memory comes from the system in steps. One step of 4 MB in the middle of 27
minutes is a slope of 0.22 MB a minute without any leak, and two such steps still hold. A leak of 0.5 MB a minute would
be 0.7 GB a day; a smaller one needs a longer soak.
"""

import math
import statistics
from dataclasses import dataclass, field

import psutil

from benchmarks.bars import Bar
from benchmarks.soak.measures import Life, Sample, lives
from benchmarks.soak.processes import Process
from benchmarks.soak.remains import Remains, bars_of_remains

WATCHED = {
    "gcs_server": "Ray's head",
    "raylet/raylet": "raylet",
    "ray::Host": "host",
    "ray::Deputy": "deputy",
    "penstock train": "launcher",
}
"""A part of a process's command -> what it is called here."""
LEARNER, ENVIRONMENT, OBJECTS = "learner", "environment process", "objects in Ray's stores"
LONG_LIVED = (*WATCHED.values(), LEARNER, OBJECTS)
STORES = Process(0, 0, OBJECTS)
MB_A_MINUTE = 0.5
SHORT_WARM_UP_S, SHORT_MINUTES = 60.0, 3.0
"""Of the life of an environment process: what is left out at its beginning, and the rest that it must have."""
INTERRUPTED = 130


@dataclass
class Watched:
    """What was seen."""

    samples: dict[Process, list[Sample]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    updates: int = 0
    unbalanced: int = 0
    """Reports whose collected rows are not the sum of what became of them."""
    restarts: int = 0
    status: int = -1
    left: Remains | None = None
    """``None`` if the run did not end in order."""


def called(process: psutil.Process) -> str | None:
    """What a process is called here; ``None`` if it is not watched.

    Learners and environment processes are forked, so they have names of their own, and the command of their template.
    """
    name = process.name()
    if name.startswith("env."):
        return ENVIRONMENT
    if name == LEARNER:
        return LEARNER
    command = " ".join(process.cmdline())
    return next((found for text, found in WATCHED.items() if text in command), None)


def bars_of(watched: Watched, minutes: float) -> list[Bar]:
    """What must hold. A slope is NaN where no process lived for long enough."""
    slopes: dict[str, list[float]] = {name: [] for name in LONG_LIVED}
    for life in long_lives(watched, minutes):
        slopes[kind_of(life.process)].append(life.mb_a_minute)
    steepest = {name: max(found, default=math.nan) for name, found in slopes.items()}
    short = [life.mb_a_minute for life in short_lives(watched)]
    steepest[ENVIRONMENT] = statistics.median(short) if short else math.nan
    left = [] if watched.left is None else bars_of_remains(watched.left)
    return [
        *(Bar(f"memory of {name}: MB a minute", slope, MB_A_MINUTE, at_most=True) for name, slope in steepest.items()),
        Bar("reports whose rows do not add up", watched.unbalanced, 0, at_most=True),
        *left,
        Bar("exit code, apart from that of an interrupt", abs(watched.status - INTERRUPTED), 0, at_most=True),
    ]


def kind_of(process: Process) -> str:
    """What a process is called here, without its host."""
    return process.name.partition(" on ")[0]


def long_lives(watched: Watched, minutes: float) -> list[Life]:
    """The processes, and Ray's stores, that lived for most of the time, from a tenth of it on."""
    found = lives(watched.samples, warm_up_s=6.0 * minutes, at_least=max(1.0, 0.7 * minutes))
    return [life for life in found if kind_of(life.process) != ENVIRONMENT]


def short_lives(watched: Watched) -> list[Life]:
    """The environment processes that lived for some minutes."""
    samples = {process: looks for process, looks in watched.samples.items() if kind_of(process) == ENVIRONMENT}
    return lives(samples, SHORT_WARM_UP_S, SHORT_MINUTES)
