"""A trained policy as a function: observations in, greedy actions in the environment's own units out.

Checks observations and gives actions their form. What computes them: `RunPolicy` or `BundlePolicy`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from penstock.envs.actions import cutter
from penstock.envs.fields import one_line
from penstock.errors import BadDataError, UsageError
from penstock.serving.observations import FieldReader, array_of, formed
from penstock.types import (
    ActionSpace,
    Array,
    Arrays,
    ArraySpec,
    Box,
    Composite,
    Discrete,
    MultiDiscrete,
    Space,
    Spaces,
)

__all__ = ["Lanes", "Policy", "PolicySession"]


class Lanes(Protocol):
    """Lanes in which a policy acts greedily, step after step."""

    @property
    def carry(self) -> Arrays:
        """Name -> ``[n, ...]``: what the next answer of each lane begins with. Its arrays may be written."""
        ...

    @property
    def environment_action(self) -> Array:
        """``[n, ...]``: the last actions, in the environment's units; see `penstock.kernels.actions`."""
        ...

    def act(self, given: Mapping[str, Array]) -> None:
        """Answer for all lanes, and hand the carry on.

        Args:
            given: the observation fields ``[n, ...]``, n at least 1; for a policy with memory also ``first`` bool
                ``[n]``: which lanes begin an episode.
        """
        ...


class Policy(ABC):
    """A policy with its parameters. Only one thread at a time may use it.

    ``policy(obs)`` answers one question by itself. A policy with memory acts in an acting session, ``session(n)``.

    Attributes:
        spaces: its observation fields and its action space.
        carry: what it remembers of one lane: names, shapes and dtypes; empty for a policy without memory.
    """

    def __init__(self, spaces: Spaces, carry: tuple[ArraySpec, ...], origin: str) -> None:
        """Keep what describes it.

        Args:
            spaces: the spaces of one lane.
            carry: what it remembers of one lane.
            origin: where it comes from and what runs it, for `repr`: ``"ppo on CartPole-v1, run by native"``.
        """
        self.spaces = spaces
        self.carry = carry
        self._origin = origin
        self._reader = FieldReader(spaces)
        self._lanes: Lanes | None = None

    @abstractmethod
    def begin(self, lanes: int) -> Lanes:
        """Begin to act in these lanes, without checks."""

    def __repr__(self) -> str:
        """Algorithm, environment and backend, then observation fields, actions and memory: one line."""
        seen = ", ".join(f"{name} {_short(space)}" for name, space in self.spaces.seen)
        mask = f", chosen by {self.spaces.mask}" if self.spaces.mask is not None else ""
        memory = sum(spec.size for spec in self.carry)
        remembers = f"a memory of {memory} numbers" if memory else "no memory"
        parts = (self._origin, f"{seen} -> {_short(self.spaces.action)}{mask}", remembers)
        return f"<Policy: {'; '.join(parts)}>"

    def session(self, lanes: int = 1) -> "PolicySession":
        """Begin to act in these lanes, each at the beginning of an episode.

        Raises:
            UsageError: ``lanes`` is no whole number of at least 1.
        """
        if not isinstance(lanes, int) or isinstance(lanes, bool) or lanes < 1:
            raise UsageError(f"an acting session has 1 lane or more, not {one_line(lanes)}")
        return PolicySession(self, lanes)

    def __call__(self, obs: Any, *, action_mask: Any = None) -> Any:  # noqa: ANN401 - whatever its space holds
        """Greedy actions.

        Args:
            obs: one observation as the environment gives it, or a batch ``[n, ...]``; for Dict observations a mapping
                of such arrays, for Tuple observations a tuple. Fields that the policy does not take are ignored: those
                that the run leaves out, and those that only its critic has seen.
            action_mask: 1 where a choice is possible, else 0: one mask as the environment gives it, or a batch. Needed
                by a policy that was trained with masks, unless the observation holds the mask.

        Returns:
            One action of the environment's action space, or a batch ``[n, ...]``; an ``int`` for one discrete action.
            A batch of Dict or Tuple actions is a dict or tuple of batches.

        Raises:
            BadDataError: the observation has another shape than its space, is outside of it, or holds no numbers; the
                mask is missing, has another width, or forbids everything.
            UsageError: the policy has a memory, so that its answer depends on those before.
        """
        if self.carry:
            raise UsageError("this policy has a memory: begin an acting session, policy.session(n).act(obs)")
        fields, batched = self.fields(obs, action_mask)
        count = len(next(iter(fields.values())))
        # The policy remembers nothing, so the next batch of this size may use the same lanes.
        if self._lanes is None or len(self._lanes.environment_action) != count:
            self._lanes = self.begin(count)
        # The kernels need at least one row.
        if count:
            self._lanes.act(fields)
        out = self._lanes.environment_action
        if batched:
            return self.batch(out.copy())
        (action,) = cutter(self.spaces.action, 1)(out)
        return int(action) if isinstance(self.spaces.action, Discrete) else action

    def batch(self, action: Array) -> Any:  # noqa: ANN401
        """Actions ``[n, ...]`` in the form of the action space: an array, or a dict or tuple of arrays."""
        return formed(self.spaces.action, action)

    def fields(self, obs: Any, action_mask: Any = None) -> tuple[Arrays, bool]:  # noqa: ANN401
        """Observation fields ``[n, ...]`` with the action mask, and whether a batch was given."""
        return self._reader.read(obs, action_mask)


