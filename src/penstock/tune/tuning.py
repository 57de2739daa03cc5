"""Runs trials on Ray Tune: random search, ASHA, or population-based training."""

import importlib.util
import logging
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import ray.tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, PopulationBasedTraining
from ray.tune.search.optuna import OptunaSearch

from penstock.algorithm_package import find_algorithm
from penstock.cluster.machines import cluster_address, joined
from penstock.config.commands import TuneOptions
from penstock.config.fields import field_table
from penstock.config.schema import RunConfig
from penstock.config.sources import from_mapping, shown
from penstock.config.whole import Config
from penstock.envs.given import Given
from penstock.errors import ConfigError, PenstockError
from penstock.planning.own_modules import modules_named
from penstock.processes.interrupts import Interrupts
from penstock.saved_runs.run_folder import list_runs
from penstock.saved_runs.scratch import scratch_folder
from penstock.tune.search import Search
from penstock.tune.trial import FAILED, TrialRun

__all__ = ["Trial", "Tuned", "trainable", "tune"]

METRIC = "return"
SHARE_BEFORE_STOP = 0.1
"""ASHA stops no trial before it has done this share of its timesteps."""
EXPLOIT_SHARE = 0.1
"""In population-based training, weak trials take over strong ones each time after this share of the timesteps."""
_LEAST_CORES = 0.001
"""Ray takes no trial that asks for nothing."""
SAVES_BEFORE_EXPLOIT = 10
"""Checkpoints that a trial writes in that time. A copy goes on from the latest one, and lacks what came after it."""
Scheduler = Literal["random", "asha", "pbt"]
Searcher = Literal["random", "optuna"]


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
        told: called with a line for each trial that has ended.

    Returns:
        The trials, best first: by final evaluation, then by return. The first interrupt stops all of them, and each
        writes its last checkpoint, for which Ray gives it five seconds; the second one raises KeyboardInterrupt.

    Raises:
        ConfigError: nothing is searched, a searched setting cannot change while a run goes on (``pbt``), or the
            searcher is not installed or does not go with the scheduler.
    """
    if not search:
        raise ConfigError("nothing is searched; for example: --search lr=loguniform:1e-5:1e-2")
    for part in search:
        for value in part.values:
            # Fails now if a value does not fit the other settings.
            _with(config, {part.name: value})
    proposing = _proposing(searcher, scheduler, config.run.seed)
    if scheduler == "pbt":
        config = _saved_often(config, search)
    folder = (Path(config.run.log_dir) / name).resolve()
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    # `Interrupts` counts them in place of Ray's handler, which would not tell that there was one.
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
    with joined(address, _modules(config)):
        there = ray.cluster_resources()
        # The reason of a trial that fails stands in the table; Ray would show three tracebacks for each.
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        # Its advice is for those who write trainables.
        warnings.filterwarnings("ignore", message="Consider boosting PBT performance")
        with scratch_folder("penstock-tune-") as storage, Interrupts(patience=1) as interrupts:
            tuner = ray.tune.Tuner(
                ray.tune.with_resources(trainable(_here(config), folder), _kept(config, search, at_once, there)),
                param_space={part.name: _domain(part) for part in search},
                tune_config=ray.tune.TuneConfig(
                    metric=METRIC,
                    mode="max",
                    num_samples=samples,
                    scheduler=_scheduler(scheduler, config, search),
                    search_alg=proposing,
                    max_concurrent_trials=at_once or _room(config, search, there),
                    trial_dirname_creator=lambda trial: str(trial.trial_id),
                ),
                run_config=ray.tune.RunConfig(
                    name="trials",
                    storage_path=str(storage),
                    verbose=0,
                    callbacks=[_Teller(told)] if told else None,
                    stop=_Interrupted(interrupts),
                ),
            )
            return Tuned(_ranked(tuner.fit(), search, folder), interrupts.count > 0)


def _here(config: Config) -> Config:
    """The config of trials. Those that use machines of a cluster use this one."""
    if config.run.runtime != "ray":
        return config
    return Config(replace(config.run, address=cluster_address()), config.algorithm)


def _saved_often(config: Config, search: Sequence[Search]) -> Config:
    """The config of trials that go on as copies of each other: each has recent checkpoints."""
    searched = [value for part in search if part.name == "num_steps" for value in part.values]
    most: int = max([value for value in searched if isinstance(value, int)], default=config.algorithm.num_steps)
    often = max(1, _between_exploits(config) // (config.run.num_envs * most * SAVES_BEFORE_EXPLOIT))
    run = replace(config.run, save_interval=min(config.run.save_interval, often))
    return Config(run, config.algorithm)


def _between_exploits(config: Config) -> int:
    """Steps after which a trial is looked at in population-based training."""
    return max(1, int(config.run.timesteps * EXPLOIT_SHARE))


def _modules(config: Config) -> tuple[str, ...]:
    """The modules that all trials name."""
    run = config.run
    model = getattr(config.algorithm, "model", None)
    return modules_named(Given().environment(run), run.reward, find_algorithm(run.algo), model)


def trainable(config: Config, folder: Path) -> type:
    """A class for those who drive Ray Tune themselves. Its parameters are settings of a run.

    Args:
        config: of every run, save the parameters.
        folder: each trial makes a folder with its id there, with its run folder in it.

    Returns:
        A `ray.tune.Trainable`. It reports ``return``, ``steps`` and ``update``, and ``evaluation`` at the end.
    """
    # Ray Tune goes to another folder before it begins a trial.
    started_in, folder = Path.cwd(), folder.resolve()

    class Run(ray.tune.Trainable):  # type: ignore[misc]
        """One run."""

        def setup(self, settings: dict[str, Any]) -> None:
            self._trial = TrialRun(folder / self.trial_id, started_in)
            self._settings = dict(settings)
            self._begun = False

        def step(self) -> dict[str, Any]:
            if not self._begun:
                # Not in `setup`: a trial that takes over another one begins with a checkpoint.
                self._trial.train(_with(config, self._settings))
                self._begun = True
            found = self._trial.wait()
            run = self._trial.run_folder
            return {**found, "done": bool(found["done"]), "run_folder": None if run is None else str(run)}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            self._trial.save(Path(checkpoint_dir))

        def load_checkpoint(self, checkpoint_dir: str) -> None:
            copies = [path for path in Path(checkpoint_dir).iterdir() if (path / "checkpoints").is_dir()]
            if not copies:
                raise PenstockError(f"{FAILED}the trial that it takes over has left no checkpoint")
            self._trial.stop()
            self._trial.resume(copies[0], self._settings, _with(config, self._settings).run.timesteps)
            self._begun = True

        def cleanup(self) -> None:
            self._trial.stop()

    return Run


def _with(config: Config, settings: Mapping[str, Any]) -> Config:
    """The config of a trial. ``settings`` may hold any setting, also those that a resumed run must keep."""
    values = config.values()
    if settings.get("algo", config.run.algo) != config.run.algo:
        # Another algorithm has defaults of its own. Of this one's settings, only those off their default were given.
        values = {name: value for name, value in values.items() if name not in _at_their_defaults(config.algorithm)}
    given = {name: value for name, value in values.items() if value is not None}
    given |= settings
    if config.run.num_workers == "auto" and "num_workers" not in settings:
        # Trials share the machine: each takes one core, so that many run at once.
        given["num_workers"] = 1
    return from_mapping(given)


def _at_their_defaults(settings: Any) -> set[str]:  # noqa: ANN401 - each algorithm has its own class
    defaults = type(settings)()
    return {item.name for item in fields(settings) if getattr(settings, item.name) == getattr(defaults, item.name)}


def _most_workers(config: Config, search: Sequence[Search]) -> int:
    """The most environment processes that a trial may have. Ray reserves a core for each."""
    searched = [value for part in search if part.name == "num_workers" for value in part.values]
    return max((count for count in searched or [config.run.num_workers] if isinstance(count, int)), default=1)


def _kept(
    config: Config, search: Sequence[Search], at_once: int | None, there: Mapping[str, float]
) -> dict[str, float]:
    """What Ray keeps for each trial: its cores and its part of a GPU, without what its run itself asks Ray for.

    Args:
        config: of every trial.
        search: the searched settings.
        at_once: as `tune` takes it.
        there: what the cluster has, by Ray's names.
    """
    claimed, gpus = _claimed(config, search), there.get("GPU", 0.0)
    kept: dict[str, float] = {"cpu": _LEAST_CORES if "cpu" in claimed else _most_workers(config, search)}
    # ``cuda:1`` is a GPU that the user chose; where Ray keeps one for a trial, the trial sees only that one, as cuda:0.
    if gpus and config.run.device == "cuda" and config.run.runtime != "ray":
        kept["gpu"] = 1 / math.ceil((at_once or 1) / gpus)
    return kept


def _room(config: Config, search: Sequence[Search], there: Mapping[str, float]) -> int | None:
    """How many trials fit into the cluster at once with what their runs ask for; ``None`` if they ask for nothing."""
    names = {"cpu": "CPU", "gpu": "GPU"}
    fitting = [there.get(names.get(name, name), 0.0) // amount for name, amount in _claimed(config, search).items()]
    return max(1, int(min(fitting))) if fitting else None


def _claimed(config: Config, search: Sequence[Search]) -> dict[str, float]:
    """Resources that the run of a trial asks the cluster for itself (``--resources``), all its nodes together."""
    asked = {} if config.run.resources is None else config.run.resources.asked
    counts = {"env": _most_workers(config, search), "learner": config.run.learners}
    claimed: dict[str, float] = {}
    for kind, amounts in asked.items():
        for name, amount in amounts.items():
            claimed[name] = claimed.get(name, 0.0) + amount * counts[kind]
    return claimed


def _domain(part: Search) -> Any:  # noqa: ANN401 - Ray's own type
    match part.kind:
        case "choice":
            return ray.tune.choice(list(part.values))
        case "int":
            low, high = part.values
            # Ray leaves out the highest.
            return ray.tune.randint(low, int(str(high)) + 1)
        case "uniform":
            return ray.tune.uniform(*part.values)
        case "loguniform":
            return ray.tune.loguniform(*part.values)


def _scheduler(kind: Scheduler, config: Config, search: Sequence[Search]) -> Any:  # noqa: ANN401 - Ray's own type
    steps = config.run.timesteps
    if kind == "asha":
        grace = max(1, int(steps * SHARE_BEFORE_STOP))
        return ASHAScheduler(time_attr="steps", max_t=2 * steps, grace_period=grace, reduction_factor=3)
    if kind == "pbt":
        for part in search:
            field = field_table(RunConfig, type(config.algorithm))[part.name]
            if field.fixed:
                raise ConfigError(
                    f"--search {part.name}: with --scheduler pbt settings change while a run goes on, and this one "
                    f"must not, because {field.fixed}; give --scheduler asha"
                )
        return PopulationBasedTraining(
            time_attr="steps",
            perturbation_interval=_between_exploits(config),
            hyperparam_mutations={part.name: _mutation(part) for part in search},
            custom_explore_fn=_within(search),
        )
    return FIFOScheduler()


def _mutation(part: Search) -> Any:  # noqa: ANN401 - Ray's own type
    # Ray multiplies a value of a domain, whatever its kind. In a list it goes to the value before or behind.
    return list(part.values) if part.kind == "choice" else _domain(part)


def _within(search: Sequence[Search]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Takes changed settings back into their ranges. Ray multiplies by 0.8 or 1.2 and knows no bounds."""
    ranges: dict[str, tuple[Any, ...]] = {part.name: part.values for part in search if part.kind != "choice"}

    def clamped(settings: dict[str, Any]) -> dict[str, Any]:
        return settings | {name: min(max(settings[name], low), high) for name, (low, high) in ranges.items()}

    return clamped


