"""The policy of a run as a function: observations in, greedy actions in the environment's own units out.

It runs on the same kernels as training does, and imports no torch where they do not.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.errors import BadDataError
from penstock.kernels.actions import environment_array, to_environment
from penstock.network import Categorical, PolicyGraph
from penstock.types import Array, Arrays, Box, PolicyBackend, Spaces

__all__ = ["Policy"]


class Policy:
    """A policy with its parameters. Calls are independent of each other; one thread at a time.

    Attributes:
        spaces: what it observes and does.
        backend: what runs it; training and evaluation share it.
    """

    def __init__(
        self, spaces: Spaces, graph: PolicyGraph, backend: PolicyBackend, published: Mapping[str, Array]
    ) -> None:
        self.spaces = spaces
        self.backend = backend
        self._width = graph.head.n if isinstance(graph.head, Categorical) else graph.head.size
        backend.load(published)

    def __call__(self, obs: Any) -> Any:  # noqa: ANN401 - an observation is whatever its space holds
        """Greedy actions.

        Args:
            obs: one observation as the environment gives it, or a batch of them ``[n, ...]``; for dict observations a
                mapping of such arrays.

        Returns:
            One action of the environment's action space, or a batch ``[n, ...]``; an ``int`` for one discrete action.

        Raises:
            BadDataError: the observation does not have the shape of its space.
        """
        fields, batched = self._fields(obs)
        count = len(next(iter(fields.values())))
        spec = self.spaces.action_spec()
        action = np.zeros((count, *spec.shape), spec.dtype)
        noise = np.zeros((count, self._width), np.float32)
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
            values = np.asarray(_pick(obs, spec.name), spec.dtype)
            batched = values.ndim == len(spec.shape) + 1
            if values.shape[int(batched) :] != spec.shape:
                raise BadDataError(
                    f"{spec.name} has shape {list(values.shape)}, "
                    f"wanted {list(spec.shape)} or a batch {['n', *spec.shape]}"
                )
            fields[spec.name] = np.ascontiguousarray(values if batched else values[None])
        return fields, batched


def _pick(obs: Any, field: str) -> Any:  # noqa: ANN401
    """The part of an observation that is stored as ``field``: ``obs``, or ``obs.<key>`` of nested mappings."""
    for key in field.split(".")[1:]:
        if not isinstance(obs, Mapping) or key not in obs:
            raise BadDataError(f"the observation lacks {field}")
        obs = obs[key]
    return obs
