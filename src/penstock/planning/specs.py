"""An algorithm's spec, checked against its policy, its topology and the spaces. Calls nothing else of the algorithm.

Each fault is one line: the field, what stands there, and what to write.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, get_args

from penstock.algorithm import KL_COEF, AlgorithmSpec, ReplaySchedule, Schedule, TableSpec
from penstock.algorithm_lookup import AlgorithmPackage
from penstock.errors import ConfigError, either, nearest
from penstock.nodes.learner import record_specs
from penstock.policies import PolicyGraph
from penstock.program.rollout import fields_beside_return, row_specs
from penstock.registry import TOPOLOGIES, load
from penstock.types import ArraySpec, Spaces
from penstock.updates.calls import UsersFunction

__all__ = ["spec_of"]

DTYPES = ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")
"""Types that both NumPy and torch know by these names."""
UNITS = get_args(AlgorithmSpec.__annotations__["unit"])


def spec_of(algorithm: AlgorithmPackage, spaces: Spaces, config: Any) -> AlgorithmSpec:  # noqa: ANN401 - of any class
    """The algorithm's spec, once its parts are known to fit each other and the spaces.

    Raises:
        UsageError: the algorithm does not support the spaces.
        ConfigError: its package gives no spec, or one whose parts do not fit.
    """
    module, _, function = algorithm.spec.partition(":")
    spec = UsersFunction(algorithm.name, module, function).call(load(algorithm.spec), spaces, config)
    if not isinstance(spec, AlgorithmSpec):
        raise ConfigError(f"algorithm {algorithm.name}: {algorithm.spec} gives {type(spec).__name__}, no AlgorithmSpec")
    for check in (_types, _pattern, _row, _state, _minibatch):
        for fault in check(spec, spaces):
            raise ConfigError(f"algorithm {algorithm.name}: the AlgorithmSpec of {module}: {fault}")
    return spec


def _types(spec: AlgorithmSpec, spaces: Spaces) -> Iterator[str]:
    """Faults of single values."""
    del spaces
    policy: object = spec.policy
    if not isinstance(policy, PolicyGraph):
        yield f"policy is a {type(policy).__name__}; write a PolicyGraph, see penstock.policies.architecture"
    for field in ("row", "state", "targets"):
        yield from _arrays(field, getattr(spec, field))
    for field in ("minibatch", "optimizer"):
        names = getattr(spec, field)
        if not isinstance(names, tuple) or not all(isinstance(one, str) for one in names):
            yield f"{field} is {names!r}; write a tuple of names, such as ('action',)"
    if spec.unit not in UNITS:
        yield f"unit is {spec.unit!r}; write {either(UNITS)}"
    sizes = {"mini_batch_size": getattr(spec.schedule, "mini_batch_size", None)}
    if isinstance(spec.schedule, Schedule):
        sizes["epochs"] = spec.schedule.epochs
    for field, value in sizes.items():
        if not isinstance(value, int) or value < 1:
            yield f"schedule.{field} is {value!r}; write a whole number of at least 1"


def _arrays(field: str, parts: object) -> Iterator[str]:
    """Faults of a tuple of ArraySpecs."""
    if not isinstance(parts, tuple):
        yield f"{field} is a {type(parts).__name__}; write a tuple of ArraySpecs, with a comma behind a single one"
        return
    seen = set()
    for part in parts:
        if not isinstance(part, ArraySpec):
            yield f"{field} holds {part!r}; write ArraySpec(name, shape, dtype)"
            return
        if part.name in seen:
            yield f"{field} names {part.name} twice"
        seen.add(part.name)
        whole = isinstance(part.shape, tuple) and all(isinstance(length, int) and length >= 0 for length in part.shape)
        if not whole:
            yield f"the shape of {part.name} in {field} is {part.shape!r}; write a tuple of whole numbers"
        if part.dtype not in DTYPES:
            yield f"the dtype of {part.name} in {field} is {part.dtype!r}; write {either(DTYPES)}"


def _pattern(spec: AlgorithmSpec, spaces: Spaces) -> Iterator[str]:
    """Faults of the topology, and of what goes with it."""
    del spaces
    known = TOPOLOGIES.names()
    if spec.topology not in known:
        yield f"there is no topology {spec.topology!r}; write {either(known)}"
        return
    if TOPOLOGIES[spec.topology].from_table:
        if not isinstance(spec.table, TableSpec):
            yield f"topology {spec.topology!r} learns from a table, and table is {spec.table!r}; write a TableSpec"
        if not isinstance(spec.schedule, ReplaySchedule):
            yield f"topology {spec.topology!r} needs a ReplaySchedule, not a {type(spec.schedule).__name__}"
        if spec.targets:
            yield f"targets names {spec.targets[0].name}, and only rollouts of a stream have targets; write ()"
        if spec.initial_priority is not None:
            load(spec.initial_priority)
    else:
        if spec.table is not None:
            yield f"topology {spec.topology!r} learns from a stream; leave out table, or write 'off_policy'"
        if not isinstance(spec.schedule, Schedule):
            yield f"topology {spec.topology!r} needs a Schedule, not a {type(spec.schedule).__name__}"


def _row(spec: AlgorithmSpec, spaces: Spaces) -> Iterator[str]:
    """Faults of row fields and targets."""
    given = [name for name in spec.policy.outputs if name != "action"]
    for part in spec.row:
        if part.name not in given:
            yield f"row names {part.name}, which the policy does not give; it gives {either(given) or 'none'}"
        if part.dtype != "float32" or (part.name != "q" and part.shape != ()):
            yield f"row has {_shown(part)}; the policy gives {part.name} as float32" + (
                "" if part.name == "q" else " ()"
            )
    rows = {part.name for part in row_specs(spaces, spec.row, spec.policy.carry)}
    for part in spec.targets:
        if part.name in rows:
            yield f"targets names {part.name}, which each row has already; give the target another name"


def _state(spec: AlgorithmSpec, spaces: Spaces) -> Iterator[str]:
    """Faults of the state."""
    del spaces
    has = {part.name: part for part in spec.state}
    needed = {part.name: (part, "which the policy publishes") for part in spec.published()}
    needed["progress"] = ArraySpec("progress", (), "float64"), "the share of the run that is over"
    if isinstance(spec.schedule, Schedule) and spec.schedule.kl_target is not None:
        needed[KL_COEF] = ArraySpec(KL_COEF, (), "float32"), "which is adapted to kl_target of the schedule"
    steps = ArraySpec("gradient_steps", (), "int64")
    if spec.table is not None or steps.name in has:
        needed[steps.name] = steps, "which the updater counts"
    for name, (part, why) in needed.items():
        if name not in has:
            yield f"state lacks {name}, {why}; write {_written(part)}"
        elif has[name] != part:
            yield f"state has {_shown(has[name])}; {name}, {why}, is {_written(part)}"
    own_return = fields_beside_return((), shaped=True)
    of_record = {part.name for part in record_specs(replace(spec, state=()), 1, 1, beside_return=own_return)}
    for name in has:
        if name in of_record:
            yield f"state names {name}, and a checkpoint has an array of that name already; choose another name"
    for name in spec.optimizer:
        if name not in has:
            yield f"optimizer names {name}, which the state does not have{nearest(name, has)}"


def _minibatch(spec: AlgorithmSpec, spaces: Spaces) -> Iterator[str]:
    """Faults of the fields of a minibatch."""
    carry = spec.policy.carry if spec.unit == "lane" else ()
    known: Collection[str]
    if spec.table is not None:
        known = spec.known_to_table(spaces)
    else:
        known = [part.name for part in (*row_specs(spaces, spec.row, spec.policy.carry), *spec.targets, *carry)]
    for name in spec.minibatch:
        if name not in known:
            where = "the table does not have" if spec.table is not None else "neither rows nor targets have"
            yield f"minibatch names {name}, which {where}; there are {', '.join(known)}"


def _shown(part: ArraySpec) -> str:
    return f"{part.name} as {part.dtype} {part.shape}"


def _written(part: ArraySpec) -> str:
    return f'ArraySpec("{part.name}", {part.shape}, "{part.dtype}")'
