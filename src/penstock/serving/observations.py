"""What clients send, checked and in rows: observations of one lane or a batch. And actions in the form of their space.

Runs no policy.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.envs.actions import batched
from penstock.envs.fields import one_line
from penstock.envs.masks import IN_INFO, mask_rows
from penstock.errors import BadDataError
from penstock.types import ActionSpace, Array, Arrays, ArraySpec, Composite, Discrete, Space, Spaces

__all__ = ["array_of", "fields_of", "formed"]


def formed(space: ActionSpace, action: Array) -> Any:  # noqa: ANN401 - whatever the space holds
    """Actions ``[n, ...]`` in the form of their space: an array, or a dict or tuple of arrays."""
    return batched(space, action) if isinstance(space, Composite) else action


def fields_of(spaces: Spaces, obs: Any, action_mask: Any = None) -> tuple[Arrays, bool]:  # noqa: ANN401
    """Observation fields ``[n, ...]`` with the action mask, and whether a batch was given.

    Args:
        spaces: of one lane.
        obs: one observation as an environment gives it, or a batch ``[n, ...]``.
        action_mask: 1 where a choice is possible, else 0; needed if ``spaces`` has a mask that ``obs`` does not hold.

    Raises:
        BadDataError: the observation has another shape than its space, is outside of it, or holds no numbers; the mask
            is missing, has another width, or forbids everything.
    """
    fields: Arrays = {}
    is_batch = False
    mask = spaces.mask
    for spec in spaces.obs_specs():
        if spec.name == mask:
            continue
        values = array_of(_pick(obs, spec.name), spec)
        is_batch = values.ndim == len(spec.shape) + 1
        if values.shape[int(is_batch) :] != spec.shape:
            raise BadDataError(
                f"{spec.name} has shape {list(values.shape)}, wanted {list(spec.shape)} or a batch {['n', *spec.shape]}"
            )
        fields[spec.name] = np.ascontiguousarray(values if is_batch else values[None])
    counts = {len(values) for values in fields.values()}
    if len(counts) > 1:
        raise BadDataError(f"the fields of an observation are batches of different sizes: {sorted(counts)}")
    for name, space in spaces.seen:
        _check_inside(name, space, fields[name])
    if mask is None and action_mask is not None:
        raise BadDataError("this policy was trained without action masks: it cannot leave choices out")
    if mask is not None:
        given = _pick(obs, mask) if action_mask is None and mask != IN_INFO else action_mask
        if given is None:
            raise BadDataError("this policy chooses by a mask: pass action_mask, which the environment has in its info")
        (count,) = counts
        fields[mask] = mask_rows(spaces.action, given, count if is_batch else None, mask)
    return fields, is_batch


def array_of(given: Any, spec: ArraySpec) -> Array:  # noqa: ANN401
    """Convert to an array of the field's dtype. Only float precision may be lost."""
    try:
        found = np.asarray(given)
    except ValueError:
        found = np.array(given, object)
    # Checked, because numpy would read numbers from text.
    if found.dtype.kind not in "biuf":
        raise BadDataError(f"{spec.name} is {one_line(given)}, which is no array of numbers")
    with np.errstate(invalid="ignore", over="ignore"):
        values = found.astype(spec.dtype)
    if values.dtype.kind != "f" and not np.array_equal(values, found):
        raise BadDataError(f"{spec.name} is {one_line(given)}, which does not fit {spec.dtype}")
    return values


def _check_inside(name: str, space: Space, values: Array) -> None:
    """Raise BadDataError for NaN, infinity, or a number outside its Discrete space."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise BadDataError(f"{name} holds NaN or infinity")
    if (
        isinstance(space, Discrete)
        and values.size
        and not (space.start <= values.min() and values.max() < space.start + space.n)
    ):
        raise BadDataError(
            f"{name} is {one_line(values)}, outside its space {space.start} .. {space.start + space.n - 1}"
        )


def _pick(obs: Any, field: str) -> Any:  # noqa: ANN401
    """The part of an observation for ``field``: ``obs``, or ``obs.<name>`` in mappings and tuples."""
    rest = field.partition(".")[2]
    while rest:
        # A list is not searched, because it may be a batch of observations.
        parts = obs.items() if isinstance(obs, Mapping) else enumerate(obs) if isinstance(obs, tuple) else ()
        # A key may hold dots itself.
        found = [(f"{key}.", part) for key, part in parts if f"{rest}.".startswith(f"{key}.")]
        if not found:
            raise BadDataError(f"the observation lacks {field}")
        key, obs = max(found, key=lambda one: len(one[0]))
        rest = f"{rest}."[len(key) :].removesuffix(".")
    return obs
