"""Checks the observations that clients send, one or a batch, and makes rows of them. Gives actions their space's form.

Runs no policy.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.envs.actions import batched
from penstock.envs.fields import one_line
from penstock.envs.given_arrays import array_given
from penstock.envs.masks import IN_INFO, mask_rows
from penstock.errors import BadDataError
from penstock.kernels.finite import are_finite
from penstock.types import ActionSpace, Array, Arrays, ArraySpec, Box, Composite, Discrete, Space, Spaces

__all__ = ["FieldReader", "array_of", "flat_row", "formed", "observation_of", "tuples_in", "with_tuples"]

_DOUBLE = np.dtype("float64")
_MODERATE = 1e38
"""Floats with a smaller sum of squares are below 1e19, and finite: a sum with NaN or infinity is not smaller."""


def formed(space: ActionSpace, action: Array) -> Any:  # noqa: ANN401 - whatever the space holds
    """Actions ``[n, ...]`` in the form of their space: an array, or a dict or tuple of arrays."""
    return batched(space, action) if isinstance(space, Composite) else action


def observation_of(fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an observation
    """The observation whose fields have these names."""
    return fields["obs"] if "obs" in fields else {name.removeprefix("obs."): part for name, part in fields.items()}


def flat_row(spaces: Spaces) -> int | None:
    """The numbers of an observation that is one flat array of float32, without a mask; ``None``: it is none."""
    match spaces.obs:
        case (("obs", Box((size,), "float32")),) if spaces.mask is None:
            return size
    return None


class FieldReader:
    """Reads observations as environments give them into the fields that a policy takes, and checks them.

    What does not change from one observation to the next is worked out once.

    Args:
        spaces: of one lane.
    """

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces
        self._seen = tuple(
            (spec, np.dtype(spec.dtype), space)
            for spec, (_, space) in zip(spaces.obs_specs(), spaces.obs, strict=True)
            if spec.name != spaces.mask
        )

    def read(self, obs: Any, action_mask: Any = None, *, nobody_acts: bool = False) -> tuple[Arrays, bool]:  # noqa: ANN401
        """Observation fields ``[n, ...]`` with the action mask, and whether a batch was given.

        Args:
            obs: one observation as an environment gives it, or a batch ``[n, ...]``.
            action_mask: 1 where a choice is possible, else 0; needed if the spaces have a mask that ``obs`` does not
                hold.
            nobody_acts: it is the last observation of an episode. Its mask may be missing, or forbid everything.

        Raises:
            BadDataError: the observation has another shape than its space, holds no numbers, or NaN or infinity, or is
                a number outside its Discrete space. Its fields are batches of different sizes. The mask is missing, has
                another width, forbids everything, or is given to a policy without masks. The bounds of a Box are not
                checked; an observed MultiDiscrete or MultiBinary counts as a Box.
        """
        fields: Arrays = {}
        is_batch = False
        for spec, dtype, space in self._seen:
            values = _pick(obs, spec.name) if "." in spec.name else obs
            # The usual case, in which nothing is converted.
            if not (isinstance(values, np.ndarray) and values.dtype is dtype):
                values = array_of(values, spec)
            is_batch = values.ndim == len(spec.shape) + 1
            if values.shape[int(is_batch) :] != spec.shape:
                raise BadDataError(
                    f"{spec.name} has shape {list(values.shape)}, wanted {list(spec.shape)} "
                    f"or a batch [{', '.join(map(str, ('n', *spec.shape)))}]"
                )
            fields[spec.name] = np.ascontiguousarray(values if is_batch else values[None])
            _check_inside(spec.name, space, fields[spec.name])
        if len(fields) > 1 and len(counts := {len(values) for values in fields.values()}) > 1:
            raise BadDataError(f"the fields of an observation are batches of different sizes: {sorted(counts)}")
        if self._spaces.mask is not None:
            count = len(next(iter(fields.values()))) if is_batch else None
            fields[self._spaces.mask] = self._mask(self._spaces.mask, obs, action_mask, count, nobody_acts=nobody_acts)
        elif action_mask is not None:
            raise BadDataError("this policy was trained without action masks: it cannot leave choices out")
        return fields, is_batch

    def _mask(self, name: str, obs: Any, action_mask: Any, count: int | None, *, nobody_acts: bool) -> Array:  # noqa: ANN401
        given = _pick(obs, name) if action_mask is None and name != IN_INFO else action_mask
        if given is None and nobody_acts:
            return np.zeros((1 if count is None else count, sum(self._spaces.action.choices)), np.uint8)
        if given is None:
            raise BadDataError("this policy chooses by a mask: pass action_mask, which the environment has in its info")
        return mask_rows(self._spaces.action, given, count, name, may_forbid_all=nobody_acts)


def array_of(given: Any, spec: ArraySpec) -> Array:  # noqa: ANN401
    """Convert to an array of the field's dtype. Only float precision may be lost."""
    try:
        found = array_given(given)
    except ValueError:
        found = np.array(given, object)
    # The usual case: a list of floats.
    if found.dtype is _DOUBLE and spec.dtype == "float32" and _are_moderate(found):
        return found.astype(np.float32)
    # Checked, because numpy would read numbers from text.
    if found.dtype.kind not in "biuf":
        raise BadDataError(f"{spec.name} is {one_line(given)}, which is no array of numbers")
    with np.errstate(invalid="ignore", over="ignore"):
        values = found.astype(spec.dtype)
    if values.dtype.kind != "f" and not np.array_equal(values, found):
        raise BadDataError(f"{spec.name} is {one_line(given)}, which does not fit {spec.dtype}")
    return values


def _are_moderate(values: Array) -> bool:
    """Whether floats are finite and fit a float32, as far as the sum of their squares tells; false: perhaps not."""
    return float(np.vdot(values, values)) < _MODERATE


def _check_inside(name: str, space: Space, values: Array) -> None:
    """Raise BadDataError for NaN, infinity, or a number outside its Discrete space."""
    if values.dtype.kind == "f" and not _are_moderate(values) and not are_finite(values).all():
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


def tuples_in(names: list[str]) -> dict[str, Any]:
    """Where Tuples are among fields with these names: key or place -> the same below it. Empty: there is no Tuple."""
    parts: dict[str, list[str]] = {}
    for name in names:
        key, _, rest = name.partition(".")[2].partition(".")
        if key:
            parts.setdefault(key, []).append(f"obs.{rest}" if rest else "obs")
    below = {key: tuples_in(rest) for key, rest in parts.items()}
    is_tuple = "0" in parts and all(key.isdigit() for key in parts)
    return below if is_tuple or any(below.values()) else {}


def with_tuples(obs: Any, tree: dict[str, Any]) -> Any:  # noqa: ANN401 - an observation
    """The same observation with a tuple where its space has one. JSON knows arrays only."""
    if isinstance(obs, dict):
        return {key: with_tuples(part, tree[key]) if tree.get(key) else part for key, part in obs.items()}
    if isinstance(obs, list) and "0" in tree:
        return tuple(with_tuples(part, tree.get(str(place), {})) for place, part in enumerate(obs))
    return obs
