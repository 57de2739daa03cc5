"""Continues a run in its own folder, from one of its checkpoints. Begins no new run: that is ``training.py``."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

from penstock.config.sources import to_toml, with_changes
from penstock.config.whole import Config
from penstock.envs.given import Given, given_of
from penstock.errors import ConfigError, NoClusterError
from penstock.notes import (
    changes,
    differences,
    goes_on_from,
    nothing_to_do,
    table_differences,
    unchanged,
    without_effect,
)
from penstock.planning import check_fits, check_functions, check_plan, plan, prepare
from penstock.processes.starts import Processes
from penstock.run.launching import begin_table, counted_cores, import_ahead, joined_cluster, launch, opened_processes
from penstock.run.program import checked_on_machine, program_of
from penstock.run.result import Result, finish, logged, telling_how_to_go_on
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint, set_aside_after
from penstock.saved_runs.launches import add_launch
from penstock.saved_runs.leftovers import check_goes_on_nowhere
from penstock.saved_runs.run_folder import RunFolder
from penstock.trained import asking_for_objects, pointing_to_line, with_opponents
from penstock.types import EnvFactory

__all__ = ["resume"]


def resume(
    run: Path | str,
    *,
    checkpoint: str | int | None = None,
    timesteps: int | None = None,
    settings: Mapping[str, Any] | None = None,
    env: EnvFactory | None = None,
    wrap: Sequence[Any] | None = None,
    reward: Callable[..., Any] | None = None,
    quiet: bool = False,
    processes: Processes | None = None,
    **unknown: Never,
) -> Result:
    """Continue a run in its own folder, from its last checkpoint or from the named one.

    Args:
        run: the run folder.
        checkpoint: a checkpoint of the run: its name, its update number, ``best`` or ``latest``.
        timesteps: new number of environment steps of the whole run, those before the resume included.
        settings: name -> new value of other settings. They are written into the run's config.
        env: a callable that makes an environment, if the run's environment has no name.
        wrap: the run's wrappers, if one of them has no name.
        reward: the run's own reward, if it has no name.
        quiet: no display; files only.
        processes: as in `train`.
        unknown: refused, with what may be given.

    Returns:
        As `train`. Steps and updates are those of the whole run.

    Raises:
        UsageError: no such run, a checkpoint that cannot be used, a setting that must not change; also as ``train``.

    Example:
        result = penstock.resume("logs/pendulum", timesteps=2_000_000, settings={"lr": 1e-4})
    """
    if unknown:
        raise _not_taken(resume, next(iter(unknown)))
    if timesteps is not None and "timesteps" in (settings or {}):
        raise ConfigError("timesteps stands in the settings, too; leave out one of the two")
    more = {} if timesteps is None else {"timesteps": timesteps}
    given = given_of(env, wrap, reward)
    folder = RunFolder.open(run)
    # Claimed before anything is read: another process may go on with the run until then.
    with folder.claim(), telling_how_to_go_on(folder):
        check_goes_on_nowhere(folder)
        config = with_changes(folder.read_config(), {**(settings or {}), **more})
        with opened_processes(processes, config.run) as opened:
            return _resume(opened, folder, config, given, checkpoint, quiet=quiet)


def _resume(
    processes: Processes, folder: RunFolder, config: Config, given: Given, checkpoint: str | int | None, *, quiet: bool
) -> Result:
    """Settle the changed config, read the checkpoint, run the program, finish. The steps are those of a new run."""
    import_ahead(config.run)
    with _offering_this_machine(), contextlib.ExitStack() as cluster:
        # 1. The config, settled and checked, and the checkpoint, which has to fit it.
        with asking_for_objects(folder, config.run, given, "resume"), pointing_to_line(folder):
            prepared = prepare(config, processes, given, counted_cores(cluster, config, given), check_plan)
            check_functions(prepared, processes)
            prepared = with_opponents(prepared, folder.path)
            saved = load_checkpoint(find_checkpoint(folder.path, checkpoint), prepared.identity())
            check_fits(prepared, saved)
            planned = plan(prepared, folder.path, quiet=quiet, begin=saved)
        # 2. What the user is told: where the run goes on and with which changes, or that nothing is left to do.
        before = folder.read_config()
        nothing_left = nothing_to_do(prepared.config.run, folder.path, saved.arrays)
        if nothing_left:
            nothing_left += unchanged(before, config, prepared.config, nothing_left[0])
            planned = replace(planned, settings=to_toml(before))
        else:
            title, *others = planned.first_lines
            from_where = goes_on_from(saved, prepared.config.run.timesteps)
            planned = replace(
                planned, first_lines=(title, from_where, *others, *changes(before, config, prepared.config))
            )
        program = checked_on_machine(program_of(planned), prepared)
        alone = cluster.enter_context(joined_cluster(program, prepared.config.run))
        # 3. The run folder.
        folder.become_latest()
        unused = without_effect(before, prepared.config)
        program, rows_found = begin_table(program, saved, alone=alone)
        if not nothing_left:
            folder.write_config(prepared.config)
        kept_config = before if nothing_left else prepared.config
        steps = int(saved.manifest["steps"])
        code_changed = add_launch(folder, saved.path.name, kept_config.run, steps, prepared.own_modules())
        set_aside_after(folder.path, int(saved.manifest["update"]))
        folder.clear_trace()
        # What it says is not true any more once the run has learned more. The end of the run writes another one.
        folder.card_path.unlink(missing_ok=True)
        begun_anew = sum(start.position is None and start.rollout > 0 for start in planned.starts)
        # 4. The run itself. One with nothing left to do ends at once, with the record that its evaluation needs.
        outcome = launch(processes, prepared, folder, program)
    # 5. The exported policy, the final evaluation, the card.
    result = finish(
        processes,
        prepared,
        folder,
        outcome,
        begun_anew,
        card_config=kept_config,
        episodes_before=int(saved.arrays["episodes"]),
        had_ended=bool(nothing_left),
        quiet=quiet,
    )
    changed = differences(saved.manifest, prepared.manifest())
    # The run itself says first what it has found of rows that lie with its learners.
    with_learners = prepared.config.run.table_on == "learners"
    of_table = () if with_learners else table_differences(prepared.spec, saved.manifest, rows_found)
    return logged(
        replace(result, notes=(*(nothing_left or (*changed, *of_table, *unused)), *code_changed, *result.notes))
    )


@contextlib.contextmanager
def _offering_this_machine() -> Iterator[None]:
    """Let a NoClusterError say that a run of a cluster can go on without one."""
    try:
        yield
    except NoClusterError as error:
        raise NoClusterError(f"{error}; --runtime local goes on with the run on this machine alone") from error


def _not_taken(call: Callable[..., Any], name: str) -> ConfigError:
    """The error for a keyword that a call does not have, although a setting of the run may have its name."""
    *taken, _ = inspect.signature(call).parameters
    return ConfigError(
        f"{call.__name__} takes {', '.join(taken)}, not {name}; a setting of the run goes into settings: "
        f"settings={{{name!r}: ...}}"
    )
