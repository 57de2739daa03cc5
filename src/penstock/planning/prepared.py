"""A settled config: everything that can be decided, and refused, before any process of the run starts.

Makes the environment once, to read its spaces. Writes no file.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.algorithm import AlgorithmSpec
from penstock.algorithm_lookup import (
    AlgorithmPackage,
    check_actions,
    check_learn,
    find_algorithm,
)
from penstock.config.agreement import agreement, agreement_flags
from penstock.config.demonstrations import check_whole, settled_folders, shares_text
from penstock.config.opponents import named_run
from penstock.config.resolve import one_machine, resolve, with_backend, with_sync_mode
from penstock.config.schema import RunConfig
from penstock.config.tables import inlined
from penstock.config.whole import Config
from penstock.config.workers import check_agents, check_lanes, check_sharing
from penstock.envs.given import Given, by_value, shape_of
from penstock.envs.imports import name_of, sendable
from penstock.envs.names import display_name, reference
from penstock.envs.sources import PROBED_LANES, EnvProfile, probe
from penstock.errors import ConfigError, SpaceError
from penstock.kernels.level import instruction_set
from penstock.planning.backends import backend_of, demand, inference_of
from penstock.planning.games import with_games
from penstock.planning.gradient_steps import check_gradient_steps, check_sync_mode
from penstock.planning.opponents import with_scores
from penstock.planning.own_modules import modules_named
from penstock.planning.placement import Place, placed, placed_on_gpu
from penstock.planning.remarks import remarks
from penstock.planning.specs import spec_of
from penstock.planning.table_size import with_checked_table, within_table_bytes
from penstock.policies.space_heads import kind_of
from penstock.processes.probing import probe_apart
from penstock.processes.starts import Processes
from penstock.registry import RUNTIMES, TOPOLOGIES, UPDATES, load
from penstock.saved_runs.run_folder import RunFolder
from penstock.types import BackendSpec, EnvReference

__all__ = ["Prepared", "prepare"]


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
    remarks: tuple[str, ...] = ()
    """Lines for the display on the settings: what has another value than asked for, changes nothing, or may do harm."""

    def functions(self) -> str:
        """``module:attribute`` of the function that builds the update's functions; the native ones if they are run."""
        fused = self.algorithm.fused
        native = fused is not None and UPDATES[self.config.run.backend].native
        return fused if fused is not None and native else self.algorithm.learn

    def own_modules(self) -> tuple[str, ...]:
        """The modules that the user has named, such as ``my_package.my_module``; installed ones, too."""
        own = self.spec.policy.actor.own
        return modules_named(self.env, self.reward, self.algorithm, None if own is None else own.reference)

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


