"""Runs trials on Ray Tune: random search, ASHA, or population-based training."""

import contextlib
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import ray.tune

from penstock.cluster.asked_cluster import asked_cluster
from penstock.cluster.connection import check_address, joined
from penstock.cluster.listing import cluster_address
from penstock.config.commands import TuneOptions
from penstock.config.whole import Config
from penstock.envs.given import Given
from penstock.errors import ConfigError, RunFolderError
from penstock.planning.own_modules import modules_of
from penstock.processes.interrupts import Interrupts
from penstock.processes.starts import Processes
from penstock.run.launching import opened_processes
from penstock.saved_runs.run_folder import RunFolder, list_runs
from penstock.tune.callbacks import Interrupted, Settings, Teller, reason_of
from penstock.tune.mistakes import check_trials
from penstock.tune.output import OUTPUT, failure_in, without_evaluation
from penstock.tune.quiet import quiet_ray_tune
from penstock.tune.resources import kept_for_trial, no_machine_fits, trials_that_fit
from penstock.tune.schedulers import (
    METRIC,
    Scheduler,
    Searcher,
    domain,
    saved_often,
    scheduler_of,
    searcher_of,
    too_few_updates,
)
from penstock.tune.search import Search
from penstock.tune.trainable import config_with, trainable
from penstock.tune.trial import up_to_date

__all__ = ["Trial", "Tuned", "tune"]


@dataclass(frozen=True)
class Trial:
    """A trial and its result."""

    name: str
    settings: dict[str, Any]
    """The searched settings."""
    steps: int
    mean_return: float
    """Of its latest training episodes."""
    evaluation: float | None
    """Mean return of its final evaluation; ``None`` if it was stopped before its end."""
    error: str | None
    """Why it failed; ``None`` if it did not."""
    run_folder: Path | None
    output: Path | None = None
    """The file of what its run has printed; ``None`` if it is not on this machine."""
    begun: bool = True
    played: bool = False
    """Whether it has played all its timesteps."""
    not_evaluated: str = ""
    """Why it has no evaluation although it has played them all, if its run said so."""


class Tuned(NamedTuple):
    """The result of ``penstock tune``."""

    trials: list[Trial]
    """Best first."""
    interrupted: bool


def tune(
    config: Config,
    search: Sequence[Search],
    *,
    samples: int,
    scheduler: Scheduler = TuneOptions.scheduler,
    searcher: Searcher = TuneOptions.searcher,
    at_once: int | None = None,
    address: str | None = None,
    name: str = TuneOptions.name,
    told: Callable[[str], None] | None = None,
    given: Collection[str] | None = None,
    processes: Processes | None = None,
) -> Tuned:
    """Train ``samples`` runs with searched settings, as many at once as there are cores.

    Args:
        config: of every run, save what is searched.
        search: the searched settings.
        samples: number of trials.
        scheduler: ``random``: all trials go on to their end; ``asha``: weak trials are stopped early; ``pbt``: weak
            trials go on as changed copies of strong ones.
        searcher: ``random``: the settings of each trial are chosen by themselves; ``optuna``: Optuna chooses them from
            the returns of the trials before.
        at_once: most trials that run at once; ``None``: as many as fit.
        address: of the Ray cluster; ``None``: see `ray.init`.
        name: folder of the trials, in the config's ``log_dir``.
        told: called with a line before Ray starts and one for each trial that has ended, and before the trials if the
            scheduler cannot do its work in so few timesteps, or if no machine has room for a trial.
        given: names of the settings of ``config`` that the user gave, see `config_with`.
        processes: started earlier, so that they are ready sooner; this call ends them. ``None``: it starts its own.

    Returns:
        The trials, best first: by final evaluation, then by return. The first interrupt stops all of them, and each
        writes its last checkpoint, for which Ray gives it five seconds; the second one raises KeyboardInterrupt.

    Raises:
        ConfigError: a searched setting cannot change while a run goes on (``pbt``), or the searcher is not installed or
            does not go with the scheduler, or no cluster is at the address, or this machine is the only one and has no
            room for a trial.
        UsageError: no trial can begin: for example, the environment cannot be made. This and the above are raised
            before Ray starts.
        RunFolderError: the log directory cannot be written.
    """
    if given is not None:
        # What is decided here holds for all trials.
        given = {*given, "save_interval", "address"}
    for part in search:
        for value in part.values:
            # Fails now if a value does not fit the other settings.
            config_with(config, {part.name: value}, given)
    proposing, scheduling = searcher_of(searcher, scheduler, config.run.seed), scheduler_of(scheduler, config, search)
    if scheduler == "pbt":
        config = saved_often(config, search)
    check_address(address)
    folder = (Path(config.run.log_dir) / name).resolve()
    RunFolder.check_place(folder)
    alone = not ray.is_initialized() and asked_cluster(address).starts_here
    with opened_processes(processes, config.run) as opened:
        check_trials(config, search, opened, here=alone, given=given)
    if told is not None:
        if line := too_few_updates(scheduler, config, search):
            told(line)
        begun = "1 trial; Ray starts it" if samples == 1 else f"{samples} trials; Ray starts the first ones"
        told(f"{begun}, which may take half a minute")
    with quiet_ray_tune(), joined(address, modules_of(config, Given())):
        there = ray.cluster_resources()
        kept = kept_for_trial(config, search, at_once, there)
        machines = [machine["Resources"] for machine in ray.nodes() if machine["Alive"]]
        if waits := no_machine_fits(kept, machines):
            if alone:
                raise ConfigError(waits)
            if told is not None:
                told(f"{waits}; or the trials wait until a larger one joins")
        settings = Settings()
        with _kept_by_ray(folder) as storage, Interrupts(patience=1) as interrupts:
            tuner = ray.tune.Tuner(
                ray.tune.with_resources(trainable(_here(config), folder, given), kept),
                param_space={part.name: domain(part) for part in search},
                tune_config=ray.tune.TuneConfig(
                    metric=METRIC,
                    mode="max",
                    num_samples=samples,
                    scheduler=scheduling,
                    search_alg=proposing,
                    max_concurrent_trials=at_once or trials_that_fit(config, search, there),
                    trial_dirname_creator=lambda trial: str(trial.trial_id),
                ),
                run_config=ray.tune.RunConfig(
                    name="trials",
                    storage_path=str(storage),
                    verbose=0,
                    # Otherwise a trial that is stopped learns on until it has a checkpoint, and fails after a minute
                    # without one. Nobody reads that checkpoint: the run writes its own.
                    checkpoint_config=ray.tune.CheckpointConfig(checkpoint_at_end=False),
                    callbacks=[settings, *([Teller(told, folder)] if told else [])],
                    stop=Interrupted(interrupts),
                ),
            )
            return Tuned(
                _ranked(tuner.fit(), settings.given, search, folder, config.run.timesteps), interrupts.count > 0
            )


