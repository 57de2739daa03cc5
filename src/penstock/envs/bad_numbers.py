"""Finds NaN and infinity in arrays and rollouts. Changes nothing."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from penstock.kernels.finite import are_finite
from penstock.types import Array, Arrays

__all__ = ["BadNumber", "earliest", "not_finite", "spoilt_lanes", "spoilt_rows"]


class BadNumber(NamedTuple):
    """A number that cannot be learned from."""

    t: int
    """Row of the rollout."""
    lane: int
    field: str
    value: float


def not_finite(values: Array) -> list[tuple[int, ...]]:
    """Index of the first NaN or infinity along the first axis; empty if there is none."""
    if values.dtype.kind != "f" or (finite := are_finite(values)).all():
        return []
    return [tuple(map(int, np.argwhere(~finite)[0]))]


def spoilt_rows(obs: Arrays, reward: Array) -> list[int]:
    """The lanes whose observation or reward, ``[lanes, ...]`` each, holds NaN or infinity."""
    bad = np.zeros(len(reward), bool)
    for values in (*obs.values(), reward):
        if values.dtype.kind == "f":
            bad |= ~are_finite(values).reshape(len(values), -1).all(axis=1)
    return np.flatnonzero(bad).tolist()


def earliest(rollout: Arrays, fields: Sequence[str], num_steps: int) -> BadNumber | None:
    """The first NaN or infinity in the observations and rewards of a rollout, last observations of episodes included.

    Within a step the observation comes first, because a bad reward may follow from it.

    Args:
        rollout: field -> ``[T + 1, lanes, ...]``; ``final.<field>`` ``[n, ...]`` where the source keeps them.
        fields: of the observation.
        num_steps: T.
    """
    found = []
    for name, values, ends, lanes in _parts(rollout, fields, num_steps):
        for at in not_finite(values):
            t, lane = (int(ends[at[0]]) + 1, int(lanes[at[0]])) if len(ends) else at[:2]
            found.append(BadNumber(t, lane, name, float(values[at])))
    return min(found, key=attrgetter("t"), default=None)


def spoilt_lanes(rollout: Arrays, fields: Sequence[str], num_steps: int) -> list[int]:
    """The lanes of a rollout with NaN or infinity; arguments as in ``earliest``."""
    spoilt: set[int] = set()
    for _, values, ends, lanes in _parts(rollout, fields, num_steps):
        if values.dtype.kind == "f":
            for at in np.argwhere(~np.isfinite(values)):
                spoilt.add(int(lanes[at[0]]) if len(ends) else int(at[1]))
    return sorted(spoilt)


def _parts(rollout: Arrays, fields: Sequence[str], num_steps: int) -> Iterator[tuple[str, Array, Array, Array]]:
    """Name and values of each field; for last observations of episodes also the step and lane of each."""
    nowhere = np.empty(0, np.int64)
    for name in fields:
        yield name, rollout[name][: num_steps + 1], nowhere, nowhere
        count = int(rollout["final_count"])
        if f"final.{name}" in rollout and count:
            # Step ``final_t`` led to it. Where no episode ends, step t leads to row t + 1.
            yield name, rollout[f"final.{name}"][:count], rollout["final_t"], rollout["final_lane"]
    yield "reward", rollout["reward"][:num_steps], nowhere, nowhere
