"""Finds the mistakes that all trials of a search have in common, before Ray starts. Trains nothing."""

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from penstock.config.resolve import one_machine
from penstock.config.whole import Config
from penstock.envs.given import Given
from penstock.errors import DeviceError, UsageError
from penstock.planning import check_new_run, plan, prepare
from penstock.processes.starts import Processes
from penstock.run.program import program_of
from penstock.tune.search import Search
from penstock.tune.trainable import config_with

__all__ = ["check_trials"]


def check_trials(
    config: Config,
    search: Sequence[Search],
    processes: Processes,
    *,
    here: bool,
    given: Collection[str] | None = None,
) -> None:
    """Check that some trial can begin, as ``penstock train`` checks its run: the environment is opened once.

    If the trial with the first value of each searched setting is refused, the one with the last values is tried, too.
    If that is not refused, some values do not go together, which is no mistake of all trials.

    Args:
        config: of every trial, save what is searched.
        search: the searched settings.
        processes: one of them opens the environment.
        here: whether this machine runs the trials. Another one may have the GPU that they need.
        given: as for `config_with`.

    Raises:
        UsageError: of the trial with the first values.
    """
    first, last = ({part.name: part.values[place] for part in search} for place in (0, -1))
    try:
        _check(config_with(config, first, given), processes, here=here)
    except UsageError:
        if last != first:
            with contextlib.suppress(UsageError):
                _check(config_with(config, last, given), processes, here=here)
                return
        raise


def _check(trial: Config, processes: Processes, *, here: bool) -> None:
    try:
        prepared = prepare(trial, processes, Given(), one_machine, partial(check_new_run, processes=processes))
    except DeviceError:
        if here:
            raise
        prepare(replace(trial, run=replace(trial.run, device="cpu")), processes)
        return
    program_of(plan(prepared, Path(trial.run.log_dir), quiet=True))
