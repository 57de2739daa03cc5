"""Lines for the display of a run: settings that got another value than the user asked for, or change nothing."""

import math
from collections.abc import Iterator
from typing import Any

from penstock.algorithm import AlgorithmSpec
from penstock.algorithm_lookup import AlgorithmPackage, algorithms_for, ships
from penstock.config.fields import AUTO
from penstock.config.resolve import available_cores, lacks_bfloat16
from penstock.config.schema import RunConfig
from penstock.config.whole import Config
from penstock.envs.masks import IN_INFO
from penstock.envs.sources import EnvProfile
from penstock.registry import RUNTIMES, TOPOLOGIES
from penstock.types import Discrete, MultiDiscrete

__all__ = ["remarks"]

_FEW = 16
"""With fewer batches than these a run is short. docs/algorithms/ppo-trials.md has what such runs learned."""
_ROWS, _LEAST_STEPS = 2048, 32
"""Rows of a batch with which short runs learned more, and the fewest steps of a lane that a line advises."""


def remarks(
    config: Config, spec: AlgorithmSpec, algorithm: AlgorithmPackage, profile: EnvProfile, *, threads: int | str
) -> tuple[str, ...]:
    """All of them, of a config in which everything is decided.

    Args:
        config: of the run.
        spec: of its algorithm.
        algorithm: its package.
        profile: of its environment.
        threads: as the user gave them.
    """
    return (
        *_fewer_threads(threads, config.run),
        *_less_than_a_batch(config, spec),
        *_few_batches(config, spec),
        *_without_effect(config, spec, profile),
        *_range_of_returns(config),
        *_slow_precision(config),
        *_unused_mask(algorithm, profile),
    )


def _of_versions(run: RunConfig, num_steps: int) -> Iterator[str]:
    """One line for each setting of old and newer policies that the user has given and that changes nothing."""
    if run.sync_mode != "blocking":
        if run.renew_every != RunConfig.renew_every and run.renew_every >= num_steps:
            why = f"a rollout has --num_steps {num_steps}, and begins with the latest policy"
            yield f"--renew_every {run.renew_every} changes nothing: {why}"
        return
    if run.max_policy_lag != RunConfig.max_policy_lag:
        yield f"--max_policy_lag {run.max_policy_lag} changes nothing: in lock step no experience is old"
    if run.renew_every != RunConfig.renew_every:
        yield f"--renew_every {run.renew_every} changes nothing: in lock step no newer policy comes within a rollout"


def _without_effect(config: Config, spec: AlgorithmSpec, profile: EnvProfile) -> Iterator[str]:
    """One line for each setting that the user has given and that changes nothing."""
    run, settings = config.run, config.algorithm
    yield from _of_versions(run, settings.num_steps)
    if run.pad_batches != RunConfig.pad_batches and (run.device == "cpu" or run.inference != "torch"):
        where = "--device cpu" if run.device == "cpu" else f"--inference {run.inference}"
        yield f"--pad_batches changes nothing with {where}: only batches of CUDA graphs are padded"
    together = run.learners == 1 or run.pace == "sync"
    if run.sync_mode != "blocking" and spec.table and together and run.max_policy_lag != RunConfig.max_policy_lag:
        yield f"--max_policy_lag {run.max_policy_lag} changes nothing: a table keeps rows of any age"
    if _is_given(settings, "log_std_init") and isinstance(profile.spaces.action, Discrete | MultiDiscrete):
        yield f"--log_std_init {settings.log_std_init:g} changes nothing: the actions are choices"
    if getattr(settings, "temperature", "auto") != "auto":
        for name in ("temperature_lr", "target_entropy"):
            if _is_given(settings, name):
                yield f"--{name} changes nothing: --temperature {settings.temperature:g} is not learned"
    if not getattr(settings, "prioritised", True):
        for name in ("priority_alpha", "priority_beta", "priority_eta"):
            if _is_given(settings, name):
                yield f"--{name} changes nothing without --prioritised True"
    if getattr(settings, "atoms", 1) > 1 and _is_given(settings, "error_clip"):
        yield f"--error_clip {settings.error_clip:g} changes nothing: with atoms the loss is a cross-entropy"
    if getattr(settings, "smoothing", 1.0) == 0 and _is_given(settings, "smoothing_clip"):
        yield f"--smoothing_clip {settings.smoothing_clip:g} changes nothing without --smoothing"
    rows = run.num_envs * settings.num_steps
    learns_from_batches = spec.table is None and spec.unit == "row"
    if learns_from_batches and _is_given(settings, "mini_batch_size") and settings.mini_batch_size > rows:
        yield (
            f"--mini_batch_size {settings.mini_batch_size:,} is more than a batch, which has {rows:,} rows: an epoch "
            "is one minibatch"
        )


