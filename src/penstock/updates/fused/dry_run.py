"""A dry run of a native update: what an algorithm's ``fused.py`` gives is called once, on made-up rows, before a run.

Names, shapes and dtypes of the arrays are checked, so that a mistake is one line. Numbers are not looked at. Nothing is
sampled from a table. Imports no torch.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.algorithm import Fused, FusedReplay, FusedReplayUpdate, FusedUpdate, StreamShape, Tensors
from penstock.algorithm_lookup import load_functions
from penstock.kernels.steps import FusedPhase
from penstock.registry import load
from penstock.types import Array, Arrays, ArraySpec
from penstock.updates.calls import Named, UsersFunction
from penstock.updates.made_up import made_up_rollout, made_up_sample
from penstock.updates.rows import Rows
from penstock.updates.settings import UpdaterSettings

__all__ = ["dry_run"]


def dry_run(name: str, initial: str, settings: UpdaterSettings, slot: tuple[ArraySpec, ...], *, shared: bool) -> None:
    """Call each function of an algorithm's ``fused.py`` once, as a learner calls it.

    Args:
        name: of the algorithm, as the user gave it.
        initial: ``module:function`` of its ``init_state``.
        settings: of its updater.
        slot: the arrays of one slot of its stream; not used if it learns from a table.
        shared: gradients are computed and applied apart, as learners do that share the state.

    Raises:
        ConfigError: a function fails, or gives other arrays than the spec says. One line.
    """
    run = _DryRun(name, settings)
    run.begin(initial)
    if settings.spec.table is None:
        run.stream(made_up_rollout(settings.spaces, slot), shared=shared)
    else:
        run.table(shared=shared)


class _DryRun:
    """The calls of a native update, each checked."""

    def __init__(self, name: str, settings: UpdaterSettings) -> None:
        """Build the functions."""
        self._name = name
        self._settings = settings
        self._spec = settings.spec
        self._of_state = _shapes(settings.spec.state)
        self._state = Named({}, "the state", "add its ArraySpec to state in spec.py")
        build, given = self._function("build"), load_functions(settings.learn)
        self._fused: Any = build.call(given, settings.spaces, settings.config)
        wanted, experience = (Fused, "a stream") if self._spec.table is None else (FusedReplay, "a table")
        if not isinstance(self._fused, wanted):
            raise build.wrong(
                f"gives a {type(self._fused).__name__}; return a penstock.algorithm.{wanted.__name__}, because the "
                f"AlgorithmSpec learns from {experience}"
            )

    def begin(self, initial: str) -> None:
        """Take the first state. Arrays that it leaves out are zero."""
        module, _, function = initial.partition(":")
        users, settings = UsersFunction(self._name, module, function), self._settings
        found = users.call(load(initial), settings.spaces, settings.config, settings.seed)
        users.check(found, self._of_state, "the state")
        users.check_networks(found, [network.name for network in self._spec.policy.networks])
        for part in self._spec.state:
            self._state[part.name] = np.array(found.get(part.name, np.zeros(part.shape)), part.dtype)

    def stream(self, rollout: Arrays, *, shared: bool) -> None:
        """Learn from one rollout: its targets, a minibatch of its rows, its statistics."""
        spec, by_lane = self._spec, self._spec.unit == "lane"
        arrays = {name: values[None] for name, values in rollout.items()}
        rows = Rows(arrays, (*spec.minibatch, "valid") if by_lane else spec.minibatch, spec.targets)
        learning = ("across_minibatch", "gradients", "apply") if shared else ("run",)
        shape = StreamShape(1, rows.steps, rows.lanes)
        update = self._update("FusedUpdate", ("pack", *learning, "metrics"), shape, self._settings.threads)
        self._targets(rows)
        packed = rows.per_slot if by_lane else rows.learned_per_slot
        self._in_place("pack", update.pack, self._state, rows.flat, 0, packed)
        # A lane is named by its row 0. The rows of a rollout that are learned from come before its bootstrap rows.
        units = np.resize(np.arange(rows.lanes if by_lane else packed), (1, spec.schedule.mini_batch_size))
        weights = np.ones(units.shape, np.float32)
        if shared:
            self._share(update, units[0], weights[0])
        else:
            self._in_place("run", update.run, self._state, units, weights)
        self._metrics(update)
        users = self._function("statistics")
        users.check(users.call(self._fused.statistics, self._state, _of_rollout(rows)), self._of_state, "the state")

    def _targets(self, rows: Rows) -> None:
        """Compute the targets of the rollout, and keep them in its rows."""
        users, what = self._function("targets"), "targets of the AlgorithmSpec"
        found = users.call(self._fused.targets, self._state, _of_rollout(rows))
        within = [part.within(rows.steps, rows.lanes) for part in self._spec.targets]
        users.check(found, _shapes(within), what, whole=True)
        users.check_dtypes(found, _dtypes(within), what)
        rows.prepare(0, lambda _: found)

    def _share(self, update: FusedUpdate, units: Array, weights: Array) -> None:
        """Compute the gradients of a minibatch, and step down them."""
        across = self._function("across_minibatch").call(
            update.across_minibatch, units, lambda values: float(np.mean(values))
        )
        users = self._function("gradients")
        found = users.call(update.gradients, self._state, units, weights, across)
        if not isinstance(found, tuple) or len(found) != 2:
            raise users.wrong(f"gives a {type(found).__name__}; return the gradients by network, and their weight")
        self._in_place("apply", update.apply, self._state, self._gradients(users, found[0]))

    def table(self, *, shared: bool) -> None:
        """Take one gradient step by a minibatch as a table gives it."""
        settings = self._settings
        rows = settings.accumulate * self._spec.schedule.mini_batch_size
        learning = ("gradients", "apply") if shared else ("run", "step")
        needed = ("load", "bind", *learning, "store", "metrics")
        update = self._update("FusedReplayUpdate", needed, settings.seed, 0)
        minibatch = made_up_sample(self._spec, settings.spaces, rows)
        self._in_place("load", update.load, self._state)
        self._in_place(
            "bind", update.bind, minibatch, np.zeros(rows, np.float32) if "importance" in minibatch else None
        )
        phases = self._phases(update)
        if shared:
            for number in range(len(phases)):
                users = self._function("gradients")
                gradients = self._gradients(users, users.call(update.gradients, number, settings.threads))
                self._in_place("apply", update.apply, number, gradients, 0.0, settings.threads)
        else:
            self._in_place("step", update.step, 0.0, settings.threads)
        self._in_place("store", update.store, self._state)
        self._metrics(update)

    def _update(self, contract: str, needed: Sequence[str], *given: object) -> Any:  # noqa: ANN401
        """An update that has these methods."""
        users = self._function("update")
        found = users.call(self._fused.update, *given)
        for name in needed:
            if not callable(getattr(found, name, None)):
                says = f"penstock.algorithm.{contract} says what it does"
                raise users.wrong(f"gives a {type(found).__name__}, which has no method {name}; {says}")
        return found

    def _phases(self, update: FusedReplayUpdate) -> Sequence[FusedPhase]:
        """The phases of an update from a table."""
        users = self._function("phases")
        found: Sequence[FusedPhase] = users.call(lambda: tuple(update.phases))
        for phase in found:
            if not isinstance(phase, FusedPhase):
                raise users.wrong(f"has {phase!r}; write a penstock.kernels.steps.FusedPhase")
        return found

    def _gradients(self, users: UsersFunction, found: Any) -> Tensors:  # noqa: ANN401
        """Gradients by network, in the shapes of the state's arrays."""
        users.check(found, self._of_state, "the state")
        users.check_dtypes(found, _dtypes(self._spec.state), "the state")
        gradients: Tensors = found
        return gradients

    def _in_place(self, name: str, function: Callable[..., object], *given: object) -> None:
        """Call a function that writes into the arrays it is given, and gives nothing."""
        users = self._function(name)
        found = users.call(function, *given)
        if found is not None:
            raise users.wrong(f"gives a {type(found).__name__}; write into the given arrays and return nothing")
        users.check(self._state, self._of_state, "the state", whole=True)
        users.check_dtypes(self._state, _dtypes(self._spec.state), "the state")

    def _metrics(self, update: FusedUpdate | FusedReplayUpdate) -> None:
        """Check that metrics are numbers by name."""
        users = self._function("metrics")
        found = users.call(update.metrics)
        users.check(found, dict.fromkeys(found if isinstance(found, Mapping) else (), ()), "the metrics")

    def _function(self, name: str) -> UsersFunction:
        return UsersFunction(self._name, self._settings.learn.partition(":")[0], name)


def _of_rollout(rows: Rows) -> Named:
    return Named(rows.rollout(0), "a rollout", "add it to row in spec.py if the policy gives it")


def _shapes(specs: Sequence[ArraySpec]) -> dict[str, tuple[int, ...]]:
    return {part.name: part.shape for part in specs}


def _dtypes(specs: Sequence[ArraySpec]) -> dict[str, str]:
    return {part.name: part.dtype for part in specs}