def prepare(
    config: Config,
    processes: Processes,
    given: Given | None = None,
    cluster_cores: Callable[[], int | None] = one_machine,
    *checks: Callable[[Prepared], None],
) -> Prepared:
    """Settle everything that is ``auto``; probe the environment and check the device.

    Args:
        config: what to run.
        processes: one of them probes the environment. Of a user's algorithm, another one asks ``supports``.
        given: environment, wrappers and reward that were passed as objects and have no names.
        cluster_cores: returns the cores of a cluster, as for `resolve`. It may have to join the cluster. So it is
            called after all checks that do not need the cores.
        checks: checks of the caller's own, called before ``cluster_cores``. Four things are not settled by then: the
            number of environment processes, ``threads``, ``policy_placement`` and ``--table_bytes``.

    Raises:
        UsageError: the environment, its spaces, the device or a backend cannot be used.
    """
    # 1. What the user names: the device, the environment, the algorithm.
    model, config = getattr(config.algorithm, "model", ""), _with_description(config)
    run = config.run
    if run.device != "cpu":
        load("penstock.updates.devices:check")(run.device)
    given = given or Given()
    environment = given.environment(run)
    source = reference(environment)
    algorithm = find_algorithm(run.algo)
    check_learn(algorithm)
    profile = replace(_probed(source, run, algorithm, processes), name=display_name(environment))
    check_agents(profile.name, profile.agents, run.num_envs, 1 if run.num_workers == "auto" else run.num_workers)
    # 2. What the algorithm needs on these spaces, and which settings it refuses.
    try:
        spec = _spec(config, algorithm, profile)
    except ConfigError as error:
        if not str(model).endswith(".toml"):
            raise
        # The reader of the description does not know its file: a run keeps the description alone.
        raise ConfigError(str(error).replace("--model:", f"--model {model}:", 1)) from error
    _check_table_settings(run, spec)
    if run.demonstrations is not None:
        config = replace(config, run=replace(run, demonstrations=settled_folders(run.demonstrations)))
    if run.begin_with is not None:
        config = replace(config, run=replace(config.run, begin_with=_begun_with(run.begin_with, run.log_dir)))
    config, of_games = with_games(config, profile, spec.topology)
    config, of_opponents = with_scores(config, profile)
    threads_asked = run.threads
    _check_own_rule(config.run, spec)
    # 3. How it learns and acts: the mode, the table, the backends.
    demanded = replace(demand(config, algorithm, spec, profile.spaces, processes), agents=profile.agents)
    config = with_sync_mode(config, demanded.sync_mode)
    check_sync_mode(config.run, spec)
    config = _agreed(config, spec)
    if spec.table is not None:
        spec = with_checked_table(config, spec)
    if isinstance(config.run.num_workers, int):
        check_sharing(config.run.num_workers, demanded.sharing)
    check_lanes(config.run.num_envs, demanded.sharing, demanded.agents)
    check_gradient_steps(config.run, spec)
    name = inference_of(config, spec)
    config = with_backend(replace(config, run=replace(config.run, inference=name)), demanded)
    prepared = Prepared(
        config=config,
        env=source,
        reward=run.reward if given.reward is None else sendable(given.reward, "reward"),
        profile=profile,
        algorithm=algorithm,
        spec=spec,
        inference=backend_of(name, config, profile, algorithm, spec),
    )
    for check in checks:
        check(prepared)
    # 4. What depends on the cores, of this machine or of a cluster: processes, threads, where actions are computed.
    config = resolve(config, demanded, cluster_cores)
    if spec.table is not None:
        spec = within_table_bytes(config, spec, profile)
    config = replace(config, run=replace(config.run, policy_placement=_place(config, name, spec)))
    lines = (
        *remarks(config, spec, algorithm, profile, threads=threads_asked),
        *of_games,
        *of_opponents,
        *shares_text(config.run, alone=spec.cloning is not None),
    )
    return replace(prepared, config=config, spec=spec, remarks=lines)


def _begun_with(begin_with: str, log_dir: str) -> str:
    """The run of ``--begin_with`` by its absolute path. A name alone may be ``latest``, or of a run in ``log_dir``.

    Raises:
        RunFolderError: there is no run of this name.
    """
    named = named_run(begin_with)
    name = begin_with.partition("@")[0]
    if Path(name).name != name or named.folder.is_dir():
        return str(named)
    return str(named._replace(folder=RunFolder.find(name, log_dir).path.resolve()))


def _probed(env: EnvReference, run: RunConfig, algorithm: AlgorithmPackage, processes: Processes) -> EnvProfile:
    """What the environment says of itself, once it is made.

    Raises:
        EnvError: it cannot be made, or cannot be used.
    """
    # A runtime without processes makes the environment in this one, where a debugger can see it.
    look = partial(probe_apart, processes) if RUNTIMES[run.runtime].processes else probe
    return look(
        env,
        run.vector_env,
        lanes=min(PROBED_LANES, run.num_envs),
        ignore_obs=run.ignore_obs or (),
        masks=algorithm.masks,
        reset_limit_s=run.env_timeout,
    )


