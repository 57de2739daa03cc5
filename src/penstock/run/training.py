"""READ ME FIRST: config -> plan -> program -> runtime -> result.

`train` only reads its arguments; `_train` makes these calls in a row. The calls themselves are in ``program.py``,
``launching.py`` and ``result.py`` beside it. A run that exists is continued elsewhere (``resuming.py``).
"""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.config.commands import TrainOptions
from penstock.config.fields import field_table
from penstock.config.schema import RunConfig
from penstock.config.sources import from_mapping
from penstock.config.values import from_value
from penstock.config.whole import Config
from penstock.envs.given import Given, named
from penstock.errors import UsageError
from penstock.planning import beginning, check_new_run, plan, prepare
from penstock.processes.interrupts import Interrupts
from penstock.processes.starts import Processes
from penstock.run.launching import begin_table, counted_cores, import_ahead, joined_cluster, launch, opened_processes
from penstock.run.program import checked_on_machine, program_of
from penstock.run.result import Result, finish, logged, telling_how_to_go_on
from penstock.saved_runs.beginnings import save_beginning
from penstock.saved_runs.launches import add_launch
from penstock.saved_runs.leftovers import remove_if_unbegun
from penstock.saved_runs.run_folder import RunFolder
from penstock.trained import with_opponents
from penstock.types import EnvFactory

__all__ = ["train"]


def train(
    config: Config | Mapping[str, Any],
    *,
    env: EnvFactory | None = None,
    run_name: str | None = None,
    quiet: bool = False,
    processes: Processes | None = None,
) -> Result:
    """Train from the beginning, evaluate, export.

    Args:
        config: a `Config`, or a mapping from setting names to values. In a mapping, ``env``, ``wrap`` and ``reward``
            may be callables.
        env: a callable that makes an environment, if the environment has no name.
        run_name: of the run, and of its folder in ``log_dir``; ``None``: environment, algorithm and time.
        quiet: no display; files only.
        processes: started earlier, so that they are ready sooner; this call ends them. ``None``: it starts its own.

    Returns:
        The run folder, the final evaluation and the trained policy.

    Raises:
        UsageError: the user can correct it. Raised before any process starts, where that is possible. Also if there is
            a run of this name.
        NodeError: a node failed during the run.
        BadDataError: an episode of the final evaluation held NaN or infinity. The run itself is complete.
        KeyboardInterrupt: the run was interrupted before training began, and its folder is removed; or its final
            evaluation was interrupted, and the run is complete.

    Example:
        result = penstock.train({"env": "CartPole-v1", "num_steps": 128, "timesteps": 100_000})
        print(result.evaluation.mean_return, result.run_folder)
        action = result.policy([0.0, 0.0, 0.0, 0.0])
    """
    if not isinstance(config, Config):
        settings, given = named(config, env)
        config = from_mapping(settings)
    else:
        given = Given(env)
    with opened_processes(processes, config.run) as opened:
        # Refused before a cluster is joined, or the environment is opened.
        RunFolder.check_place(config.run.log_dir)
        if run_name is not None:
            _free_folder(config.run, config.run.env, run_name)
        return _train(opened, config, given, run_name, quiet=quiet)


def _train(processes: Processes, config: Config, given: Given, run_name: str | None, *, quiet: bool) -> Result:
    """Settle the config, build the program, make the run folder, run the program, finish."""
    made = False
    try:
        import_ahead(config.run)
        with contextlib.ExitStack() as cluster:
            # 1. Everything the config and the environment say, settled and checked.
            check = partial(check_new_run, processes=processes)
            prepared = prepare(config, processes, given, counted_cores(cluster, config, given), check)
            first = beginning(prepared)
            if first is not None:
                prepared = replace(prepared, remarks=(*prepared.remarks, first.remark))
            run = prepared.config.run
            # Another run may take the folder's name before it is made here.
            while not made:
                # 2. A plan, and from it the program: nodes, edges and where they run.
                folder = _free_folder(run, prepared.profile.name, run_name)
                prepared = with_opponents(prepared, folder.path)
                program = checked_on_machine(program_of(plan(prepared, folder.path, quiet=quiet)), prepared)
                alone = cluster.enter_context(joined_cluster(program, run))
                # 3. The run folder. An interrupt waits until `made` is set: otherwise nobody would remove the folder.
                with Interrupts() as interrupts:
                    made = folder.make()
            _raise_if_interrupted(interrupts)
            with folder.claim():
                folder.become_latest()
                folder.write_config(prepared.config)
                if first is not None:
                    save_beginning(folder, first.state, prepared.manifest())
                add_launch(folder, None, run, 0, prepared.own_modules())
                program, _ = begin_table(program, None, alone=alone)
                # 4. The run itself, by the runtime.
                outcome = launch(processes, prepared, folder, program)
                cluster.close()
                # 5. The exported policy, the final evaluation, the card.
                return logged(finish(processes, prepared, folder, outcome, card_config=prepared.config, quiet=quiet))
    except UsageError:
        # For example, a machine of the cluster was refused. Nothing was learned, so there is nothing to resume.
        if made:
            remove_if_unbegun(folder)
        raise
    except KeyboardInterrupt:
        if made:
            remove_if_unbegun(folder)
        if made and folder.path.exists():
            with telling_how_to_go_on(folder):
                raise
        raise KeyboardInterrupt("stopped before the first update; no run folder is kept") from None


def _free_folder(run: RunConfig, env: str, name: str | None) -> RunFolder:
    """A free folder for a new run: by its name, or else by its environment, its algorithm and the time.

    Raises:
        ConfigError: the name has other characters than a run's name may have.
        RunFolderError: the name is taken.
    """
    if name is None:
        return RunFolder.fresh(run.log_dir, env, run.algo)
    return RunFolder.named(run.log_dir, str(from_value(field_table(TrainOptions)["run_name"], name, "run_name")))


def _raise_if_interrupted(interrupts: Interrupts) -> None:
    if interrupts.count:
        raise KeyboardInterrupt
