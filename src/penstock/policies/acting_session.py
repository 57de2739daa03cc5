"""Acting session: lets a policy act in some lanes, step after step.

Environment nodes, policy nodes, evaluations and the policy of a finished run all act through it.
It holds what one answer of a lane hands on to the next: its carry. It makes the inputs that are not observed (noise,
``explore``), and it turns answers into actions in the environment's own units. It holds no parameters.
"""

from collections.abc import Mapping

import numpy as np

from penstock.kernels.actions import environment_array, to_environment
from penstock.kernels.noise import generate
from penstock.policies.contract import PolicySpec
from penstock.policies.exploration import Exploration
from penstock.types import ActionSpace, Array, Arrays, PolicyBackend

__all__ = ["ActingSession", "no_carry"]


def no_carry(policy: PolicySpec, lanes: int) -> Arrays:
    """The carry of lanes that begin an episode: name -> zeros ``[lanes, ...]``."""
    return {spec.name: np.zeros((lanes, *spec.shape), spec.dtype) for spec in policy.carry}


class ActingSession:
    """The lanes in which a policy acts together.

    Args:
        policy: what the policy takes and gives.
        space: the environment's action space.
        lanes: int64 ``[n]``: the lanes' numbers in the run. They key the noise.
        exploration: how the actions explore. ``None``: they are greedy.
        seed: keys the noise, together with lane and step.
        environment_action: see below; ``None``: it is made.
        carry: see below; ``None``: these arrays are made.

    Attributes:
        lanes: as given.
        carry: name -> ``[n, ...]``: what the next answer of each lane begins with. It may be read and set between two
            answers, so that another acting session goes on where this one stopped.
        explore: float32 ``[n]``: the ``explore`` input of the next answer.
        environment_action: ``[n, ...]``: the last actions, in the environment's own units and dtype.
    """

    def __init__(
        self,
        policy: PolicySpec,
        space: ActionSpace,
        lanes: Array,
        *,
        exploration: Exploration | None = None,
        seed: int = 0,
        environment_action: Array | None = None,
        carry: Arrays | None = None,
    ) -> None:
        count = len(lanes)
        self.lanes = lanes
        self.carry = no_carry(policy, count) if carry is None else carry
        self.environment_action = environment_array(space, count) if environment_action is None else environment_action
        self._space = space
        self._seed = seed
        self._noise = policy.noise
        self._mask = policy.mask
        self._exploration = exploration
        if exploration is None:
            self.explore = np.zeros(count, np.float32)
            self._no_noise = np.zeros((count, *policy.noise.shape), np.float32)
        else:
            self.explore = exploration.scale(lanes, 0)

    def act(self, backend: PolicyBackend, given: Mapping[str, Array], out: Mapping[str, Array], step: int = 0) -> Array:
        """Answer for all lanes, and hand the carry on.

        Args:
            backend: the policy, with its parameters loaded.
            given: the observation fields ``[n, ...]``; with a carry also ``first`` bool ``[n]``: which lanes begin an
                episode.
            out: the wanted outputs ``[n, ...]``, with ``action`` in the policy's units.
            step: number of the lanes' step.

        Returns:
            `environment_action`.
        """
        backend.act(self.inputs(given, step), {**out, **self.carry})
        self.finish(out["action"], step, given)
        return self.environment_action

    def inputs(self, given: Mapping[str, Array], step: int) -> Arrays:
        """All inputs of ``act``: those given, the carry, and noise and ``explore`` for this step."""
        if self._exploration is None:
            noise = self._no_noise
        else:
            noise = generate(self._noise, self._seed, self.lanes, step)
            self.move(step)
        return {**given, **self.carry, "noise": noise, "explore": self.explore}

    def move(self, step: int) -> None:
        """Set `explore` for this step, where it changes from step to step."""
        if self._exploration is not None and self._exploration.moves:
            self.explore[...] = self._exploration.scale(self.lanes, step)

    def finish(self, action: Array, step: int, given: Mapping[str, Array]) -> None:
        """Make ``action`` random while the exploration is blind, and convert it to `environment_action`.

        ``given`` holds the observation fields. Only the action mask is read.
        """
        if not self.randomise(action, step, None if self._mask is None else given[self._mask]):
            to_environment(action, self._space, self.environment_action)

    def randomise(self, action: Array, step: int, mask: Array | None) -> bool:
        """As `finish`, but does nothing unless actions are random. Returns whether they are."""
        exploration = self._exploration
        if exploration is None or not exploration.blind(step):
            return False
        exploration.generate(self._space, self._seed, self.lanes, step, action, mask=mask)
        to_environment(action, self._space, self.environment_action)
        return True
