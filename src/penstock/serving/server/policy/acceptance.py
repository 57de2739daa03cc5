"""Acceptance: whether a policy may answer anybody. Its answers must be finite, and those of the trained network.

- A bundle answers its own sample. It is compared with what the trained network answered, as ``penstock verify`` does.
- A checkpoint of a run is the trained network itself: the policy backend of the run answers, or ONNX Runtime where the
  critic is left out. It answers observations that are made up from the spaces. Each answer in a batch must be the one
  to the row alone.
"""

from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import PenstockError, UsageError
from penstock.serving.bundle import BundlePolicy, read_bundle
from penstock.serving.run_policy import RunPolicy
from penstock.serving.server.policy.answering import ActingLanes, ServedPolicy
from penstock.serving.server.policy.source import Source
from penstock.serving.verification import EXACT, QUANTIZED, Limits, compared
from penstock.types import Array, Arrays, Discrete, Space, Spaces

__all__ = ["accepted", "fault_of"]

_ROWS = 32
_ALONE = 2
"""Rows that are also asked alone."""
_TOLERANCE = 1e-4
"""Largest difference of a number between a batch and a row alone, absolute and relative."""
_WIDEST = 1000.0
"""A range of observations up to this width is used as a whole."""


def accepted(source: Source, quantized: Limits = QUANTIZED) -> ServedPolicy:
    """Load a policy, and try it.

    Args:
        source: of the policy.
        quantized: what a graph in int8 or fp16 must keep to.

    Raises:
        UsageError: it cannot be loaded, or does not answer as it must. The text is one line.
    """
    policy = source.policy()
    try:
        found = fault_of(policy)
        if isinstance(policy, BundlePolicy):
            found = found or _fault_of_sample(policy, Path(source.path), quantized)
    except PenstockError:
        raise
    except Exception as error:  # a policy may hold a user's own module, which may raise anything
        text = f"{_name_of(source)} fails: {type(error).__name__}: {error}"
        raise UsageError(" ".join(text.split())) from error
    if found:
        raise UsageError(f"{_name_of(source)} {found}")
    return policy


def _name_of(source: Source) -> str:
    return f"{source.path}, version {source.version},"


def fault_of(policy: ServedPolicy) -> str:
    """What is wrong with the answers to observations that are made up; empty: nothing."""
    rows, later = (_made_up(policy.spaces, seed) for seed in (0, 1))
    session = policy.session(_ROWS)
    first = {**rows, "first": np.ones(_ROWS, np.bool_)}
    together = session.answer(first).copy()
    if not _is_finite(together, session):
        return "answers NaN or infinity"
    for row in range(_ALONE):
        alone = policy.session(1).answer({name: values[row : row + 1] for name, values in first.items()})
        if not np.allclose(alone[0], together[row], rtol=_TOLERANCE, atol=_TOLERANCE):
            return "answers an observation in a batch in another way than alone"
    if not _is_finite(session.answer({**later, "first": np.zeros(_ROWS, np.bool_)}), session):
        return "answers NaN or infinity in the second step"
    if isinstance(policy, RunPolicy):
        return _fault_of_estimates(policy.answers(rows))
    return ""


def _is_finite(action: Array, session: ActingLanes) -> bool:
    arrays = (action, *session.carry.values())
    return all(values.dtype.kind != "f" or bool(np.isfinite(values).all()) for values in arrays)


def _fault_of_estimates(answers: Arrays) -> str:
    """What is wrong with the estimates. They show a NaN of the network, which a discrete action hides."""
    for name, values in answers.items():
        # The log-probability of an action may be infinite.
        bad = np.isnan(values) if name == "log_prob" else ~np.isfinite(values)
        if bad.any():
            return f"gives NaN or infinity as {name}"
    return ""


def _fault_of_sample(policy: BundlePolicy, folder: Path, quantized: Limits) -> str:
    facts, sample = policy.facts, read_bundle(folder).sample()
    limits = EXACT if facts.precision == "fp32" else quantized
    found = policy.runner.run(sample.inputs, [port.name for port in facts.outputs])
    report: dict[str, Any] = compared(sample, found, facts.outputs, facts.spaces, limits)
    if report["passed"]:
        return ""
    flags = "" if limits is EXACT else ", --quantized_agreement and --quantized_error say what is acceptable"
    return (
        f"does not answer its sample as the trained network did (same action {report['agreement']:.2%}, "
        f"largest error {report['action_error']:.1e}); penstock verify {folder} shows more{flags}"
    )


def _made_up(spaces: Spaces, seed: int) -> Arrays:
    """Observation fields ``[rows, ...]`` inside their spaces. A mask allows everything."""
    generator = np.random.default_rng(seed)
    found: Arrays = {}
    for (name, space), spec in zip(spaces.obs, spaces.obs_specs(), strict=True):
        shape = (_ROWS, *spec.shape)
        values = np.ones(shape) if name == spaces.mask else _inside(space, shape, generator)
        found[name] = np.ascontiguousarray(values, spec.dtype)
    return found


def _inside(space: Space, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    if isinstance(space, Discrete):
        return generator.integers(space.start, space.start + space.n, shape)
    low, high = (np.resize(np.asarray(bound, np.float64), space.shape) for bound in (space.low, space.high))
    # Of a wide range four units: from -1 to 3, or at the bound that is nearest to that.
    is_wide = ~(high - low <= _WIDEST)
    least = np.where(is_wide, np.maximum(low, np.minimum(-1.0, high - 4.0)), low)
    most = np.where(is_wide, np.minimum(high, np.maximum(3.0, low + 4.0)), high)
    values: Array = generator.uniform(least, most, shape)
    return values
