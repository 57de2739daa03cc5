"""Compares what runs a policy: the same actions, how far off, how large, how fast. Runs nothing but policies."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from penstock.config.commands import VerifyOptions
from penstock.serving.bundle import Port, Sample
from penstock.serving.policy import Policy
from penstock.types import Array, Arrays, Box, Composite, Leaf, Spaces

__all__ = ["BATCHES", "EXACT", "QUANTIZED", "Limits", "Report", "Verification", "compared", "latencies"]

BATCHES = (1, 8, 64)
"""Rows of one call, for which the time is measured."""
MEASURED_S = 0.2
"""Time to measure each number of rows."""


@dataclass(frozen=True)
class Limits:
    """What a policy must keep to."""

    agreement: float
    """Smallest share of rows with the same choice in every discrete element of the action."""
    error: float
    """Largest error of a number in the action, as a share of its range."""


EXACT = Limits(VerifyOptions.agreement, VerifyOptions.error)
"""What a graph in float32 must keep to."""
QUANTIZED = Limits(VerifyOptions.quantized_agreement, VerifyOptions.quantized_error)
"""What a graph in int8 or fp16 must keep to."""


@dataclass(frozen=True)
class Report:
    """One backend beside the trained network."""

    backend: str
    precision: str
    agreement: float
    """Share of rows with the same action: the same choices, and numbers within the limit."""
    action_error: float
    """Largest error of a number in the action, as a share of its range; 0 without numbers."""
    absolute_error: Mapping[str, float]
    """Output -> largest absolute error."""
    relative_error: Mapping[str, float]
    """Output -> largest error as a share of the output's largest value."""
    bytes: int
    """Size of the graph, or of the parameters."""
    latency_us: Mapping[int, float]
    """Rows of one call -> median time in microseconds."""
    passed: bool


