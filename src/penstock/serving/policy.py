"""The policy of a run as a function: observations in, greedy actions in the environment's own units out.

Runs on the same policy backend as training. Imports torch only if that backend is torch.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.envs.fields import one_line
from penstock.errors import BadDataError
from penstock.kernels.actions import environment_array, to_environment
from penstock.policies import PolicyGraph
from penstock.types import Array, Arrays, ArraySpec, Box, Discrete, PolicyBackend, Space, Spaces

__all__ = ["Policy"]


class Policy:
    """A policy with its parameters. Calls do not depend on each other. Only one thread at a time may call it.

    Attributes:
        spaces: its observation fields and its action space.
        backend: runs the policy, as in training and evaluation.
    """

    def __init__(
        self, spaces: Spaces, graph: PolicyGraph, backend: PolicyBackend, published: Mapping[str, Array]
    ) -> None:
        self.spaces = spaces
        self.backend = backend
        self._noise = graph.head.noise.shape
        backend.load(published)

    def __call__(self, obs: Any) -> Any:  # noqa: ANN401 - an observation is whatever its space holds
        """Greedy actions.

        Args:
            obs: one observation as the environment gives it, or a batch ``[n, ...]``; for Dict observations a mapping
                of such arrays, for Tuple observations a tuple. Fields that the run leaves out are ignored.

        Returns:
            One action of the environment's action space, or a batch ``[n, ...]``; an ``int`` for one discrete action.

        Raises:
            BadDataError: the observation has another shape than its space, is outside of it, or holds no numbers.
        """
        fields, batched = self._fields(obs)
        count = len(next(iter(fields.values())))
        spec = self.spaces.action_spec()
        action = np.zeros((count, *spec.shape), spec.dtype)
        noise = np.zeros((count, *self._noise), np.float32)
        if count:  # the kernels need at least one row
            self.backend.act(fields, noise, np.zeros(count, np.float32), {"action": action})
        out = to_environment(action, self.spaces.action, environment_array(self.spaces.action, count))
        if batched:
            return out
        return out[0] if isinstance(self.spaces.action, Box) else int(out[0])

    def _fields(self, obs: Any) -> tuple[Arrays, bool]:  # noqa: ANN401
        """Observation fields ``[n, ...]``, and whether a batch was given."""
        fields: Arrays = {}
        batched = False
        for spec in self.spaces.obs_specs():
            values = _array(_pick(obs, spec.name), spec)
            batched = values.ndim == len(spec.shape) + 1
            if values.shape[int(batched) :] != spec.shape:
                raise BadDataError(
                    f"{spec.name} has shape {list(values.shape)}, "
                    f"wanted {list(spec.shape)} or a batch {['n', *spec.shape]}"
                )
            fields[spec.name] = np.ascontiguousarray(values if batched else values[None])
        counts = {len(values) for values in fields.values()}
        if len(counts) > 1:
            raise BadDataError(f"the fields of an observation are batches of different sizes: {sorted(counts)}")
        for name, space in self.spaces.obs:
            _check_inside(name, space, fields[name])
        return fields, batched


def _array(given: Any, spec: ArraySpec) -> Array:  # noqa: ANN401
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
