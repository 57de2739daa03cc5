"""Reports of a run, update by update, and the names of their metrics. Writes no file."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from penstock.types import Arrays, ArraySpec

__all__ = [
    "APPROX_KL",
    "ENTROPY",
    "EPISODES",
    "EVAL_RETURN",
    "FINAL",
    "IDLE",
    "LAG",
    "LAG_MAX",
    "LENGTH",
    "LOSS",
    "POLICY_LOSS",
    "RESTARTS",
    "RETURN",
    "RETURN_WINDOW",
    "SENT_BYTES",
    "SHAPED_RETURN",
    "SHARE_MIN",
    "SHARE_MIN_ENV",
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
"""More than a hundred metrics fit, and the longest names of episode metrics in any script: 4 bytes a character."""

RETURN_WINDOW = 100
"""The mean return is over this many of the latest training episodes."""
RETURN = "rollout/return_mean"
"""Mean return of the latest training episodes."""
EPISODES = "rollout/episodes"
"""Number of training episodes that have ended so far."""
SHAPED_RETURN = "rollout/shaped_return_mean"
"""As ``RETURN``, but of the user's own rewards, if there are any."""
LENGTH = "rollout/length_mean"
LOSS = "loss/"
"""Followed by the name that an algorithm gives to what it learned."""
POLICY_LOSS = f"{LOSS}policy"
VALUE_LOSS = f"{LOSS}value"
ENTROPY = f"{LOSS}entropy"
APPROX_KL = f"{LOSS}approx_kl"
LAG = "/lag"
"""Behind a name: the mean age of what the name stands for, since the report before."""
LAG_MAX = "/lag_max"
"""The same: the largest age."""
SENT_BYTES = "exchange/bytes"
"""Bytes that learners have sent since the report before.

- ``parameter_server``, A3C: gradients, of all learners together.
- ``hogwild``: what all learners have added to the shared vector.
- ``allreduce``: gradients, of each learner, as all send the same number.
- ``gossip``: the state, of each learner.
"""
SHARE_MIN = "rows/share_min"
"""Rows of the environment process that gave the fewest of late, over those of an even share. 1: all gave as many."""
SHARE_MIN_ENV = "rows/share_min_env"
"""The number of that process."""
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
    """Seconds of training so far, with those before a resume."""
    values: Mapping[str, float]
    """Metric name -> value."""
    note: str = ""
    """One line on an event other than training, such as a restart."""
    returns: Sequence[float] = ()
    """Returns of episodes, the latest last: those of an evaluation, or the training episodes since the report before.

    At most ``RETURN_WINDOW`` training episodes.
    """


def report_specs(episodes: int) -> tuple[ArraySpec, ...]:
    """The arrays of a slot for one report with the returns of at most ``episodes`` episodes."""
    return (
        ArraySpec("length", (), "int64"),
        ArraySpec("text", (_TEXT_BYTES,), "uint8"),
        ArraySpec("returns_count", (), "int64"),
        ArraySpec("returns", (episodes,), "float64"),
    )


def report_sequence(update: int, *, evaluation: bool = False) -> int:
    """Sequence number, in its stream, of the report of an update or of an evaluation of its parameters."""
    return 2 * update + evaluation


def write_report(report: Report, slot: Arrays) -> None:
    """Put a report into a slot of ``report_specs``."""
    text = np.frombuffer(json.dumps(report._replace(returns=()), ensure_ascii=False).encode(), np.uint8)
    slot["length"][...] = len(text)
    slot["text"][: len(text)] = text
    slot["returns_count"][...] = len(report.returns)
    slot["returns"][: len(report.returns)] = report.returns


def read_report(slot: Arrays) -> Report:
    """The report that ``write_report`` put into a slot."""
    report = Report(*json.loads(bytes(slot["text"][: int(slot["length"])])))
    return report._replace(returns=tuple(slot["returns"][: int(slot["returns_count"])].tolist()))


class Sink(Protocol):
    """Takes reports."""

    def write(self, report: Report) -> None:
        """Take one report."""
        ...

    def close(self) -> None:
        """Flush, and free what the sink holds. May be called twice."""
        ...
