"""What a trial takes of the machine or the cluster, and how many fit. Imports no Ray."""

import math
from collections.abc import Mapping, Sequence

from penstock.config.whole import Config
from penstock.tune.search import Search

__all__ = ["kept_for_trial", "no_machine_fits", "trials_that_fit"]

_LEAST_CORES = 0.001
"""Ray takes no trial that asks for nothing."""


def kept_for_trial(
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


def no_machine_fits(kept: Mapping[str, float], machines: Sequence[Mapping[str, float]]) -> str | None:
    """What to say if no machine has the cores that Ray keeps for a trial; ``None`` if one has.

    A trial is one process for Ray, so it never spans machines.

    Args:
        kept: what `kept_for_trial` gave.
        machines: what each machine of the cluster has, by Ray's names.
    """
    asked, most = kept["cpu"], max((one.get("CPU", 0.0) for one in machines), default=0.0)
    if asked <= most:
        return None
    return (
        f"no machine has room for a trial: each asks for {asked:g} cores (--num_workers), and the largest machine has "
        f"{most:g}; give --num_workers {most:g} or less"
    )


def trials_that_fit(config: Config, search: Sequence[Search], there: Mapping[str, float]) -> int | None:
    """How many trials fit into the cluster at once with what their runs ask for; ``None`` if they ask for nothing."""
    names = {"cpu": "CPU", "gpu": "GPU"}
    fitting = [there.get(names.get(name, name), 0.0) // amount for name, amount in _claimed(config, search).items()]
    return max(1, int(min(fitting))) if fitting else None


def _claimed(config: Config, search: Sequence[Search]) -> dict[str, float]:
    """Resources that the run of a trial asks the cluster for itself (``--resources``), all its nodes together."""
    asked = {} if config.run.resources is None else config.run.resources.asked
    workers, policies = _most_workers(config, search), _most("policy_nodes", config.run.policy_nodes, search)
    # Each environment process may be on a machine of its own, which has all policy nodes.
    counts = {"env": workers, "learner": _most("learners", config.run.learners, search), "policy": workers * policies}
    claimed: dict[str, float] = {}
    for kind, amounts in asked.items():
        for name, amount in amounts.items():
            claimed[name] = claimed.get(name, 0.0) + amount * counts[kind]
    return claimed


def _most_workers(config: Config, search: Sequence[Search]) -> int:
    """The most environment processes that a trial may have. Ray reserves a core for each."""
    return _most("num_workers", config.run.num_workers, search)


def _most(name: str, given: int | str, search: Sequence[Search]) -> int:
    """The largest number that a trial may have for a setting; 1 if no number is given.

    Args:
        name: of the setting.
        given: its value, if it is not searched.
        search: the searched settings.
    """
    searched = [value for part in search if part.name == name for value in part.values]
    return max((count for count in searched or [given] if isinstance(count, int)), default=1)
