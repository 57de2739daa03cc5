"""From a config to a plan: everything that can be settled, and refused, before any process of the run starts.

Makes the environment once, to read its spaces. Writes no file.
"""

import bisect
import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from penstock import __version__
from penstock.algorithm import AlgorithmSpec, ReplaySchedule, TableSpec
from penstock.algorithm_package import (
    AlgorithmPackage,
    algorithms_for,
    check_actions,
    check_learn,
    find_algorithm,
    load_functions,
)
from penstock.config.resolve import Demand, available_cores, resolve
from penstock.config.schema import AUTO, Config, RunConfig
from penstock.envs.given import Given, by_value, shape_of
from penstock.envs.imports import name_of, sendable
from penstock.envs.masks import IN_INFO
from penstock.envs.names import display_name, reference
from penstock.envs.rewards import find_reward, no_infos
from penstock.envs.sources import EnvProfile, probe
from penstock.errors import CheckpointError, ConfigError
from penstock.experiments.checkpoints import Checkpoint
from penstock.experiments.demonstrations import Demonstrations, find_demonstrations
from penstock.kernels.level import instruction_set
from penstock.memory.action_log import Position
from penstock.nodes.contract import LaneStart
from penstock.policies.architecture import kind_of
from penstock.policies.description import inlined
from penstock.policies.native import supports
from penstock.processes.probing import probe_apart
from penstock.processes.starts import Processes
from penstock.program.plan import LearningPlan, Plan
from penstock.program.rollout import table_specs
from penstock.registry import INFERENCE, TOPOLOGIES, UPDATES, load
from penstock.replay.table_file import Rings
from penstock.types import Arrays, BackendSpec, EnvReference

__all__ = ["Prepared", "check_fits", "plan", "prepare"]


@dataclass(frozen=True)
class Prepared:
    """A settled config, with its environment and its algorithm as they were found."""

    config: Config
    """No setting of the run is ``auto`` any more. The algorithm's ``model`` may be: ``spec`` holds the chosen one."""
    env: EnvReference
    reward: str | bytes | None
    """The user's own reward, by name or by value. It is loaded for training only: an evaluation needs none."""
    profile: EnvProfile
    algorithm: AlgorithmPackage
    spec: AlgorithmSpec
    inference: BackendSpec
    told: tuple[str, ...] = ()
    """Lines on settings that got another value than the user asked for."""

    def learn(self) -> str:
        """The module of the update's functions. For the native backend it is the one without torch."""
        fused = self.algorithm.fused
        native = fused is not None and UPDATES[self.config.run.backend].native
        return fused if fused is not None and native else self.algorithm.learn

    def identity(self) -> dict[str, Any]:
        """Facts that must be equal in a checkpoint's manifest before it is continued or evaluated."""
        run = self.config.run
        return {
            "env": self.profile.name,
            **shape_of(self.env),
            "reward": None if self.reward is None else name_of(self.reward),
            "algorithm": run.algo,
            "spaces": repr(self.profile.spaces),
            "num_envs": run.num_envs,
        }

    def manifest(self) -> dict[str, Any]:
        """Facts for the manifest of every checkpoint: the run's identity, and everything that its bits depend on."""
        run = self.config.run
        return {
            **self.identity(),
            "backend": run.backend,
            **by_value(self.env, self.reward),
            # Not a part of the identity: `spaces` lists the remaining fields, so older checkpoints fit as well.
            "ignore_obs": list(run.ignore_obs or ()),
            "inference": self.inference.build,
            "instruction_set": instruction_set(),
            "threads": run.threads,
            "restorable": self.profile.restorable,
            "penstock": __version__,
        }