def _check_table_settings(run: RunConfig, spec: AlgorithmSpec) -> None:
    """Refuse settings of a table, if the algorithm learns from a stream, or if they do not go together.

    Raises:
        ConfigError: such a setting was given.
    """
    for name in ("table_bytes", "table_on", "demonstrations"):
        if spec.table is None and getattr(run, name) != getattr(RunConfig, name):
            raise ConfigError(f"--{name} is for algorithms that learn from a table (penstock algos)")
    if spec.cloning is not None:
        check_whole(run)
    if run.table_on == RunConfig.table_on:
        return
    if run.demonstrations is not None:
        raise ConfigError(
            f"--table_on {run.table_on} does not go with --demonstrations: learners that need these all run on the "
            "launcher's machine; leave out one of the two"
        )
    if run.begin_with is not None:
        raise ConfigError(
            f"--table_on {run.table_on} does not go with --begin_with: its learners look for the files of their shards "
            "where a run begins; leave out one of the two"
        )
    if sys.platform != "linux":
        raise ConfigError(
            f"--table_on {run.table_on} needs Linux on the launcher's machine: no other system takes back a part of "
            "shared memory; leave it out"
        )


def _check_own_rule(run: RunConfig, spec: AlgorithmSpec) -> None:
    """Refuse several machines, and flags on how learners agree, if the algorithm itself decides that.

    Raises:
        ConfigError: they were asked for.
    """
    if not TOPOLOGIES[spec.topology].learns_in_envs:
        return
    if RUNTIMES[run.runtime].machines:
        raise ConfigError(f"--algo {run.algo} stays on one machine: leave --runtime {run.runtime} out")
    if given := agreement_flags(run):
        raise ConfigError(
            f"{given[0]} is for --learners, and --algo {run.algo} has a learner in each environment process, whose "
            "gradients one node applies as they come; leave it out"
        )


def _place(config: Config, inference: str, spec: AlgorithmSpec) -> Place:
    """Where actions are computed. Speeds were measured on one machine, so on several ``auto`` is ``env``."""
    run = config.run
    if run.policy_placement != "auto":
        return run.policy_placement
    runtime = RUNTIMES[run.runtime]
    if runtime.machines or not runtime.processes:
        return "env"
    if inference == "native":
        return placed(sum(network.num_parameters for network in spec.policy.networks), run.num_envs)
    if inference == "torch" and run.device != "cpu" and not TOPOLOGIES[spec.topology].learns_in_envs:
        return placed_on_gpu(one_process=run.num_workers == 1, sync_mode=run.sync_mode)
    return "env"


def _agreed(config: Config, spec: AlgorithmSpec) -> Config:
    """The config with the rule and the pace of its learners decided. One learner has none."""
    agreed = agreement(config.run, from_table=spec.table is not None)
    if config.run.learners == 1:
        return config
    decided: dict[str, Any] = {"exchange": agreed.exchange, "pace": agreed.pace}
    return replace(config, run=replace(config.run, **decided))


def _with_description(config: Config) -> Config:
    """The config with the description in a file ``--model my_net.toml`` in place of the file's name."""
    model = getattr(config.algorithm, "model", None)
    if not isinstance(model, str):
        return config
    return replace(config, algorithm=replace(config.algorithm, model=inlined(model)))


def _spec(config: Config, algorithm: AlgorithmPackage, profile: EnvProfile) -> AlgorithmSpec:
    """The algorithm's spec on the environment's spaces.

    Raises:
        UsageError: it does not support the spaces, or its package gives no spec.
    """
    try:
        check_actions(algorithm.name, algorithm.actions, kind_of(profile.spaces.action))
    except SpaceError as error:
        # The environment may be the default one.
        raise SpaceError(f"{error}, or give another --env than {profile.name}") from None
    spec = spec_of(algorithm, profile.spaces, config.algorithm)
    if spec.unit == "lane" and spec.table is None:
        # A batch has num_envs lanes. More in a minibatch would only be padding, which costs as much as rows.
        lanes = min(spec.schedule.mini_batch_size, config.run.num_envs)
        spec = replace(spec, schedule=replace(spec.schedule, mini_batch_size=lanes))
    return spec
