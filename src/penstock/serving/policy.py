"""The policy of a run as a function: observations in, greedy actions in the environment's own units out.

Runs on the same policy backend as training. Imports torch only if that backend is torch.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.envs.actions import batched, cutter
from penstock.envs.fields import one_line
from penstock.envs.masks import IN_INFO, mask_rows
from penstock.errors import BadDataError, UsageError
from penstock.policies import PolicyGraph
from penstock.policies.session import Session
from penstock.types import (
    ActionSpace,
    Array,
    Arrays,
    ArraySpec,
    Box,
    Composite,
    Discrete,
    MultiDiscrete,
    PolicyBackend,
    Space,
    Spaces,
)

__all__ = ["Policy", "PolicySession"]


class Policy:
    """A policy with its parameters. Only one thread at a time may use it.

    ``policy(obs)`` answers one question by itself. A policy with memory acts in a session: ``policy.session(n)``.

    Attributes:
        spaces: its observation fields and its action space.
        backend: runs the policy, as in training and evaluation.
    """

    def __init__(
        self,
        spaces: Spaces,
        graph: PolicyGraph,
        backend: PolicyBackend,
        published: Mapping[str, Array],
        origin: str = "",
    ) -> None:
        """Load the parameters.

        Args:
            spaces: the spaces of one lane.
            graph: the policy.
            backend: for this graph.
            published: the parameters and statistics.
            origin: where they come from, for `repr`: ``"ppo on CartPole-v1, run by native"``.
        """
        self.spaces = spaces
        self.backend = backend
        self._graph = graph
        self._origin = origin
        backend.load(published)

    def __repr__(self) -> str:
        """Algorithm, environment and backend, then observation fields, actions and memory: one line."""
        seen = ", ".join(f"{name} {_short(space)}" for name, space in self.spaces.seen)
        mask = f", chosen by {self.spaces.mask}" if self.spaces.mask is not None else ""
        memory = sum(spec.size for spec in self._graph.carry)
        remembers = f"a memory of {memory} numbers" if memory else "no memory"
        parts = (self._origin, f"{seen} -> {_short(self.spaces.action)}{mask}", remembers)
        return f"<Policy: {'; '.join(filter(None, parts))}>"

    def session(self, lanes: int = 1) -> "PolicySession":
        """Begin to act in so many lanes, each at the beginning of an episode.

        Raises:
            UsageError: ``lanes`` is no whole number of at least 1.
        """
        if not isinstance(lanes, int) or lanes < 1:
            raise UsageError(f"a session has 1 lane or more, not {one_line(lanes)}")
        return PolicySession(self, self._graph, lanes)

    def __call__(self, obs: Any, *, action_mask: Any = None) -> Any:  # noqa: ANN401 - whatever its space holds
        """Greedy actions.

        Args:
            obs: one observation as the environment gives it, or a batch ``[n, ...]``; for Dict observations a mapping
                of such arrays, for Tuple observations a tuple. Fields that the run leaves out are ignored.
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
        if self._graph.carry:
            raise UsageError("this policy has a memory: let it act in a session, policy.session(n).act(obs)")
        fields, batched = self.fields(obs, action_mask)
        count = len(next(iter(fields.values())))
        out = PolicySession(self, self._graph, count).answer(fields)
        if batched:
            return self.batch(out)
        (action,) = cutter(self.spaces.action, 1)(out)
        return int(action) if isinstance(self.spaces.action, Discrete) else action

    def batch(self, action: Array) -> Any:  # noqa: ANN401
        """Actions ``[n, ...]`` of a session in the form of the action space: an array, or a dict or tuple of arrays."""
        return batched(self.spaces.action, action) if isinstance(self.spaces.action, Composite) else action

    def fields(self, obs: Any, action_mask: Any = None) -> tuple[Arrays, bool]:  # noqa: ANN401
        """Observation fields ``[n, ...]`` with the action mask, and whether a batch was given."""
        fields: Arrays = {}
        batched = False
        mask = self.spaces.mask
        for spec in self.spaces.obs_specs():
            if spec.name == mask:
                continue
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
        for name, space in self.spaces.seen:
            _check_inside(name, space, fields[name])
        if mask is None and action_mask is not None:
            raise BadDataError("this policy was trained without action masks: it cannot leave choices out")
        if mask is not None:
            given = _pick(obs, mask) if action_mask is None and mask != IN_INFO else action_mask
            if given is None:
                raise BadDataError(
                    "this policy chooses by a mask: pass action_mask, which the environment has in its info"
                )
            (count,) = counts
            fields[mask] = mask_rows(self.spaces.action, given, count if batched else None, mask)
        return fields, batched


class PolicySession:
    """Lets a policy act greedily in n lanes, step after step. Keeps what it remembers of each lane.

    Attributes:
        carry: name -> ``[n, ...]``: the memory of each lane; empty for a policy without. It may be read, and set in
            another session of the same policy, which then goes on where this one stopped.
    """

    def __init__(self, policy: Policy, graph: PolicyGraph, lanes: int) -> None:
        self._policy = policy
        self._session = Session(graph, policy.spaces.action, np.arange(lanes))
        self._first = np.zeros(lanes, np.bool_)
        spec = policy.spaces.action_spec()
        self._action = np.zeros((lanes, *spec.shape), spec.dtype)

    @property
    def carry(self) -> Arrays:
        """Name -> ``[n, ...]``. To write into these arrays, or to assign others, changes what the session remembers."""
        return self._session.carry

    @carry.setter
    def carry(self, carry: Mapping[str, Array]) -> None:
        own = self._session.carry
        wanted = {name: values.shape for name, values in own.items()}
        given = {name: np.shape(values) for name, values in carry.items()}
        if given != wanted:
            raise BadDataError(f"the carry has the arrays {one_line(given)}, this session needs {one_line(wanted)}")
        for name, values in carry.items():
            own[name][...] = values

    def act(self, obs: Any, first: Any = False, action_mask: Any = None) -> Any:  # noqa: ANN401
        """The next action of every lane.

        Args:
            obs: a batch of observations ``[n, ...]``, as for calling a policy; for one lane also a single one.
            first: whether the lane begins an episode with this observation, so that it forgets what came before: one
                truth value for all lanes, or ``[n]``. A new session has nothing to forget.
            action_mask: as for calling a policy.

        Returns:
            A batch of actions ``[n, ...]`` of the environment's action space, as for calling a policy.

        Raises:
            BadDataError: an observation does not fit its space, or ``obs`` or ``first`` has another size than n.
        """
        fields, _ = self._policy.fields(obs, action_mask)
        count, lanes = len(next(iter(fields.values()))), len(self._first)
        if count != lanes:
            raise BadDataError(f"the session has {lanes} lanes, but there are {count} observations")
        begins = np.asarray(first)
        if begins.dtype.kind not in "biu" or begins.shape not in {(), (lanes,)} or not np.isin(begins, (0, 1)).all():
            raise BadDataError(f"first is {one_line(first)}: give true or false, or one for each of {lanes} lanes")
        self._first[...] = begins
        return self._policy.batch(self.answer({**fields, "first": self._first}).copy())

    def answer(self, given: Arrays) -> Array:
        """The actions for observation fields that are checked, in an array of this session."""
        # The kernels need at least one row.
        if len(self._first):
            self._session.act(self._policy.backend, given, {"action": self._action})
        return self._session.environment_action


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