def prepare(config: Config, processes: Processes, given: Given | None = None) -> Prepared:
    """Settle everything that is ``auto``; probe the environment and check the device.

    Args:
        config: what to run.
        processes: one of them probes the environment.
        given: environment, wrappers and reward that were passed as objects and have no names.

    Raises:
        UsageError: the environment, its spaces, the device or a backend cannot be used.
    """
    config = _with_table(config)
    run = config.run
    if run.device != "cpu":
        load("penstock.updates.devices:check")(run.device)
    given = given or Given()
    environment = given.environment(run)
    source = reference(environment)
    # With `inline` the environment is made in this process, where a debugger can see it.
    look = probe if run.runtime == "inline" else partial(probe_apart, processes)
    algorithm = find_algorithm(run.algo)
    check_learn(algorithm)
    limit = run.env_timeout
    profile = look(source, run.vector_env, ignore_obs=run.ignore_obs or (), masks=algorithm.masks, reset_limit_s=limit)
    profile = replace(profile, name=display_name(environment))
    spec = _spec(config, algorithm, profile)
    if run.learners > 1 and spec.table is None:
        raise ConfigError(
            f"--algo {run.algo} has one learner; --learners is for algorithms that learn from a table (penstock algos)"
        )
    for name in ("table_bytes", "demonstrations"):
        if spec.table is None and getattr(run, name) != getattr(RunConfig, name):
            raise ConfigError(f"--{name} is for algorithms that learn from a table (penstock algos)")
    if run.demonstrations is not None:
        # An absolute path, because a run may be resumed from another working directory.
        config = replace(config, run=replace(run, demonstrations=str(Path(run.demonstrations).resolve())))
    wanted = run.threads
    config = resolve(config, _demand(config, algorithm, spec))
    if spec.table is not None:
        spec = _with_checked_table(config, spec, profile)
    name = _inference(config, spec)
    config = replace(config, run=replace(config.run, inference=name))
    backend = _backend(name, config, profile, algorithm, spec)
    told = (*_fewer_threads(wanted, config.run), *_unused_mask(algorithm, profile))
    reward = run.reward if given.reward is None else sendable(given.reward, "reward")
    return Prepared(config, source, reward, profile, algorithm, spec, backend, told)


def _with_table(config: Config) -> Config:
    """The config with the table of a file ``--model my_net.toml`` in place of the file's name."""
    model = getattr(config.algorithm, "model", None)
    if not isinstance(model, str):
        return config
    return replace(config, algorithm=replace(config.algorithm, model=inlined(model)))


def _spec(config: Config, algorithm: AlgorithmPackage, profile: EnvProfile) -> AlgorithmSpec:
    """The algorithm's spec on the environment's spaces.

    Raises:
        UsageError: it does not support the spaces, or its package gives no spec.
    """
    check_actions(algorithm.name, algorithm.actions, kind_of(profile.spaces.action))
    spec = load(algorithm.spec)(profile.spaces, config.algorithm)
    if not isinstance(spec, AlgorithmSpec):
        raise ConfigError(f"algorithm {algorithm.name}: {algorithm.spec} gives {type(spec).__name__}, no AlgorithmSpec")
    if spec.unit == "lane":
        # A batch has num_envs lanes. More in a minibatch would only be padding, which costs as much as rows.
        lanes = min(spec.schedule.mini_batch_size, config.run.num_envs)
        spec = replace(spec, schedule=replace(spec.schedule, mini_batch_size=lanes))
    return spec


def _unused_mask(algorithm: AlgorithmPackage, profile: EnvProfile) -> tuple[str, ...]:
    """One line if the environment gives an action mask that the algorithm does not use; else empty."""
    if profile.unused_mask is None:
        return ()
    others = algorithms_for(masks=True)
    does = "does not see it" if profile.unused_mask == IN_INFO else "sees it as a part of the observation"
    return (
        f"{profile.name} gives an action mask, but {algorithm.name} uses none and {does}; to have it used: {others}",
    )


def _fewer_threads(wanted: int | str, run: RunConfig) -> tuple[str, ...]:
    """One line if a learner gets fewer threads than asked for; else empty."""
    if wanted in {AUTO, run.threads}:
        return ()
    why = f"the {run.backend} update cannot use more on {available_cores()} cores"
    return (f"--threads {wanted}: each learner gets {run.threads}, because {why}",)


def _with_checked_table(config: Config, spec: AlgorithmSpec, profile: EnvProfile) -> AlgorithmSpec:
    """The spec with a table of as many rows as ``capacity`` and ``table_bytes`` both allow.

    Raises:
        ConfigError: the table holds too few rows for its minibatches.
    """
    run, num_steps = config.run, config.algorithm.num_steps
    schedule, table = spec.replay()
    given = f"--capacity {table.capacity}"
    fits = table.capacity if run.table_bytes is None else _rows_within(run.table_bytes, config, spec, profile)
    if fits < table.capacity:
        table = replace(table, capacity=fits)
        given = f"--table_bytes {run.table_bytes}"
    _check_table(schedule, table, run.num_envs, num_steps, given)
    return replace(spec, table=table)


