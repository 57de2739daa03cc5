"""What a run says of itself, update by update, and the names of what it says. Writes nothing."""

import json
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from penstock.types import Arrays, ArraySpec

__all__ = [
    "APPROX_KL",
    "ENTROPY",
    "EVAL_RETURN",
    "FINAL",
    "IDLE",
    "LENGTH",
    "POLICY_LOSS",
    "RESTARTS",
    "RETURN",
    "SHAPED_RETURN",
    "STEPS_PER_SECOND",
    "VALUE_LOSS",
    "Report",
    "Sink",
    "read_report",
    "report_sequence",
    "report_specs",
    "write_report",
]

_TEXT_BYTES = 16_384
"""More than a hundred metrics fit."""

RETURN = "rollout/return_mean"
"""Mean return of the last 100 training episodes."""
SHAPED_RETURN = "rollout/shaped_return_mean"
"""The same of the user's own rewards, where there are some."""
LENGTH = "rollout/length_mean"
POLICY_LOSS = "loss/policy"
VALUE_LOSS = "loss/value"
ENTROPY = "loss/entropy"
APPROX_KL = "loss/approx_kl"
STEPS_PER_SECOND = "throughput/steps_per_second"
EVAL_RETURN = "eval/return_mean"
FINAL = "eval/final"
"""Stands, as 1, beside the evaluation at a run's end: its episodes are others than those of evaluations on the way."""
IDLE = "idle/"
"""Followed by a node's name: the share of its time that it was not at work, from 0 to 1.

It had nothing to do, or other nodes of its process had their turn.
"""
RESTARTS = "restarts/"
"""Followed by a node's name: how often it was started again."""


class Report(NamedTuple):
    """Metrics of one update, or of an evaluation of its parameters."""

    update: int
    steps: int
    """Environment steps of the whole run so far."""
    time_s: float
    """Seconds of training so far, over all lives of the run."""
    values: Mapping[str, float]
    """Metric name -> value."""
    note: str = ""
    """What happened beside the training, in a line."""


def report_specs() -> tuple[ArraySpec, ...]:
    """The arrays of a stream's slot that carries a report."""
    return (ArraySpec("length", (), "int64"), ArraySpec("text", (_TEXT_BYTES,), "uint8"))


def report_sequence(update: int, *, evaluation: bool = False) -> int:
    """The sequence of an update's report in its stream, or of that of an evaluation of its parameters."""
    return 2 * update + evaluation


def write_report(report: Report, slot: Arrays) -> None:
    """Put a report into a slot of ``report_specs``."""
    text = np.frombuffer(json.dumps(report).encode(), np.uint8)
    slot["length"][...] = len(text)
    slot["text"][: len(text)] = text


def read_report(slot: Arrays) -> Report:
    """The report that ``write_report`` put into a slot."""
    return Report(*json.loads(bytes(slot["text"][: int(slot["length"])])))


class Sink(Protocol):
    """Somewhere reports go."""

    def write(self, report: Report) -> None:
        """Take one report."""
        ...

    def close(self) -> None:
        """Flush, and free what the sink holds. May be called twice."""
        ...
