"""A dry run of an algorithm: each function of its ``learn.py`` is called once, on made-up rows, before a run begins.

The names and shapes of what it gives are checked, so that a mistake is one line. Numbers are not looked at, and nothing
is learned.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from penstock.algorithm import KL, KL_COEF, Algorithm, AlgorithmSpec, Gradients, Phase, Schedule
from penstock.ops.losses import mean_by
from penstock.registry import load
from penstock.types import Arrays, ArraySpec
from penstock.updates.building import algorithm_of
from penstock.updates.calls import Named, UsersFunction
from penstock.updates.made_up import made_up_inputs, made_up_rollout, made_up_sample
from penstock.updates.phases import PhaseClock
from penstock.updates.settings import UpdaterSettings

__all__ = ["dry_run"]

UNITS = 2
"""Rows of the minibatch, and lanes of the acting policy."""


def dry_run(name: str, initial: str, settings: UpdaterSettings, slot: tuple[ArraySpec, ...]) -> None:
    """Call each function of an algorithm once.

    Args:
        name: of the algorithm, as the user gave it.
        initial: ``module:function`` of its ``init_state``.
        settings: of its updater, on the CPU.
        slot: the arrays of one slot of its stream; not used if it learns from a table.

    Raises:
        ConfigError: a function fails, or gives other arrays than the spec says. One line.
    """
    # An algorithm must not use torch's own random numbers. If one does, its dry run leaves their state as it was.
    with torch.random.fork_rng(devices=[]):
        run = _DryRun(name, settings)
        run.begin(initial)
        run.act()
        if settings.spec.table is not None:
            run.step(made_up_sample(settings.spec, settings.spaces, UNITS))
            return
        rollout = made_up_rollout(settings.spaces, slot)
        rollout |= run.targets(rollout)
        run.step(_minibatch(settings.spec, rollout))
        run.statistics(rollout)


class _DryRun:
    """The calls of an update, each checked."""

    def __init__(self, name: str, settings: UpdaterSettings) -> None:
        """Build the algorithm."""
        self._name = name
        self._settings = settings
        self._spec: AlgorithmSpec = settings.spec
        self._of_state = {part.name: part.shape for part in settings.spec.state}
        self._state: dict[str, Tensor] = {}
        build = self._function("build")
        self._algorithm: Algorithm = build.call(algorithm_of, settings)
        if not isinstance(self._algorithm, Algorithm):
            raise build.wrong(f"gives a {type(self._algorithm).__name__}; return a penstock.algorithm.Algorithm")
        phases = self._algorithm.phases
        if not isinstance(phases, tuple | list):
            raise build.wrong(f"gives a {type(phases).__name__} as phases; write a tuple of penstock.algorithm.Phase")
        for phase in phases:
            if not isinstance(phase, Phase):
                raise build.wrong(f"gives the phase {phase!r}; write a penstock.algorithm.Phase")

    def begin(self, initial: str) -> None:
        """Take the first state. Arrays that it leaves out are zero."""
        module, _, function = initial.partition(":")
        users, settings = UsersFunction(self._name, module, function), self._settings
        found = users.call(load(initial), settings.spaces, settings.config, settings.seed)
        users.check(found, self._of_state, "the state")
        users.check_networks(found, [network.name for network in self._spec.policy.networks])
        self._state = {
            part.name: torch.from_numpy(np.array(found.get(part.name, np.zeros(part.shape)), part.dtype))
            for part in self._spec.state
        }

    def act(self) -> None:
        """Act for some lanes. Row fields may come in another shape of the same size, as backends take them."""
        spec, spaces, users = self._spec, self._settings.spaces, self._function("act")
        published = {part.name: self._state[part.name] for part in spec.published()}
        inputs = _tensors(made_up_inputs(spec, spaces, UNITS))
        with torch.no_grad():
            found = users.call(
                self._algorithm.act,
                Named(published, "the published record", "the policy of the AlgorithmSpec says what is published"),
                Named(inputs, "an observation", "see penstock.types.PolicyBackend"),
            )
        shapes = {part.name: (UNITS, *part.shape) for part in (spaces.action_spec(), *spec.row, *spec.policy.carry)}
        if isinstance(found, Mapping):
            # An algorithm may give more than its rows keep.
            found = {key: _reshaped(values, shapes[key]) for key, values in found.items() if key in shapes}
        users.check(found, shapes, "a row", whole=True)

    def targets(self, rollout: Arrays) -> Arrays:
        """The targets of a rollout, ``[T, B, ...]``."""
        rows, recomputed = rollout["reward"].shape, {}
        if self._algorithm.recompute is not None:
            users = self._function("recompute")
            with torch.no_grad():
                found = users.call(self._algorithm.recompute, self._given_state(), _of_rollout(_tensors(rollout)))
            users.check(found, _each(found, rows), "a rollout")
            recomputed = _arrays(found)
        users = self._function("targets")
        state = Named(_arrays(self._state), "the state", "add its ArraySpec to state in spec.py")
        found = users.call(self._algorithm.targets, state, _of_rollout(rollout | recomputed))
        shapes = {part.name: (rows[0] - 1, rows[1], *part.shape) for part in self._spec.targets}
        users.check(found, shapes, "targets of the AlgorithmSpec", whole=True)
        return {part.name: np.array(found[part.name], part.dtype) for part in self._spec.targets}

    def step(self, minibatch: Arrays) -> None:
        """Take a gradient step: ``across_minibatch``, then all phases."""
        rows, users = _tensors(minibatch), self._function("across_minibatch")
        found = users.call(self._algorithm.across_minibatch, _of_minibatch(rows), mean_by(rows["weight"]))
        users.check(found, {key: tuple(rows[key].shape) for key in rows}, "a minibatch")
        rows |= found
        phases, counted = self._algorithm.phases, "gradient_steps" in self._state
        clock = self._function("build").call(
            lambda: PhaseClock([one.every for one in phases], [one.noise for one in phases], 0, counted=counted)
        )
        per_row: set[str] = set()
        metrics: set[str] = set()
        for number, phase in enumerate(phases):
            found_by = self._phase(phase, rows, clock.noise(number, 0, len(rows["weight"])))
            per_row |= found_by.per_row.keys()
            metrics |= found_by.metrics.keys()
        schedule, table = self._spec.schedule, self._spec.table
        if isinstance(schedule, Schedule) and schedule.kl_target is not None and KL not in metrics:
            raise self._function("build").wrong(f"has no phase with the metric {KL!r}, by which {KL_COEF} is adapted")
        if table is not None and table.priorities is not None and "priority" not in per_row:
            raise self._function("build").wrong("has no phase with per_row 'priority', by which rows are sampled")

    def _phase(self, phase: Phase, rows: Mapping[str, Tensor], noise: Arrays) -> Gradients:
        """Step by one phase; what its gradients give."""
        users = self._function(f"gradients of phase {phase.name!r}")
        given = Named(_tensors(noise), "the phase's noise", "add it to Phase(noise=...) in learn.py")
        found = users.call(phase.gradients, self._given_state(), _of_minibatch(rows), given)
        if not isinstance(found, Gradients):
            raise users.wrong(f"gives a {type(found).__name__}; return penstock.algorithm.Gradients")
        users.check(found.gradients, self._of_state, "the state")
        users.check(found.metrics, _each(found.metrics, ()), "the metrics")
        users.check(found.per_row, _each(found.per_row, (len(rows["weight"]),)), "a minibatch")
        users = self._function(f"apply of phase {phase.name!r}")
        gradients = Named(found.gradients, "the phase's gradients", "return it from gradients")
        changed = users.call(phase.apply, self._given_state(), gradients)
        users.check(changed, self._of_state, "the state")
        users.check_dtypes(changed, {part.name: part.dtype for part in self._spec.state}, "the state")
        for name in found.gradients:
            if name not in changed:
                raise users.wrong(f"does not give {name}, which has gradients; return the changed arrays of the state")
        self._state |= changed
        return found

    def statistics(self, rollout: Arrays) -> None:
        """Merge the statistics of a rollout with its targets."""
        users = self._function("statistics")
        state = Named(_arrays(self._state), "the state", "add its ArraySpec to state in spec.py")
        users.check(users.call(self._algorithm.statistics, state, _of_rollout(rollout)), self._of_state, "the state")

    def _function(self, name: str) -> UsersFunction:
        return UsersFunction(self._name, self._settings.learn.partition(":")[0], name)

    def _given_state(self) -> Named:
        return Named(self._state, "the state", "add its ArraySpec to state in spec.py")


def _minibatch(spec: AlgorithmSpec, rollout: Arrays) -> Arrays:
    """Units of a rollout: rows of its first lane, or all its lanes."""
    steps, lanes = rollout["reward"].shape[0] - 1, rollout["reward"].shape[1]
    if spec.unit == "row":
        # There may be fewer rows than units.
        found = {name: np.repeat(rollout[name][:1, 0], UNITS, axis=0) for name in spec.minibatch}
        return found | {"weight": np.ones(UNITS, np.float32)}
    carry = {part.name for part in spec.policy.carry}
    found = {name: rollout[name] if name in carry else rollout[name].swapaxes(0, 1) for name in spec.minibatch}
    return found | {"weight": np.ones((lanes, steps), np.float32)}


def _of_rollout(values: Mapping[str, object]) -> Named:
    return Named(values, "a rollout", "add it to row in spec.py if the policy gives it")


def _of_minibatch(values: Mapping[str, object]) -> Named:
    return Named(values, "a minibatch", "name it in minibatch in spec.py")


def _each(found: object, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Name -> ``shape``, for each array in ``found``. Empty if ``found`` is no mapping: a later check reports that."""
    return dict.fromkeys(found, shape) if isinstance(found, Mapping) else {}


def _reshaped(values: object, shape: tuple[int, ...]) -> object:
    """A tensor in this shape if it has as many numbers; anything else as it is."""
    return values.reshape(shape) if isinstance(values, Tensor) and values.numel() == np.prod(shape) else values


def _tensors(arrays: Arrays) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in arrays.items()}


def _arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    return {name: values.detach().cpu().numpy() for name, values in tensors.items()}
