"""What Ray Tune calls schedulers and searchers, for the ranges that a user searches. Starts nothing."""

import importlib.util
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import ray.tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, PopulationBasedTraining
from ray.tune.search.optuna import OptunaSearch

from penstock.config.fields import field_table
from penstock.config.schema import RunConfig
from penstock.config.whole import Config
from penstock.errors import ConfigError
from penstock.tune.search import Search

__all__ = ["METRIC", "Scheduler", "Searcher", "domain", "saved_often", "scheduler_of", "searcher_of", "too_few_updates"]

METRIC = "return"
SHARE_BEFORE_STOP = 0.1
"""ASHA stops no trial before it has done this share of its timesteps."""
EXPLOIT_SHARE = 0.1
"""In population-based training, weak trials take over strong ones each time after this share of the timesteps."""
SAVES_BEFORE_EXPLOIT = 10
"""Checkpoints that a trial writes in that time. A copy goes on from the latest one, and lacks what came after it."""
LEAST_UPDATES = 4
"""A trial with fewer updates is looked at once or twice, and then most of its timesteps are played."""
Scheduler = Literal["random", "asha", "pbt"]
Searcher = Literal["random", "optuna"]


def domain(part: Search) -> Any:  # noqa: ANN401 - Ray's own type
    """The range or the list of a searched setting, as Ray samples it."""
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


def scheduler_of(kind: Scheduler, config: Config, search: Sequence[Search]) -> Any:  # noqa: ANN401 - Ray's own type
    """Ray's scheduler of this kind.

    Raises:
        ConfigError: a searched setting cannot change while a run goes on (``pbt``).
    """
    steps = config.run.timesteps
    if kind == "asha":
        grace = max(1, int(steps * SHARE_BEFORE_STOP))
        return _Asha(time_attr="steps", max_t=2 * steps, grace_period=grace, reduction_factor=3)
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


class _Asha(ASHAScheduler):  # type: ignore[misc]
    """Judges no trial before its first episode has ended. Its return is minus infinity until then."""

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:  # noqa: ANN401
        """Whether a trial goes on, by its latest report."""
        decision: str = super().on_trial_result(tune_controller, trial, _with_finite_return(result))
        return decision

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:  # noqa: ANN401
        """A trial has ended."""
        super().on_trial_complete(tune_controller, trial, _with_finite_return(result))


def _with_finite_return(result: dict[str, Any]) -> dict[str, Any]:
    """A report without its return if no episode has ended. Ray looks at no report without what it compares."""
    known = math.isfinite(result.get(METRIC, 0.0))
    return result if known else {name: value for name, value in result.items() if name != METRIC}


def _mutation(part: Search) -> Any:  # noqa: ANN401 - Ray's own type
    # Ray multiplies a value of a domain, whatever its kind. In a list it goes to the value before or behind.
    return list(part.values) if part.kind == "choice" else domain(part)


def _within(search: Sequence[Search]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Takes changed settings back into their ranges. Ray multiplies by 0.8 or 1.2 and knows no bounds."""
    ranges: dict[str, tuple[Any, ...]] = {part.name: part.values for part in search if part.kind != "choice"}

    def clamped(settings: dict[str, Any]) -> dict[str, Any]:
        return settings | {name: min(max(settings[name], low), high) for name, (low, high) in ranges.items()}

    return clamped


def searcher_of(kind: Searcher, scheduler: Scheduler, seed: int) -> Any:  # noqa: ANN401 - Ray's own type
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


def too_few_updates(kind: Scheduler, config: Config, search: Sequence[Search]) -> str:
    """One line if the scheduler cannot do its work, because a trial reports too seldom; else empty.

    A trial reports after each update but the last. Nothing is said if algorithms are searched: each has updates of its
    own size.
    """
    if any(part.name == "algo" for part in search):
        return ""
    rows = config.run.num_envs * _most_steps(config, search)
    updates = -(-config.run.timesteps // rows)
    if kind == "random" or updates >= LEAST_UPDATES:
        return ""
    what = {"asha": "stops hardly any", "pbt": "copies hardly any"}[kind]
    count = "1 update" if updates == 1 else f"{updates} updates"
    return (
        f"--scheduler {kind} {what} trial: --timesteps {config.run.timesteps} are {count} of {rows:,} steps, and a "
        "trial is looked at between two; give more --timesteps, or fewer --num_envs or --num_steps"
    )


def saved_often(config: Config, search: Sequence[Search]) -> Config:
    """The config of trials that go on as copies of each other: each has recent checkpoints."""
    most = _most_steps(config, search)
    often = max(1, _between_exploits(config) // (config.run.num_envs * most * SAVES_BEFORE_EXPLOIT))
    run = replace(config.run, save_interval=min(config.run.save_interval, often))
    return Config(run, config.algorithm)


def _most_steps(config: Config, search: Sequence[Search]) -> int:
    """The most steps that each lane of a trial gives to an update."""
    searched = [value for part in search if part.name == "num_steps" for value in part.values]
    return max([value for value in searched if isinstance(value, int)], default=config.algorithm.num_steps)


def _between_exploits(config: Config) -> int:
    """Steps after which a trial is looked at in population-based training."""
    return max(1, int(config.run.timesteps * EXPLOIT_SHARE))