def _proposing(kind: Searcher, scheduler: Scheduler, seed: int) -> Any:  # noqa: ANN401 - Ray's own type
    """What proposes the settings of trials; ``None``: Ray samples them.

    Raises:
        ConfigError: it is not installed, or does not go with the scheduler.
    """
    if kind == "random":
        return None
    if scheduler == "pbt":
        raise ConfigError("--searcher optuna does not go with --scheduler pbt, which changes settings by itself")
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("--searcher optuna needs Optuna; type: pip install 'penstock[optuna]'")
    logging.getLogger("optuna").setLevel(logging.ERROR)
    return OptunaSearch(metric=METRIC, mode="max", seed=seed)


def _ranked(results: Any, search: Sequence[Search], folder: Path) -> list[Trial]:  # noqa: ANN401 - Ray's own type
    trials = [_trial(result, search, folder) for result in results]
    low = float("-inf")
    return sorted(
        trials, key=lambda one: (low if one.evaluation is None else one.evaluation, one.mean_return), reverse=True
    )


def _trial(result: Any, search: Sequence[Search], folder: Path) -> Trial:  # noqa: ANN401 - Ray's own type
    found = result.metrics or {}
    config = result.config or {}
    error = None
    if result.error is not None:
        last = next((line for line in reversed(str(result.error).splitlines()) if line.strip()), "it failed")
        # Behind the names of exceptions that Ray and the trial have put before it.
        error = last.rpartition(FAILED)[2].removeprefix("penstock: error: ")
    name = str(found.get("trial_id", Path(result.path).name))
    # A trial that was stopped before its first report has a run as well, if it ran on this machine.
    run = found.get("run_folder") or next(reversed(list_runs(folder / name)), None)
    return Trial(
        name,
        {part.name: config.get(part.name) for part in search},
        int(found.get("steps", 0)),
        float(found.get(METRIC, float("-inf"))),
        found.get("evaluation"),
        error,
        None if run is None else Path(run),
    )


class _Interrupted(ray.tune.Stopper):  # type: ignore[misc]
    """Stops all trials in order once the user has asked for it."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    def __getstate__(self) -> dict[str, Any]:
        # Ray writes it beside the trials, to continue them. Nobody does.
        return {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether to stop this trial."""
        del trial_id, result
        return self._interrupts.count > 0

    def stop_all(self) -> bool:
        """Whether to stop all of them."""
        return self._interrupts.count > 0


class _Teller(ray.tune.Callback):  # type: ignore[misc]
    """Says a line for each trial that has ended."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self._told = told

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ANN401
        """A trial has ended, or was stopped."""
        del iteration, trials, info
        found = trial.last_result or {}
        settings = ", ".join(f"{name} {shown(value)}" for name, value in trial.config.items())
        mean = float(found.get(METRIC, float("-inf")))
        reached = f"return {mean:,.1f}" if math.isfinite(mean) else "no episode has ended"
        self._told(f"trial {trial.trial_id}: {reached} after {int(found.get('steps', 0)):,} steps ({settings})")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ANN401
        """A trial has failed."""
        del iteration, trials, info
        self._told(f"trial {trial.trial_id} failed")
