"""How a policy acts: its settings, and `LocalPolicy`, which answers in the process of the asking node.

An answer is a pure function of parameters, observation, seed, lane and step. So experience does not depend on the
process that asks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Protocol, runtime_checkable

import numpy as np

from penstock.kernels.actions import environment_array, to_environment
from penstock.kernels.noise import generate
from penstock.policies.exploration import Exploration
from penstock.policies.graph import PolicyGraph
from penstock.registry import load
from penstock.types import Array, Arrays, ArraySpec, BackendSpec, NoiseSpec, PolicyBackend, Space, Spaces

__all__ = ["LocalPolicy", "PolicySettings"]


@dataclass(frozen=True)
class PolicySettings:
    """What a `LocalPolicy` or PolicyNode needs in order to answer. Holds no parameters: they are published."""

    backend: BackendSpec
    graph: PolicyGraph
    noise: NoiseSpec
    spaces: Spaces
    row: tuple[ArraySpec, ...]
    """The algorithm's own row fields. An answer writes them and ``action``."""
    seed: int
    exploration: Exploration
    stacks: tuple[ArraySpec, ...] = ()
    """Observation fields whose rows keep only the newest frame, in the shape that the policy needs for one lane."""


class _Published(Protocol):
    """Reads published parameters from a board: `penstock.nodes.ports.BoardReader`."""

    def version(self) -> int:
        """The latest version, or -1 before the first."""
        ...

    def fresh(self, rollout: int) -> bool:
        """True if the latest version is new enough for this rollout."""
        ...

    def read(self, into: Mapping[str, Array]) -> int:
        """Copy the latest value into ``into`` and return its version."""
        ...


class _Rows(Protocol):
    """A policy bound to the arrays of one slot."""

    def act(self, t: int, step: int) -> None:
        """Answer for row ``t``. ``step`` is part of the noise's key."""
        ...


@runtime_checkable
class _Binds(Protocol):
    """A backend that can check arrays once, for a loop that asks one row at a time."""

    def bind(
        self,
        obs: Mapping[str, Array],
        out: Mapping[str, Array],
        *,
        seed: int,
        lanes: Array,
        explore: Array,
        environment: Array,
        space: Space,
    ) -> _Rows:
        """See ``kernels.policy.PolicyKernel.bind``."""
        ...


class LocalPolicy:
    """Implements ``penstock.nodes.ports.PolicyPort`` for ``lanes`` lanes from ``first_lane`` on."""

    def __init__(self, settings: PolicySettings, board: _Published, first_lane: int, lanes: int) -> None:
        self.version = -1
        self.environment_action = environment_array(settings.spaces.action, lanes)
        self.stacks: Arrays = {spec.name: np.zeros((lanes, *spec.shape), spec.dtype) for spec in settings.stacks}
        self._settings = settings
        self._board = board
        self._lanes = np.arange(first_lane, first_lane + lanes, dtype=np.int64)
        self._explore = settings.exploration.scale(self._lanes, 0)
        self._published: Arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in settings.graph.published()}
        self._backend: PolicyBackend = load(settings.backend.build)(*settings.backend.arguments)
        self._bound: dict[int, _Rows] = {}
        self._handles = count()

    def fresh(self, rollout: int) -> bool:
        """True if the latest published version is new enough to begin this rollout with."""
        return self._board.fresh(rollout)

    def refresh(self) -> None:
        """From now on, answer with the latest published parameters."""
        if self._board.version() != self.version:
            self.version = self._board.read(self._published)
            self._backend.load(self._published)

    def bind(self, rows: Arrays) -> int:
        """Announce the arrays of a slot. Returns the handle for `ask`."""
        settings = self._settings
        obs = {name: rows[name] for name, _ in settings.spaces.obs if name not in self.stacks}
        out = {name: rows[name] for name in ("action", *(spec.name for spec in settings.row))}
        bound: _Rows
        if isinstance(self._backend, _Binds) and not self.stacks:
            bound = self._backend.bind(
                obs,
                out,
                seed=settings.seed,
                lanes=self._lanes,
                explore=self._explore,
                environment=self.environment_action,
                space=settings.spaces.action,
            )
        else:
            bound = _PlainRows(
                self._backend, obs, self.stacks, out, settings, self._lanes, self._explore, self.environment_action
            )
        if settings.exploration.moves or settings.exploration.warmup:
            action = out["action"]
            bound = _ExploringRows(bound, action, settings, self._lanes, self._explore, self.environment_action)
        handle = next(self._handles)
        self._bound[handle] = bound
        return handle

    def unbind(self, handle: int) -> None:
        """Forget a handle. `ask` is not called with it again."""
        del self._bound[handle]

    def ask(self, handle: int, row: int, step: int) -> None:
        """Answer at once, into the arrays of the slot."""
        self._bound[handle].act(row, step)

    def ask_value(self, obs: Mapping[str, Array], value: Array) -> None:
        """Write the values at once. They depend on no noise."""
        noise = np.zeros((len(value), *self._settings.noise.shape), np.float32)
        self._backend.act(obs, noise, np.zeros(len(value), np.float32), {"value": value})

    def answered(self) -> bool:
        """True: every answer is given at once."""
        return True


class _PlainRows:
    """The rows of one slot, for a backend without ``bind`` or for observations that rows do not hold whole."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        backend: PolicyBackend,
        obs: Arrays,
        stacks: Arrays,
        out: Arrays,
        settings: PolicySettings,
        lanes: Array,
        explore: Array,
        environment: Array,
    ) -> None:
        self._backend = backend
        self._obs = obs
        self._stacks = stacks
        self._out = out
        self._settings = settings
        self._lanes = lanes
        self._environment = environment
        self._explore = explore

    def act(self, t: int, step: int) -> None:
        settings = self._settings
        noise = generate(settings.noise, settings.seed, self._lanes, step)
        out = {name: values[t] for name, values in self._out.items()}
        obs = {**{name: values[t] for name, values in self._obs.items()}, **self._stacks}
        self._backend.act(obs, noise, self._explore, out)
        to_environment(out["action"], settings.spaces.action, self._environment)


class _ExploringRows:
    """The rows of one slot, where exploration changes with the step or begins with random actions."""

    def __init__(  # noqa: PLR0917 - made in one place
        self, rows: _Rows, action: Array, settings: PolicySettings, lanes: Array, explore: Array, environment: Array
    ) -> None:
        self._rows = rows
        self._action = action
        self._settings = settings
        self._lanes = lanes
        self._explore = explore
        self._environment = environment

    def act(self, t: int, step: int) -> None:
        exploration, settings = self._settings.exploration, self._settings
        if exploration.moves:
            self._explore[...] = exploration.scale(self._lanes, step)
        self._rows.act(t, step)
        if exploration.blind(step):
            space, action = settings.spaces.action, self._action[t]
            exploration.generate(space, settings.seed, self._lanes, step, action)
            to_environment(action, space, self._environment)
