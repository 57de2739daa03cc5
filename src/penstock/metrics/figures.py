"""Short texts about the reports so far, for the displays. Prints nothing."""

from collections import deque
from collections.abc import Mapping
from statistics import fmean

from penstock.metrics.episode_metrics import EPISODE, metrics_text
from penstock.metrics.report import (
    APPROX_KL,
    ENTROPY,
    EVAL_RETURN,
    IDLE,
    LENGTH,
    LOSS,
    POLICY_LOSS,
    RETURN,
    SHAPED_RETURN,
    STEPS_PER_SECOND,
    VALUE_LOSS,
    Report,
)

__all__ = ["Figures", "clock", "idle_shares"]

_LOSSES = (
    ("policy", POLICY_LOSS),
    ("value", VALUE_LOSS),
    ("entropy", ENTROPY),
    ("kl", APPROX_KL),
    ("imitation", f"{LOSS}imitation"),
    ("held out", f"{LOSS}held_out"),
)
_WORKING = ("env", "policy", "learner")
_HISTORY = 512
_SMOOTHING = 0.2
"""Weight of the newest update in the smoothed rate, from which the time left is computed."""


class Figures:
    """The latest value of every metric, and the smoothed rate of steps.

    Args:
        timesteps: environment steps of the whole run.
    """

    def __init__(self, timesteps: int) -> None:
        self.timesteps = timesteps
        self.update = 0
        self.steps = 0
        self.values: dict[str, float] = {}
        self.returns: deque[float] = deque(maxlen=_HISTORY)
        self._step_s = 0.0
        """Seconds of one step, smoothed. In a mean of rates, a few fast updates would outweigh the slow ones."""
        self._rates = 0

    def add(self, report: Report) -> None:
        """Take one report. The report of an evaluation leaves the counts unchanged."""
        self.values.update(report.values)
        if STEPS_PER_SECOND not in report.values:
            return
        self.update, self.steps = report.update, report.steps
        rate = report.values[STEPS_PER_SECOND]
        if rate > 0:
            # The first update includes the start of all processes, so the second one replaces it.
            self._step_s = 1 / rate if self._rates < 2 else self._step_s + _SMOOTHING * (1 / rate - self._step_s)
            self._rates += 1
        if RETURN in report.values:
            self.returns.append(report.values[RETURN])

    @property
    def share(self) -> float:
        """The finished part of the run, from 0 to 1."""
        return min(1.0, self.steps / self.timesteps)

    @property
    def rate(self) -> str:
        """Steps per second, smoothed."""
        return f"{1 / self._step_s:,.0f}" if self._step_s > 0 else "0"

    @property
    def left(self) -> str:
        """The time for the rest of the run at this rate."""
        return clock(max(0, self.timesteps - self.steps) * self._step_s) if self._step_s > 0 else "?"

    def number(self, name: str) -> str:
        """The latest value of a metric, or a dash if there is none yet."""
        return f"{self.values[name]:,.1f}" if name in self.values else "-"

    def losses(self) -> str:
        """The reported losses, by short names."""
        return "  ".join(f"{short} {self.values[name]:.3g}" for short, name in _LOSSES if name in self.values)

    def metrics(self) -> str:
        """The episode metrics of the latest training episodes."""
        found = {name.removeprefix(EPISODE): value for name, value in self.values.items() if name.startswith(EPISODE)}
        return metrics_text(found, "  ")

    def idle(self) -> str:
        """The idle shares of environment nodes, policy nodes and learners."""
        shares = idle_shares(self.values)
        return "  ".join(f"{kind} {shares[kind]:.0%}" for kind in _WORKING if kind in shares)

    def line(self) -> str:
        """All figures in one line of text."""
        parts = [
            f"update {self.update}",
            f"steps {self.steps:,}/{self.timesteps:,} ({self.share:.0%})",
            f"{self.rate} steps/s",
            f"return {self.number(RETURN)}",
            f"length {self.number(LENGTH)}",
        ]
        if SHAPED_RETURN in self.values:
            parts.insert(4, f"shaped return {self.number(SHAPED_RETURN)}")
        if EVAL_RETURN in self.values:
            parts.append(f"evaluation {self.number(EVAL_RETURN)}")
        told = (self.metrics(), self.losses(), f"idle {self.idle()}" if self.idle() else "")
        parts += [text for text in told if text]
        return " | ".join([*parts, f"ETA {self.left}"])


def idle_shares(values: Mapping[str, float]) -> dict[str, float]:
    """Idle share by kind of node: the mean over ``env.0``, ``env.1``, ... for ``env``."""
    shares: dict[str, list[float]] = {}
    for name, value in values.items():
        if name.startswith(IDLE):
            shares.setdefault(name.removeprefix(IDLE).partition(".")[0], []).append(value)
    return {kind: fmean(of_kind) for kind, of_kind in shares.items()}


def clock(seconds: float) -> str:
    """Hours, minutes and seconds: ``0:03:12``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}"