def _range_of_returns(config: Config) -> tuple[str, ...]:
    """One line if the range of a distribution of returns is its default, which suits few tasks; else empty."""
    settings = config.algorithm
    if getattr(settings, "atoms", 1) == 1 or _is_given(settings, "value_min") or _is_given(settings, "value_max"):
        return ()
    covered = f"cover returns from {settings.value_min:g} to {settings.value_max:g}"
    why = "others count as the nearer end, so nothing is learned where all lie outside"
    return (f"--atoms {settings.atoms} {covered}: {why}; set --value_min and --value_max",)


def _slow_precision(config: Config) -> tuple[str, ...]:
    """One line if learning in bfloat16 is slow on this machine's processor; else empty."""
    run, precision = config.run, getattr(config.algorithm, "precision", "float32")
    if precision != "bfloat16" or run.device != "cpu" or RUNTIMES[run.runtime].machines or not lacks_bfloat16():
        return ()
    why = "this processor has no instructions for bfloat16, so learning is slower than with float32"
    return (f"--precision bfloat16: {why}; give --precision float32, or --device cuda",)


def _is_given(settings: Any, name: str) -> bool:  # noqa: ANN401 - of any algorithm
    """Whether the algorithm has this setting, with another value than its default."""
    return hasattr(settings, name) and getattr(settings, name) != getattr(type(settings), name, None)


def _unused_mask(algorithm: AlgorithmPackage, profile: EnvProfile) -> tuple[str, ...]:
    """One line if the environment gives an action mask that the algorithm does not use; else empty."""
    if profile.unused_mask is None:
        return ()
    others = algorithms_for(masks=True)
    does = "does not see it" if profile.unused_mask == IN_INFO else "sees it as a part of the observation"
    if not profile.spaces.action.choices:
        return (f"{profile.name} gives an action mask, but its actions have no choices: {algorithm.name} {does}",)
    if not ships(algorithm):
        others += f"; or write MASKS = True into {algorithm.package}.spec, once it uses spaces.mask"
    return (
        f"{profile.name} gives an action mask, but {algorithm.name} uses none and {does}; to have it used: {others}",
    )


def _less_than_a_batch(config: Config, spec: AlgorithmSpec) -> tuple[str, ...]:
    """One line if a run plays more steps than asked for, because an update learns from a whole batch; else empty."""
    run, num_steps = config.run, config.algorithm.num_steps
    apart = run.learners > 1 and run.pace != "sync"
    rows = run.num_envs // (run.learners if apart else 1) * num_steps
    if spec.table is not None or TOPOLOGIES[spec.topology].learns_in_envs or run.timesteps >= rows:
        return ()
    batch, lanes = "one batch", f"--num_envs {run.num_envs}"
    if apart:
        batch, lanes = "one batch of a learner", f"{run.num_envs} lanes over {run.learners} learners"
    what = f"{batch} ({rows:,} steps, {lanes} times --num_steps {num_steps:,})"
    return (f"--timesteps {run.timesteps} is less than {what}: the run plays one batch",)


def _few_batches(config: Config, spec: AlgorithmSpec) -> tuple[str, ...]:
    """One line if a run in lock step has few batches, because its batches are as long as by default; else empty."""
    run, settings = config.run, config.algorithm
    rows = run.num_envs * settings.num_steps
    shorter = max(_LEAST_STEPS, _ROWS // run.num_envs)
    if spec.table is not None or run.sync_mode != "blocking" or _is_given(settings, "num_steps"):
        return ()
    if not rows <= run.timesteps < _FEW * rows or settings.num_steps < 2 * shorter:
        return ()
    what = f"--timesteps {run.timesteps:,} are {math.ceil(run.timesteps / rows)} batches of {rows:,} steps"
    return (f"{what}; with so few, smaller batches often learn more: try --num_steps {shorter} in a new run",)


def _fewer_threads(wanted: int | str, run: RunConfig) -> tuple[str, ...]:
    """One line if a learner gets fewer threads than asked for; else empty."""
    if wanted in {AUTO, run.threads}:
        return ()
    why = f"the {run.backend} update cannot use more on {available_cores()} cores"
    return (f"--threads {wanted}: each learner gets {run.threads}, because {why}",)
