"""The plan of a joint replay: which lane of a vector environment begins when, and which action each lane takes.

One call steps all lanes, so their episodes are restored together. With N the most actions of a lane, there are N steps.
A lane with n actions begins its episode before step N - n (steps count from 0). So all lanes come to their places with
the last step. Until then a lane plays on with random actions, because the environment steps it as well.

Does not step the environment; `VectorSource` does.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.kernels.actions import environment_array, generate_actions, to_environment
from penstock.types import Array, Spaces

__all__ = ["JointReplay"]

_SEED = 0
"""Of the random actions. Nothing that lasts depends on them."""


class JointReplay:
    """The plan of one joint replay.

    Args:
        spaces: of one lane.
        num_lanes: B.
        actions: lane -> ``[n, ...]``: its actions in the environment's own units.

    Attributes:
        steps: N.
    """

    def __init__(self, spaces: Spaces, num_lanes: int, actions: Mapping[int, Array]) -> None:
        self._space = spaces.action
        self._actions = actions
        self._numbers = np.arange(num_lanes)
        self.steps = max(map(len, actions.values()), default=0)
        self._begins = np.full(num_lanes, self.steps)
        for lane, taken in actions.items():
            self._begins[lane] -= len(taken)
        spec = spaces.action_spec()
        self._random = np.zeros((num_lanes, *spec.shape), spec.dtype)
        self._over = np.zeros(num_lanes, np.bool_)
        self._failed = np.zeros(num_lanes, np.bool_)

    def resets(self, t: int) -> Array:
        """Which lanes are reset before step t: bool ``[B]``. ``t = N``: after the last one.

        These are the lanes that begin their episode, and those whose episode has ended. Before step 0 all lanes have
        been reset.
        """
        return self._over | (self._begins == t) if t else self._over

    def action(self, t: int, mask: Array | None) -> Array:
        """What all lanes do in step t: a new array ``[B, ...]`` in the environment's own units.

        Args:
            t: number of the step.
            mask: ``[B, choices]``: the action masks of all lanes, for random actions; ``None``: there are none.
        """
        playing = self.playing(t)
        given = environment_array(self._space, len(self._numbers))
        if len(playing) < len(given):
            generate_actions(self._space, _SEED, self._numbers, t, self._random, mask=mask)
            to_environment(self._random, self._space, given)
        for lane in playing:
            given[lane] = self._actions[lane][t - self._begins[lane]]
        return given

    def playing(self, t: int) -> Sequence[int]:
        """The lanes that take one of their own actions in step t."""
        found: list[int] = np.flatnonzero((self._begins <= t) & ~self._failed).tolist()
        return found

    def note_ends(self, t: int, ended: Array) -> None:
        """Note whose episodes have ended with step t: bool ``[B]``. A lane that was replaying has failed by that."""
        self._over = ended.copy()
        self._failed |= ended & (self._begins <= t)
