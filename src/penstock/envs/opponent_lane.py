"""OpponentLane: what one agent sees, as arrays of one row that a policy is bound to."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from penstock.envs.actions import cutter
from penstock.envs.fields import FieldPath
from penstock.envs.masks import Masks
from penstock.envs.rows import ObservationRows
from penstock.types import Array, Arrays, Spaces

__all__ = ["OpponentLane"]


class OpponentLane:
    """One agent that an opponent plays, episode after episode. It is no lane of the run.

    Args:
        spaces: of the run.
        paths: of the fields in an observation.
        name: of the agent, for error texts.
        place: of the agent among all of its environment. It keys the noise.

    Attributes:
        rows: name -> ``[1, 1, ...]``: the fields of its latest observation, the action mask, ``first``, and ``action``
            as rows store it.
        number: int64 ``[1]``: its place.
    """

    def __init__(self, spaces: Spaces, paths: dict[str, FieldPath], name: str, place: int) -> None:
        self._observed = ObservationRows(spaces, paths, [name])
        self._masks = None if spaces.mask is None else Masks(spaces, [name])
        self._cut = cutter(spaces.action, 1)
        self._act: Callable[[int], Array] | None = None
        self._step = 0
        self.number = np.array([place], np.int64)
        self._first = np.ones((1, 1), np.bool_)
        action = spaces.action_spec()
        seen = {field: values[None] for field, values in self._observed.arrays.items()}
        if self._masks is not None and spaces.mask is not None:
            seen[spaces.mask] = self._masks.rows[None]
        self.rows: Arrays = {**seen, "first": self._first, "action": np.zeros((1, 1, *action.shape), action.dtype)}

    @property
    def taken(self) -> bool:
        """An opponent plays this agent in this episode."""
        return self._act is not None

    def leave(self) -> None:
        """The episode is over."""
        self._act = None

    def take(self, act: Callable[[int], Array]) -> None:
        """Begin an episode.

        Args:
            act: number of the agent's step -> its action ``[1, ...]``, in the environment's units.
        """
        self._act, self._step = act, 0

    def move(self, obs: Any, info: Any, *, goes_on: bool) -> Any:
        """The agent's action, for its latest observation and info, as the environment takes it.

        Args:
            obs: as the environment gives it.
            info: a mapping, or anything else for none.
            goes_on: False for an agent that has ended, but is still asked. Its mask may be missing.

        Raises:
            BadDataError: the observation or the mask does not fit.
            RuntimeError: no opponent plays it.
        """
        if self._act is None:
            raise RuntimeError("no opponent plays this agent")
        self._observed.stores[0](obs)
        if self._masks is not None:
            self._masks.take(0, obs, info if isinstance(info, Mapping) else {}, goes_on=goes_on)
        self._first[...] = self._step == 0
        action = self._act(self._step)
        self._step += 1
        (given,) = self._cut(action)
        return given
