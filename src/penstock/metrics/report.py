"""Reports of a run, update by update, and the names of their metrics. Writes no file."""

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
"""The same for the user's own rewards, if there are any."""
LENGTH = "rollout/length_mean"
POLICY_LOSS = "loss/policy"
VALUE_LOSS = "loss/value"
ENTROPY = "loss/entropy"
APPROX_KL = "loss/approx_kl"
STEPS_PER_SECOND = "throughput/steps_per_second"
EVAL_RETURN = "eval/return_mean"
FINAL = "eval/final"
"""1 in the report of the final evaluation. Its episodes differ from those of evaluations during the run."""
IDLE = "idle/"
"""Followed by a node's name: the share of its time that it did not work, from 0 to 1.

It had nothing to do, or other nodes of its process had their turn.
"""
RESTARTS = "restarts/"
"""Followed by a node's name: the number of its restarts."""


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
    """One line on an event other than training, such as a restart."""


def report_specs() -> tuple[ArraySpec, ...]:
    """The arrays of a slot for one report."""
    return (ArraySpec("length", (), "int64"), ArraySpec("text", (_TEXT_BYTES,), "uint8"))


def report_sequence(update: int, *, evaluation: bool = False) -> int:
    """Sequence number, in its stream, of the report of an update or of an evaluation of its parameters."""
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
    """Takes reports."""

    def write(self, report: Report) -> None:
        """Take one report."""
        ...

    def close(self) -> None:
        """Flush, and free what the sink holds. May be called twice."""
        ...