def _rows_within(nbytes: int, config: Config, spec: AlgorithmSpec, profile: EnvProfile) -> int:
    """Rows of a table of ``nbytes``, priorities included, in the layout of its topology."""
    num_envs, writers = config.run.num_envs, config.run.num_workers
    num_steps: int = config.algorithm.num_steps
    if not isinstance(writers, int):
        raise ConfigError("a table needs a config that is resolved")
    _, table = spec.replay()
    lanes, shaped = num_envs // writers, config.run.reward is not None
    arrays = table_specs(profile.spaces, spec.row, num_steps, lanes, same_step=profile.same_step, shaped=shaped)
    rings = Rings(arrays, writers, 1, table.priorities is not None)
    rows = num_envs * num_steps
    enough = range(1, math.ceil(table.capacity / rows) + 2)
    slots = bisect.bisect_right(enough, nbytes, key=lambda count: replace(rings, slots=count).nbytes)
    # Each writer fills one slot, which cannot be sampled meanwhile.
    return max(0, slots - 1) * rows


def _check_table(schedule: ReplaySchedule, table: TableSpec, num_envs: int, num_steps: int, given: str) -> None:
    """Check that the table holds enough rows for its minibatches.

    Args:
        schedule: when gradient steps begin, and how many rows each samples.
        table: of how many rows.
        num_envs: lanes of the run.
        num_steps: steps of each lane in one rollout.
        given: the flag that sets the table's size and its value, for the error text.

    Raises:
        ConfigError: the table holds too few rows.
    """
    rows, reach = num_envs * num_steps, num_envs * table.n_step
    least = max(schedule.min_rows, 2 * rows, reach + rows)
    if table.capacity < least:
        why = f"learning begins at {schedule.min_rows:,} rows, and rows come {rows:,} at a time"
        if least == reach + rows:
            why = f"{table.n_step} steps of {num_envs} lanes are {reach:,} rows, and {rows:,} more come at a time"
        raise ConfigError(f"{given} keeps too few rows: {why}; at least {least} must fit")
    if math.ceil(schedule.min_rows / rows) * rows < reach:
        raise ConfigError(
            f"--min_rows {schedule.min_rows} is too few: by then none of {num_envs} lanes has {table.n_step} steps "
            f"(--n_step); give at least {reach}"
        )
    if schedule.mini_batch_size > table.capacity:
        more = f"more than the {table.capacity:,} rows that {given.partition(' ')[0]} keeps"
        raise ConfigError(f"--mini_batch_size {schedule.mini_batch_size} is {more}")


def _demand(config: Config, algorithm: AlgorithmPackage, spec: AlgorithmSpec) -> Demand:
    """The work of an update, and its sync mode. A lower bound: convolutions use each parameter more than once."""
    steps = None
    if spec.table is not None:
        schedule, _ = spec.replay()
        steps = int(config.run.timesteps * schedule.updates_per_step)
    rows = spec.rows(spec.schedule.mini_batch_size, config.algorithm.num_steps)
    multiplications = rows * spec.policy.actor.num_parameters
    return Demand(
        _fused_applies(config, algorithm, spec), multiplications, steps, next(iter(TOPOLOGIES[spec.topology]))
    )


def _fused_applies(config: Config, algorithm: AlgorithmPackage, spec: AlgorithmSpec) -> bool:
    """Whether the update can run without torch.

    Raises:
        ConfigError: the user asked for it, and it cannot.
    """
    on_cpu = config.run.device == "cpu"
    serves = (
        spec.table is None
        and algorithm.supports is not None
        and bool(load_functions(algorithm.supports)(spec.policy, config.algorithm))
    )
    name = config.run.backend
    if name != AUTO and UPDATES[name].native and not (on_cpu and serves):
        refused = f"--algo {config.run.algo} with this model" if on_cpu else f"--device {config.run.device}"
        raise ConfigError(f"--backend {name} does not run {refused}; try --backend auto")
    return on_cpu and serves


def check_fits(prepared: Prepared, checkpoint: Checkpoint) -> None:
    """Check that the checkpoint holds every array of the state, in the shapes of the config.

    Raises:
        CheckpointError: one is missing or differs: the config or the user's own module was edited after the checkpoint
            was written.
    """
    own = prepared.spec.policy.actor.own
    what = "the run's settings" + ("" if own is None else f" and its module {own.reference}")
    for spec in prepared.spec.state:
        found = checkpoint.arrays.get(spec.name)
        if found is None or found.shape != spec.shape or found.dtype != np.dtype(spec.dtype):
            has = "missing" if found is None else f"{found.dtype.name} {list(found.shape)}"
            raise CheckpointError(
                f"checkpoint {checkpoint.path} does not fit {what}: its {spec.name} is {has}, they need "
                f"{spec.dtype} {list(spec.shape)}; set them back to what the run began with"
            )


