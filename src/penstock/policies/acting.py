"""LocalPolicy: a policy port that answers in the process of the asking node, and the settings of a policy that acts.

An answer is a pure function of parameters, observation, carry, seed, lane and step. So experience does not depend on
the process that asks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Protocol, runtime_checkable

import numpy as np

from penstock.policies.acting_session import ActingSession
from penstock.policies.contract import PolicySpec
from penstock.policies.exploration import Exploration
from penstock.registry import load
from penstock.types import ActionSpace, Array, Arrays, ArraySpec, BackendSpec, PolicyBackend, Spaces

__all__ = ["Binds", "BoundRows", "LocalPolicy", "PolicySettings", "bound_rows"]


@dataclass(frozen=True)
class PolicySettings:
    """What a `LocalPolicy` or PolicyNode needs in order to answer. Holds no parameters: they are published."""

    backend: BackendSpec
    policy: PolicySpec
    spaces: Spaces
    row: tuple[ArraySpec, ...]
    """The algorithm's own row fields. An answer writes them and ``action``."""
    seed: int
    exploration: Exploration
    stacks: tuple[ArraySpec, ...] = ()
    """Observation fields whose rows keep only the newest frame, in the shape that the policy needs for one lane."""

    @property
    def given(self) -> tuple[str, ...]:
        """The row fields that an answer reads: the observation, and ``first`` if the policy has a carry."""
        return (*(name for name, _ in self.spaces.obs), *(("first",) if self.policy.carry else ()))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The row fields that an answer writes."""
        return ("action", *(spec.name for spec in self.row))


class _Published(Protocol):
    """Reads published parameters from a board: `penstock.nodes.ports.BoardReader`."""

    def publication(self) -> int:
        """The number of the latest publication; 0 before the first. A version may be published twice."""
        ...

    def fresh(self, rollout: int) -> bool:
        """True if the latest version is new enough for this rollout."""
        ...

    def read(self, into: Mapping[str, Array]) -> int:
        """Copy the latest value into ``into`` and return its version."""
        ...


class BoundRows(Protocol):
    """A policy bound to the arrays of one slot."""

    def act(self, t: int, step: int) -> None:
        """Answer for row ``t``. ``step`` is part of the noise's key."""
        ...


@runtime_checkable
class Binds(Protocol):
    """A backend that can check arrays once, for a loop that asks one row at a time."""

    def bind(
        self,
        given: Mapping[str, Array],
        out: Mapping[str, Array],
        *,
        seed: int,
        lanes: Array,
        explore: Array,
        environment: Array,
        space: ActionSpace,
        carry: Mapping[str, Array],
    ) -> BoundRows:
        """See ``kernels.policy.PolicyKernel.bind``."""
        ...


class LocalPolicy:
    """Implements ``penstock.nodes.ports.PolicyPort`` for ``lanes`` lanes from ``first_lane`` on."""

    answers_at_once = True

    def __init__(self, settings: PolicySettings, board: _Published, first_lane: int, lanes: int) -> None:
        self.version = -1
        self.stacks: Arrays = {spec.name: np.zeros((lanes, *spec.shape), spec.dtype) for spec in settings.stacks}
        self._settings = settings
        self._board = board
        self._publication = 0
        self._session = ActingSession(
            settings.policy,
            settings.spaces.action,
            np.arange(first_lane, first_lane + lanes, dtype=np.int64),
            exploration=settings.exploration,
            seed=settings.seed,
        )
        self.environment_action = self._session.environment_action
        self.carry = self._session.carry
        self._published: Arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in settings.policy.published()}
        self._backend: PolicyBackend = load(settings.backend.build)(*settings.backend.arguments)
        self._bound: dict[int, BoundRows] = {}
        self._handles = count()

    def fresh(self, rollout: int) -> bool:
        """True if the latest published version is new enough to begin this rollout with."""
        return self._board.fresh(rollout)

    def refresh(self) -> None:
        """From now on, answer with the latest published parameters."""
        # The number is read before the record. If the record is newer than the number, the next call reads it again.
        publication = self._board.publication()
        if publication != self._publication:
            self._publication = publication
            self.version = self._board.read(self._published)
            self._backend.load(self._published)

    def bind(self, rows: Arrays) -> int:
        """Announce the arrays of a slot. Returns the handle for `ask`."""
        bound = bound_rows(self._backend, self._session, self._settings, rows, self.stacks)
        handle = next(self._handles)
        self._bound[handle] = bound
        return handle

    def unbind(self, handle: int) -> None:
        """Forget a handle. `ask` is not called with it again."""
        del self._bound[handle]

    def ask(self, handle: int, row: int, step: int) -> None:
        """Answer at once, into the arrays of the slot."""
        self._bound[handle].act(row, step)

    def ask_value(self, given: Mapping[str, Array], value: Array) -> None:
        """Write the values at once. They depend on no noise."""
        noise = np.zeros((len(value), *self._settings.policy.noise.shape), np.float32)
        self._backend.act({**given, "noise": noise, "explore": np.zeros(len(value), np.float32)}, {"value": value})

    def answered(self) -> bool:
        """True: every answer is given at once."""
        return True


def bound_rows(
    backend: PolicyBackend, session: ActingSession, settings: PolicySettings, rows: Arrays, stacks: Arrays
) -> BoundRows:
    """Bind the policy to the arrays of one slot. All checks of the arrays are done here, once.

    Args:
        backend: an answer uses the parameters that are loaded when it is given.
        session: of these lanes.
        settings: of the policy.
        rows: field -> ``[T + 1, lanes, ...]``.
        stacks: whole observations ``[lanes, ...]`` of the fields whose rows keep only the newest frame.
    """
    given = {name: rows[name] for name in settings.given if name not in stacks}
    out = {name: rows[name] for name in settings.outputs}
    if stacks or not isinstance(backend, Binds):
        return _PlainRows(backend, session, given, stacks, out)
    bound = backend.bind(
        given,
        out,
        seed=settings.seed,
        lanes=session.lanes,
        explore=session.explore,
        environment=session.environment_action,
        space=settings.spaces.action,
        carry=session.carry,
    )
    if not settings.exploration.moves and not settings.exploration.warmup:
        return bound
    return _ExploringRows(bound, session, out["action"], rows[mask] if (mask := settings.policy.mask) else None)


class _PlainRows:
    """The rows of one slot, for a backend without ``bind`` or for observations that rows do not hold whole."""

    def __init__(
        self, backend: PolicyBackend, session: ActingSession, given: Arrays, stacks: Arrays, out: Arrays
    ) -> None:
        self._backend = backend
        self._session = session
        self._given = given
        self._stacks = stacks
        self._out = out

    def act(self, t: int, step: int) -> None:
        given = {**{name: values[t] for name, values in self._given.items()}, **self._stacks}
        self._session.act(self._backend, given, {name: values[t] for name, values in self._out.items()}, step)


class _ExploringRows:
    """Rows bound by a backend, where exploration changes with the step or begins with random actions."""

    def __init__(self, rows: BoundRows, session: ActingSession, action: Array, mask: Array | None) -> None:
        self._rows = rows
        self._session = session
        self._action = action
        self._mask = mask

    def act(self, t: int, step: int) -> None:
        self._session.move(step)
        self._rows.act(t, step)
        self._session.randomise(self._action[t], step, None if self._mask is None else self._mask[t])
