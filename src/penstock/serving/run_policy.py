"""The policy of a run. The caller chooses its policy backend. Imports torch only if that backend is torch."""

from collections.abc import Mapping

import numpy as np

from penstock.policies.acting import Binds
from penstock.policies.acting_session import ActingSession
from penstock.policies.contract import PolicySpec
from penstock.serving.policy import Lanes, Policy
from penstock.types import Array, Arrays, ArraySpec, PolicyBackend, Spaces

__all__ = ["RunPolicy"]


class RunPolicy(Policy):
    """A policy as its run has trained it.

    Args:
        spaces: its observation fields and its action space.
        policy: what it takes and gives.
        backend: see below.
        published: its parameters and statistics.
        origin: see `Policy`.

    Attributes:
        backend: runs the policy.
    """

    def __init__(
        self,
        spaces: Spaces,
        policy: PolicySpec,
        backend: PolicyBackend,
        published: Mapping[str, Array],
        origin: str,
    ) -> None:
        super().__init__(spaces, policy.carry, origin)
        self.backend = backend
        self._spec = policy
        backend.load(published)

    def begin(self, lanes: int) -> Lanes:
        """Begin to act in these lanes, without checks."""
        session = ActingSession(self._spec, self.spaces.action, np.arange(lanes))
        if lanes and isinstance(self.backend, Binds):
            return _BoundLanes(self.spaces, self._spec, self.backend, session)
        return _AskingLanes(self, session)

    def answers(self, given: Mapping[str, Array]) -> Arrays:
        """Everything that the policy answers greedily at the beginning of episodes: its outputs and the carry after.

        Args:
            given: the observation fields ``[n, ...]``.

        Returns:
            Name -> ``[n, ...]``; the action in the policy's units.
        """
        count = len(next(iter(given.values())))
        session = ActingSession(self._spec, self.spaces.action, np.arange(count))
        action = self.spaces.action_spec()
        widths = {"q": self.spaces.action.choices}
        estimates = {name: np.zeros((count, *widths.get(name, ())), np.float32) for name in self._spec.outputs}
        out: Arrays = {**estimates, "action": np.zeros((count, *action.shape), action.dtype)}
        session.act(self.backend, {**given, "first": np.ones(count, np.bool_)}, out)
        return {**out, **session.carry}


class _SessionLanes:
    """The lanes of an acting session, which holds their carry and their last actions."""

    def __init__(self, session: ActingSession) -> None:
        self._session = session

    @property
    def carry(self) -> Arrays:
        return self._session.carry

    @property
    def environment_action(self) -> Array:
        return self._session.environment_action


class _AskingLanes(_SessionLanes):
    """Lanes that give the backend the arrays of each question."""

    def __init__(self, policy: RunPolicy, session: ActingSession) -> None:
        super().__init__(session)
        spec = policy.spaces.action_spec()
        self._backend = policy.backend
        self._action = np.zeros((len(session.lanes), *spec.shape), spec.dtype)

    def act(self, given: Mapping[str, Array]) -> None:
        self._session.act(self._backend, given, {"action": self._action})


class _BoundLanes(_SessionLanes):
    """Lanes of a backend that checks its arrays once. Each question is copied into these arrays."""

    def __init__(self, spaces: Spaces, policy: PolicySpec, backend: Binds, session: ActingSession) -> None:
        super().__init__(session)
        count, action = len(session.lanes), spaces.action_spec()
        specs = [*spaces.obs_specs(), *([ArraySpec("first", (), "bool")] if policy.carry else ())]
        # One row of a rollout.
        rows = {spec.name: np.zeros((1, count, *spec.shape), spec.dtype) for spec in specs}
        self._given = tuple((name, values[0]) for name, values in rows.items())
        self._rows = backend.bind(
            rows,
            {"action": np.zeros((1, count, *action.shape), action.dtype)},
            seed=0,
            lanes=session.lanes,
            explore=session.explore,
            environment=session.environment_action,
            space=spaces.action,
            carry=session.carry,
        )

    def act(self, given: Mapping[str, Array]) -> None:
        for name, values in self._given:
            values[...] = given[name]
        self._rows.act(0, 0)