def _inference(config: Config, spec: AlgorithmSpec) -> str:
    """Name of the policy backend: native where it can, then ONNX Runtime on the CPU, then torch.

    Raises:
        ConfigError: the user asked for a backend that cannot run this policy.
    """
    name = config.run.inference
    if name == AUTO:
        name = "native" if supports(spec.policy) else "onnx" if config.run.device == "cpu" else "torch"
    if name == "native" and not supports(spec.policy):
        raise ConfigError("--inference native runs policies of linear layers only; try --inference onnx")
    return name


def _backend(
    name: str, config: Config, profile: EnvProfile, algorithm: AlgorithmPackage, spec: AlgorithmSpec
) -> BackendSpec:
    backend = INFERENCE[name]
    if backend.torch:
        return BackendSpec(backend.build, (algorithm.learn, profile.spaces, config.algorithm, config.run.device))
    own = spec.policy.actor.own
    if own is None:
        return BackendSpec(backend.build, (spec.policy,))
    return BackendSpec(backend.build, (spec.policy, load("penstock.models.own_export:exported")(own)))


def plan(prepared: Prepared, folder: Path, *, quiet: bool, begin: Checkpoint | None = None) -> Plan:
    """The plan of a run in ``folder``, from the beginning or from a checkpoint."""
    config, profile = prepared.config, prepared.profile
    run = config.run
    if not isinstance(run.num_workers, int) or not isinstance(run.threads, int):
        raise ConfigError("a plan needs a config that is resolved")
    fresh = Plan(
        run=run,
        learning=LearningPlan(
            spec=prepared.spec,
            algorithm_config=config.algorithm,
            learn=prepared.learn(),
            initial=prepared.algorithm.initial,
            update=UPDATES[run.backend],
            inference=prepared.inference,
        ),
        env=prepared.env,
        reward=_checked_reward(prepared),
        spaces=profile.spaces,
        kind=profile.kind,
        same_step=profile.same_step,
        # EnvPool and ale-py step a batch in a thread of their own, and the caller waits for it. Without cores of its
        # own, a process has this thread woken on the core of another process: then one step of EnvPool's took 150 us
        # in each of two processes, instead of 75.
        own_cores=profile.kind == "vector" and run.num_workers >= available_cores(),
        num_steps=config.algorithm.num_steps,
        num_workers=run.num_workers,
        learner_threads=run.threads,
        folder=folder,
        manifest=prepared.manifest(),
        starts=tuple(LaneStart() for _ in range(run.num_envs)),
        quiet=quiet,
        told=prepared.told,
        demonstrations=_demonstrations(prepared),
    )
    if begin is None:
        return fresh
    return replace(
        fresh,
        starts=_starts(begin.arrays, config.algorithm.num_steps, restorable=profile.restorable),
        checkpoint=begin.path,
        resumed_update=int(begin.arrays["update"]),
        resumed_steps=int(begin.arrays["steps"]),
    )


def _checked_reward(prepared: Prepared) -> str | bytes | None:
    """The user's own reward, once it is known to be callable.

    Raises:
        EnvError: it is not.
    """
    if prepared.reward is not None:
        found = find_reward(prepared.reward)
        if found.wants_info and prepared.profile.kind == "vector":
            raise no_infos(found, prepared.profile.name)
    return prepared.reward


def _demonstrations(prepared: Prepared) -> Demonstrations | None:
    run = prepared.config.run.demonstrations
    if run is None:
        return None
    return find_demonstrations(Path(run), prepared.profile.spaces, prepared.identity()["reward"])


def _starts(arrays: Arrays, num_steps: int, *, restorable: bool) -> tuple[LaneStart, ...]:
    """Where each lane continues: in the episode where it stopped, or with its next one if that cannot be restored."""
    ends = np.cumsum(np.maximum(arrays["actions_count"], 0))
    carried = [name for name in arrays if name.startswith("lane_carry.")]
    starts = []
    for lane, rollout in enumerate(arrays["lane_rollout"]):
        position, count = Position(*map(int, arrays["lane_position"][lane])), int(arrays["actions_count"][lane])
        start = LaneStart(
            position.episode,
            int(rollout) * num_steps,
            int(rollout),
            collected=int(arrays["lane_collected"][lane]),
            spoilt=int(arrays["lane_spoilt"][lane]),
        )
        if restorable and count >= 0:
            actions = arrays["actions"][ends[lane] - count : ends[lane]]
            carry = {name.removeprefix("lane_"): arrays[name][lane] for name in carried}
            starts.append(replace(start, position=position, actions=actions, carry=carry))
        else:
            starts.append(replace(start, episode=position.episode + 1))
    return tuple(starts)
