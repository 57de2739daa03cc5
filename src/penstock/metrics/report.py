"""What a run says of itself, update by update, and the names of what it says. Writes nothing."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

__all__ = [
    "APPROX_KL",
    "CLIP_FRACTION",
    "ENTROPY",
    "EVAL_RETURN",
    "IDLE",
    "LENGTH",
    "POLICY_LOSS",
    "RETURN",
    "STEPS_PER_SECOND",
    "VALUE_LOSS",
    "Report",
    "Sink",
]

RETURN = "rollout/return_mean"
"""Mean return of the last 100 training episodes."""
LENGTH = "rollout/length_mean"
POLICY_LOSS = "loss/policy"
VALUE_LOSS = "loss/value"
ENTROPY = "loss/entropy"
APPROX_KL = "loss/approx_kl"
CLIP_FRACTION = "loss/clip_fraction"
STEPS_PER_SECOND = "throughput/steps_per_second"
EVAL_RETURN = "eval/return_mean"
IDLE = "idle/"
"""Followed by a node's name: the share of its time that it had nothing to do, from 0 to 1."""


class Report(NamedTuple):
    """Metrics of one update, or of an evaluation of its parameters."""

    update: int
    steps: int
    """Environment steps of the whole run so far."""
    time_s: float
    """Seconds of training so far, over all lives of the run."""
    values: Mapping[str, float]
    """Metric name -> value."""


class Sink(Protocol):
    """Somewhere reports go."""

    def write(self, report: Report) -> None:
        """Take one report."""
        ...

    def close(self) -> None:
        """Flush, and free what the sink holds. May be called twice."""
        ...