@dataclass(frozen=True)
class Verification:
    """The result of ``penstock verify``."""

    bundle: str
    against: str
    """The run and checkpoint that answered, or the bundle's own sample."""
    rows: int
    """Observations that were compared."""
    reports: tuple[Report, ...]
    left_out: tuple[str, ...]
    """Backends that cannot compute here, and why, in one line each."""

    @property
    def passed(self) -> bool:
        """True if every backend keeps to its limits."""
        return all(report.passed for report in self.reports)

    def to_json(self) -> dict[str, Any]:
        """JSON values. Numbers that are not finite, which JSON does not have, are ``None``."""
        found: dict[str, Any] = _finite({**asdict(self), "passed": self.passed})
        return found

    def table(self) -> str:
        """One line for each backend."""
        head = ("backend", "precision", "same action", "largest error", "relative", "size", *_batch_heads(), "")
        lines = [head, *(_line(report) for report in self.reports)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        rows = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
        said = f"{self.bundle} beside {self.against}, on {self.rows:,} observations"
        return "\n".join((said, *(row.rstrip() for row in rows), *self.left_out, *self._advice()))

    def _advice(self) -> Iterator[str]:
        """What to do where a quantised graph fails and the one in float32 does not."""
        failed = {report.precision for report in self.reports if not report.passed}
        if "fp32" in failed:
            return
        if "int8" in failed:
            yield (
                "int8 is too coarse for this policy: export with more --observations, which give it better ranges, "
                "or with --quantize fp16"
            )
        if failed:
            yield "what is acceptable: --quantized_agreement (same choices), --quantized_error (numbers)"


def compared(sample: Sample, found: Arrays, outputs: Sequence[Port], spaces: Spaces, limits: Limits) -> dict[str, Any]:
    """The part of a `Report` about answers.

    Args:
        sample: questions, and the trained network's answers.
        found: output -> ``[rows, ...]``: other answers to the same questions.
        outputs: the outputs of the policy.
        spaces: of the policy.
        limits: what the answers must keep to.
    """
    same = np.ones(sample.rows, np.bool_)
    chosen = same.copy()
    action_error = 0.0
    leaves: list[Leaf] = (
        [leaf for _, leaf in spaces.action.leaves] if isinstance(spaces.action, Composite) else [spaces.action]
    )
    actions = [port.name for port in outputs if port.role == "action"]
    for name, leaf in zip(actions, leaves, strict=True):
        wanted, given = (values[name].reshape(sample.rows, -1) for values in (sample.outputs, found))
        if isinstance(leaf, Box):
            share = _shares(wanted, given, leaf)
            action_error = max(action_error, float(share.max()))
            same &= (share <= limits.error).all(axis=1)
        else:
            chosen &= (wanted == given).all(axis=1)
    agreement = float((same & chosen).mean())
    errors = {port.name: _error(sample.outputs[port.name], found[port.name]) for port in outputs if port.name in found}
    is_finite = all(math.isfinite(absolute) for absolute, _ in errors.values())
    passed = is_finite and float(chosen.mean()) >= limits.agreement and action_error <= limits.error
    return {
        "agreement": agreement,
        "action_error": action_error,
        "absolute_error": {name: absolute for name, (absolute, _) in errors.items()},
        "relative_error": {name: relative for name, (_, relative) in errors.items()},
        "passed": passed,
    }


def latencies(policy: Policy, sample: Sample) -> dict[int, float]:
    """Rows of one call -> median time of a call in microseconds, with all that ``load_policy`` does but its checks."""
    found = {}
    for count in BATCHES:
        rows = np.arange(count) % sample.rows
        given = {name: np.ascontiguousarray(values[rows]) for name, values in sample.inputs.items()}
        given.setdefault("first", np.zeros(count, np.bool_))
        lanes = policy.begin(count)
        for _ in range(3):
            lanes.act(given)
        taken: list[float] = []
        until = time.perf_counter() + MEASURED_S
        while time.perf_counter() < until or len(taken) < 10:
            begun = time.perf_counter()
            lanes.act(given)
            taken.append(time.perf_counter() - begun)
        found[count] = float(np.median(taken)) * 1e6
    return found


def _shares(wanted: Array, given: Array, space: Box) -> Array:
    """Errors as shares of each number's range. Without bounds, the range is that of the wanted numbers, at least 1.

    Infinite where either number is not finite: nobody can act on it, even where both are the same.
    """
    one, other = wanted.astype(np.float64), given.astype(np.float64)
    are_finite = np.isfinite(one) & np.isfinite(other)
    if space.bounded:
        low, high = (np.broadcast_to(np.asarray(edge, np.float64), (space.size,)) for edge in (space.low, space.high))
        width: Array = np.where(high > low, high - low, 1.0)
    else:
        width = np.maximum(np.ptp(np.where(are_finite, one, 0.0), axis=0), 1.0)
    off = np.abs(np.subtract(one, other, out=np.full_like(one, np.inf), where=are_finite))
    shares: Array = off / width
    return shares


def _error(wanted: Array, given: Array) -> tuple[float, float]:
    """Largest absolute error, and the same as a share of the largest wanted value.

    Infinite beside NaN. The logarithm of a probability may be minus infinity in both, which is no error.
    """
    one, other = wanted.astype(np.float64), given.astype(np.float64)
    are_finite = np.isfinite(one) & np.isfinite(other)
    off = np.subtract(one, other, out=np.where(one == other, 0.0, np.inf), where=are_finite)
    absolute = float(np.abs(off).max(initial=0.0))
    largest = float(np.abs(one[np.isfinite(one)]).max(initial=0.0))
    return absolute, absolute / largest if largest else absolute


def _finite(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _batch_heads() -> list[str]:
    return [f"us, {count} row{'s' if count > 1 else ''}" for count in BATCHES]


def _line(report: Report) -> tuple[str, ...]:
    errors, shares = report.absolute_error, report.relative_error
    worst = max(errors, key=lambda name: shares[name]) if errors else ""
    return (
        report.backend,
        report.precision,
        f"{report.agreement:.2%}",
        f"{errors[worst]:.1e} in {worst}" if worst else "0",
        f"{shares[worst]:.1e}" if worst else "0",
        f"{report.bytes / 1024:,.1f} KiB",
        *(f"{report.latency_us[count]:,.0f}" for count in BATCHES),
        "" if report.passed else "FAILS",
    )