class PolicySession:
    """An acting session: lets a policy act greedily in n lanes, step after step. Keeps what it remembers of each lane.

    Attributes:
        carry: name -> ``[n, ...]``: the memory of each lane; empty for a policy without. It may be read, and set in
            another one of the same policy, which then goes on where this one stopped. The next `act` changes these
            arrays: copy them to keep them.
    """

    def __init__(self, policy: Policy, lanes: int) -> None:
        self._policy = policy
        self._lanes = policy.begin(lanes)
        self._first = np.zeros(lanes, np.bool_)

    @property
    def carry(self) -> Arrays:
        """Name -> ``[n, ...]``. To write into these arrays, or to assign others, changes what it remembers."""
        return self._lanes.carry

    @carry.setter
    def carry(self, carry: Mapping[str, Array]) -> None:
        own = self._lanes.carry
        wanted = {name: values.shape for name, values in own.items()}
        if not isinstance(carry, Mapping):
            raise BadDataError(
                f"the carry is {one_line(carry)}, this acting session needs the arrays {one_line(wanted)}"
            )
        given = {name: np.shape(values) for name, values in carry.items()}
        if given != wanted:
            raise BadDataError(
                f"the carry has the arrays {one_line(given)}, this acting session needs {one_line(wanted)}"
            )
        found = {
            name: array_of(carry[name], ArraySpec(name, kept.shape, kept.dtype.name)) for name, kept in own.items()
        }
        for name, values in found.items():
            if not np.isfinite(values).all():
                raise BadDataError(f"the carry {name} holds NaN or infinity")
        for name, values in found.items():
            own[name][...] = values

    def act(self, obs: Any, first: Any = False, action_mask: Any = None) -> Any:  # noqa: ANN401
        """The next action of every lane.

        Args:
            obs: a batch of observations ``[n, ...]``, as for calling a policy; for one lane also a single one.
            first: whether the lane begins an episode with this observation, so that it forgets what came before: one
                truth value for all lanes, or ``[n]``. A new acting session has nothing to forget.
            action_mask: as for calling a policy.

        Returns:
            A batch of actions ``[n, ...]`` of the environment's action space, as for calling a policy.

        Raises:
            BadDataError: an observation does not fit its space, or ``obs`` or ``first`` has another size than n.
        """
        fields, _ = self._policy.fields(obs, action_mask)
        count, lanes = len(next(iter(fields.values()))), len(self._first)
        if count != lanes:
            raise BadDataError(f"the acting session needs observations of {lanes} lanes, and got {count}")
        begins = np.asarray(first)
        truths = begins.dtype.kind == "b" or (begins.dtype.kind in "iu" and np.isin(begins, (0, 1)).all())
        if not truths or begins.shape not in {(), (lanes,)}:
            raise BadDataError(f"first is {one_line(first)}: give true or false, or one for each of {lanes} lanes")
        self._first[...] = begins
        return self._policy.batch(self.answer({**fields, "first": self._first}).copy())

    def answer(self, given: Arrays) -> Array:
        """The actions for observation fields that are checked, in an array of this acting session.

        Args:
            given: the fields ``[n, ...]``; for a policy with memory also ``first`` bool ``[n]``.
        """
        # The kernels need at least one row.
        if len(self._first):
            self._lanes.act(given)
        return self._lanes.environment_action


def _short(space: Space | ActionSpace) -> str:
    """A space without its bounds."""
    match space:
        case Discrete():
            return f"Discrete({space.n})"
        case Composite():
            return ", ".join(f"{'.'.join(map(str, path))} {_short(leaf)}" for path, leaf in space.leaves)
        case MultiDiscrete():
            return f"MultiDiscrete{list(space.sizes)}"
        case Box():
            return f"{space.dtype}{list(space.shape)}"