@contextlib.contextmanager
def _kept_by_ray(folder: Path) -> Iterator[Path]:
    """A hidden folder beside the trials for what Ray Tune keeps while they go on. It is removed at the end.

    In population-based training each machine writes checkpoints there for the others, so all of them must share it, as
    they share the log directory.

    Raises:
        RunFolderError: it cannot be made.
    """
    path = folder / f".tune-{secrets.token_hex(4)}"
    try:
        path.mkdir(parents=True)
    except OSError as error:
        why = error.strerror or error
        raise RunFolderError(f"log directory {folder} cannot be written: {why}; give another --log_dir") from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _here(config: Config) -> Config:
    """The config of trials. Those that use machines of a cluster use this one."""
    if config.run.runtime != "ray":
        return config
    return Config(replace(config.run, address=cluster_address()), config.algorithm)


def _ranked(
    results: Any,  # noqa: ANN401 - Ray's own type
    given: Mapping[str, Mapping[str, Any]],
    search: Sequence[Search],
    folder: Path,
    timesteps: int,
) -> list[Trial]:
    trials = [_trial(result, given, search, folder, timesteps) for result in results]
    low = float("-inf")

    def worth(one: Trial) -> tuple[bool, float, float]:
        return one.error is None, low if one.evaluation is None else one.evaluation, one.mean_return

    return sorted(trials, key=worth, reverse=True)


def _trial(
    result: Any,  # noqa: ANN401 - Ray's own type
    given: Mapping[str, Mapping[str, Any]],
    search: Sequence[Search],
    folder: Path,
    timesteps: int,
) -> Trial:
    found = result.metrics or {}
    name = str(found.get("trial_id", Path(result.path).name))
    output = folder / name / OUTPUT
    # Ray says no error of a trial whose run fails while all trials are stopped.
    error = failure_in(output) if result.error is None else reason_of(str(result.error))
    # Ray's result of a trial that has reported nothing, or never began, lacks its settings.
    config = result.config or given.get(name, {})
    # A trial that was stopped before its first report has a run as well, if it ran on this machine.
    run = found.get("run_folder") or next(reversed(list_runs(folder / name)), None)
    found = up_to_date(found, None if run is None else Path(run))
    played = int(found.get("steps", 0)) >= config.get("timesteps", timesteps)
    return Trial(
        name,
        {part.name: config.get(part.name) for part in search},
        int(found.get("steps", 0)),
        float(found.get(METRIC, float("-inf"))),
        found.get("evaluation"),
        error,
        None if run is None else Path(run),
        output if output.exists() else None,
        begun="steps" in found or output.exists(),
        played=played,
        not_evaluated=without_evaluation(output) if played else "",
    )
