"""READ ME FIRST: config -> plan -> program -> runtime.

`train` only reads its arguments; `_train` makes these calls in a row. What `_train` calls follows in that order. Then
come `resume`, and what evaluates, loads or draws a run.
"""

import contextlib
import inspect
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Never

from penstock.config.commands import TrainOptions
from penstock.config.fields import field_table
from penstock.config.schema import RunConfig
from penstock.config.sources import from_mapping, with_changes
from penstock.config.values import count_of, from_value
from penstock.config.whole import Config
from penstock.envs.games import is_game
from penstock.envs.given import Given, given_of, named
from penstock.errors import BadDataError, BundleError, ConfigError, EnvError, NodeError, RunFolderError, UsageError
from penstock.evaluation import Asked, Evaluation, judge, players_after, players_here
from penstock.metrics.final import log_final
from penstock.metrics.run_log import add_to_log
from penstock.notes import (
    differences,
    ended_early,
    evaluation_given_up,
    evaluation_interrupted,
    failure,
    nothing_learned,
    nothing_to_do,
    skipped_rollouts,
    stale_rows,
    table_differences,
    table_in_file,
    table_in_memory,
    without_effect,
)
from penstock.paths import expanded
from penstock.planning import Prepared, check_fits, check_functions, check_ports, check_sequences, plan, prepare
from penstock.planning.own_modules import modules_of
from penstock.processes.interrupts import Interrupts
from penstock.processes.machine import check_machine, shared_memory, table_memory
from penstock.processes.starts import Processes
from penstock.program.draw import draw as draw_program
from penstock.program.graph import Program, file_of_table
from penstock.program.plan import Plan
from penstock.registry import RUNTIMES, TOPOLOGIES, load
from penstock.replay.resumed import Found
from penstock.replay.resumed import begin as begin_file
from penstock.replay.table_file import settle
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.card import write_card
from penstock.saved_runs.checkpoints import (
    Checkpoint,
    load_checkpoint,
    set_aside_after,
)
from penstock.saved_runs.episodes import list_episodes
from penstock.saved_runs.launches import add_launch
from penstock.saved_runs.leftovers import is_unbegun, remove_if_unbegun, write_failed_card
from penstock.saved_runs.run_folder import RunFolder
from penstock.serving.bundle import BundlePolicy, is_bundle, read_bundle
from penstock.serving.export import LIBRARY, export
from penstock.serving.policy import Policy
from penstock.supervision.outcome import Outcome
from penstock.trained import asking_for_objects, open_trained, pointing_to_line, policy_of, published_of
from penstock.types import Arrays, EnvFactory

__all__ = ["Result", "draw", "evaluate", "load_policy", "resume", "train"]


@dataclass(frozen=True)
class Result:
    """The result of a training run."""

    run_folder: Path
    evaluation: Evaluation | None
    """``None`` if ``eval_episodes`` is 0, the run was interrupted, or its evaluation was given up. A note says why it
    was given up."""
    policy: Policy
    steps: int
    updates: int
    interrupted: bool
    not_restored: int = 0
    """Lanes that began a new episode because a resume could not restore theirs."""
    notes: tuple[str, ...] = ()
    """Lines on why the run ended before its timesteps, or on what a resume could not keep; mostly none."""


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

    Raises:
        UsageError: the user can correct it. Raised before any process starts, where that is possible. Also if there is
            a run of this name.
        NodeError: a node failed during the run.
        BadDataError: an episode of the final evaluation held NaN or infinity. The run itself is complete.
        KeyboardInterrupt: the run was interrupted before anything was learned, and its folder is removed; or its final
            evaluation was interrupted, and the run is complete.
    """
    if not isinstance(config, Config):
        settings, given = named(config, env)
        config = from_mapping(settings)
    else:
        given = Given(env)
    with _opened(processes, config.run) as opened:
        if run_name is not None:
            # A name that is taken is refused before the environment is opened.
            _free_folder(config.run, config.run.env, run_name)
        return _train(opened, config, given, run_name, quiet=quiet)


def _train(processes: Processes, config: Config, given: Given, run_name: str | None, *, quiet: bool) -> Result:
    """Settle the config, build the program, make the run folder, run the program, finish."""
    made = False
    try:
        _import_ahead(config.run)
        with contextlib.ExitStack() as cluster:
            # 1. Everything the config and the environment say, settled and checked.
            prepared = prepare(config, processes, given, cluster.enter_context(_counted(config, given)))
            check_sequences(prepared.config, prepared.spec)
            check_functions(prepared, processes)
            run = prepared.config.run
            # Another run may take the folder's name before it is made here.
            while not made:
                # 2. A plan, and from it the program: nodes, edges and where they run.
                folder = _free_folder(run, prepared.profile.name, run_name)
                program = _checked_on_machine(_program_of(plan(prepared, folder.path, quiet=quiet)), prepared)
                cluster.enter_context(_joined(program, run))
                # 3. The run folder. An interrupt waits until `made` is set: otherwise nobody would remove the folder.
                with Interrupts() as interrupts:
                    made = folder.make()
            _raise_if_interrupted(interrupts)
            with folder.claim():
                folder.become_latest()
                folder.write_config(prepared.config)
                add_launch(folder, None)
                program, _ = _begin_table(program, None)
                # 4. The run itself, by the runtime.
                outcome = _launch(processes, prepared, folder, program)
                cluster.close()
                # 5. The exported policy, the final evaluation, the card.
                return _logged(_finish(processes, prepared, folder, outcome, quiet=quiet))
    except UsageError:
        # For example, a machine of the cluster was refused. Nothing was learned, so there is nothing to resume.
        if made:
            remove_if_unbegun(folder)
        raise
    except KeyboardInterrupt:
        if made:
            remove_if_unbegun(folder)
        if made and folder.path.exists():
            raise
        raise KeyboardInterrupt("stopped before the first update; no run folder is kept") from None


@contextlib.contextmanager
def _opened(processes: Processes | None, run: RunConfig) -> Iterator[Processes]:
    """The processes of a call. They end with the ``with`` block, or at once if the runtime needs none."""
    with processes or Processes() as found:
        if not RUNTIMES[run.runtime].processes:
            found.close()
        yield found


def _import_ahead(run: RunConfig) -> None:
    """Import in a thread what is needed later in the run: this process is about to wait for the probe."""
    references = (RUNTIMES[run.runtime].launch, LIBRARY)
    threading.Thread(target=lambda: [load(reference) for reference in references]).start()


def _program_of(the_plan: Plan) -> Program:
    """Build the program of a plan, with the topology for its algorithm and sync mode.

    Raises:
        ConfigError: the algorithm has no topology for this sync mode.
    """
    pattern, mode = the_plan.learning.spec.topology, the_plan.run.sync_mode
    modes = TOPOLOGIES[pattern].modes
    if mode not in modes:
        others = " or ".join(modes)
        raise ConfigError(f"--algo {the_plan.run.algo} ({pattern}) does not run in {mode}; give --sync_mode {others}")
    program: Program = load(modes[mode])(the_plan)
    return program


def _checked_on_machine(program: Program, prepared: Prepared) -> Program:
    """Check that this machine has the memory, disk, files and ports that a program needs at least.

    Returns:
        The same program.

    Raises:
        ResourceError: the machine has too little of one of them, or a port is taken.
    """
    check_machine(program, len(program.groups) if RUNTIMES[prepared.config.run.runtime].processes else 0)
    check_ports(prepared.config.run)
    return program


def _counted(config: Config, given: Given) -> contextlib.AbstractContextManager[int | None]:
    """The cores of the cluster, joined for the ``with`` block, if the number of environment processes depends on them.

    Raises:
        ConfigError: as `_joined`.
        PenstockError: as `_joined`.
    """
    run = config.run
    counted = RUNTIMES[run.runtime].counted
    # Games connect to the launcher: such a run is on one machine.
    if counted is None or run.num_workers != "auto" or is_game(given.environment(run)):
        return contextlib.nullcontext()
    found: contextlib.AbstractContextManager[int | None] = load(counted)(run.address, modules_of(config, given))
    return found


def _joined(program: Program, run: RunConfig) -> contextlib.AbstractContextManager[None]:
    """Join the cluster for the ``with`` block, if the runtime uses one. Call it before the run folder is touched.

    Raises:
        ConfigError: there is no cluster, or it has no room; or its package is not installed.
        PenstockError: the cluster cannot be started on this machine.
    """
    joined = RUNTIMES[run.runtime].joined
    if joined is None:
        return contextlib.nullcontext()
    found: contextlib.AbstractContextManager[None] = load(joined)(program)
    return found


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


def _begin_table(program: Program, checkpoint: Checkpoint | None) -> tuple[Program, Found | None]:
    """Open or make the file of a replay table, if it has one.

    Returns:
        The program with a note about a large table for its monitor, and the rows found in the file.
    """
    table, found = file_of_table(program), None
    note = table_in_memory(table_memory(program))
    if table is not None:
        found = begin_file(*table, checkpoint)
        note = table_in_file(*table, found)
    if not note:
        return program, found
    monitor = program.node("monitor")
    settings = replace(monitor.settings, told=(*monitor.settings.told, note))
    return program.with_node(replace(monitor, settings=settings)), found


def _launch(processes: Processes, prepared: Prepared, folder: RunFolder, program: Program) -> Outcome:
    """Run a program to its end. A run that fails gets a card that says so, also if the user's own code has failed."""
    table = file_of_table(program)
    try:
        outcome: Outcome = load(RUNTIMES[prepared.config.run.runtime].launch)(program, processes)
        if table is not None:
            settle(table[0])
    except Exception as error:
        if not (isinstance(error, UsageError) and is_unbegun(folder)):
            with contextlib.suppress(RunFolderError):
                add_to_log(folder.path, f"failed: {failure(error)}")
            error.add_note(write_failed_card(folder, prepared.config, failure(error)))
        raise
    return outcome


def _finish(
    processes: Processes,
    prepared: Prepared,
    folder: RunFolder,
    outcome: Outcome,
    begun_anew: int = 0,
    *,
    had_ended: bool = False,
    quiet: bool,
) -> Result:
    """Everything after the last update: export, card, evaluation.

    Args:
        processes: play the evaluation.
        prepared: the run.
        folder: of the run.
        outcome: of the program.
        begun_anew: lanes whose episode a resume could not restore.
        had_ended: a resume had nothing left to learn, so the run did not end now.
        quiet: no display.
    """
    record, run = outcome.record, prepared.config.run
    if not record or is_unbegun(folder):
        raise KeyboardInterrupt
    policy = policy_of(prepared, record)
    published = published_of(prepared, record)
    no_file = _exported(prepared, folder, published)
    steps, updates = int(record["steps"]), int(record["update"])
    # The card is written here and after the evaluation: that may be long or interrupted, and the run is usable now.
    write_card(folder, prepared.config, steps, updates, None)
    evaluation: Evaluation | None = None
    given_up: tuple[str, ...] = ()
    if run.eval_episodes and not outcome.interrupted:
        try:
            asked = Asked(run.eval_episodes, run.seed, run.eval_seconds, quiet, players_after(run))
            evaluation = judge(processes, prepared, published, asked, folder.deaths)
        except (EnvError, NodeError) as error:
            given_up = (evaluation_given_up(error),)
        except BadDataError as error:
            with contextlib.suppress(RunFolderError):
                _log_end(folder.path, steps, updates, f"the evaluation failed: {failure(error)}")
            raise
        except KeyboardInterrupt:
            with contextlib.suppress(RunFolderError):
                _log_end(folder.path, steps, updates, evaluation_interrupted(folder.path))
            raise KeyboardInterrupt(evaluation_interrupted(folder.path)) from None
    if evaluation is not None:
        elapsed_s = float(record["elapsed_s"])
        log_final(folder.path, evaluation, updates, steps, elapsed_s, axis=run.tensorboard_axis)
        write_card(folder, prepared.config, steps, updates, evaluation)
    not_restored = begun_anew + sum(counts["not_restored"] for counts in outcome.counters.values())
    early: tuple[str, ...] = ()
    if not outcome.interrupted and not had_ended:
        early = (*ended_early(run, record, folder.path), *nothing_learned(prepared.spec, record))
    notes = (*no_file, *skipped_rollouts(outcome.counters), *stale_rows(run, record), *given_up, *early)
    return Result(
        run_folder=folder.path,
        evaluation=evaluation,
        policy=policy,
        steps=steps,
        updates=updates,
        interrupted=outcome.interrupted,
        not_restored=not_restored,
        notes=notes,
    )


def _logged(result: Result) -> Result:
    """Add the notes of a result to the run's log, and how the run ended. Returns the result."""
    ended = "stopped" if result.interrupted else "ended"
    _log_end(result.run_folder, result.steps, result.updates, *result.notes, ended=ended)
    return result


def _log_end(folder: Path, steps: int, updates: int, *notes: str, ended: str = "ended") -> None:
    add_to_log(folder, *notes, f"{ended} after {steps:,} steps, at update {updates:,}")


def _exported(prepared: Prepared, folder: RunFolder, published: Arrays) -> tuple[str, ...]:
    """Write ``policy.onnx``. Returns a line if the policy is a module that ONNX cannot express, else nothing."""
    try:
        export(folder.path, prepared.profile.spaces, prepared.spec.policy, published)
    except ConfigError as error:
        return (f"no policy.onnx: {error}",)
    return ()


def resume(
    run: Path | str,
    *,
    checkpoint: str | None = None,
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
        timesteps: new number of steps of the whole run.
        settings: name -> new value of other settings. They are written into the run's config.
        env: a callable that makes an environment, if the run's environment has no name.
        wrap: the run's wrappers, if one of them has no name.
        reward: the run's own reward, if it has no name.
        quiet: no display; files only.
        processes: as in `train`.
        unknown: refused, with what may be given.

    Raises:
        UsageError: no such run, a checkpoint that cannot be used, a setting that must not change; also as ``train``.
    """
    if unknown:
        raise _not_taken(resume, next(iter(unknown)))
    more = {} if timesteps is None else {"timesteps": timesteps}
    given = given_of(env, wrap, reward)
    folder = RunFolder.open(Path(run))
    # Claimed before anything is read: another process may go on with the run until then.
    with folder.claim():
        config = with_changes(folder.read_config(), {**(settings or {}), **more})
        with _opened(processes, config.run) as opened:
            return _resume(opened, folder, config, given, checkpoint, quiet=quiet)


def _resume(
    processes: Processes, folder: RunFolder, config: Config, given: Given, checkpoint: str | None, *, quiet: bool
) -> Result:
    _import_ahead(config.run)
    with contextlib.ExitStack() as cluster:
        with asking_for_objects(folder, config.run, given, "resume"), pointing_to_line(folder):
            prepared = prepare(config, processes, given, cluster.enter_context(_counted(config, given)))
            check_functions(prepared, processes)
            begin = load_checkpoint(find_checkpoint(folder.path, checkpoint), prepared.identity())
            check_fits(prepared, begin)
            the_plan = plan(prepared, folder.path, quiet=quiet, begin=begin)
        program = _checked_on_machine(_program_of(the_plan), prepared)
        over = nothing_to_do(prepared.config.run, folder.path, begin.arrays)
        cluster.enter_context(_joined(program, prepared.config.run))
        folder.become_latest()
        unused = without_effect(folder.read_config(), prepared.config)
        program, found = _begin_table(program, begin)
        if not over:
            folder.write_config(prepared.config)
        add_launch(folder, begin.path.name)
        set_aside_after(folder.path, int(begin.manifest["update"]))
        folder.clear_trace()
        begun_anew = sum(start.position is None for start in the_plan.starts)
        outcome = _launch(processes, prepared, folder, program)
    result = _finish(processes, prepared, folder, outcome, begun_anew, had_ended=bool(over), quiet=quiet)
    changed = differences(begin.manifest, prepared.manifest())
    of_table = table_differences(prepared.spec, begin.manifest, found)
    return _logged(replace(result, notes=(*(over or (*changed, *of_table, *unused)), *result.notes)))


def _not_taken(call: Callable[..., Any], name: str) -> ConfigError:
    """The error for a keyword that a call does not have, although a setting of the run may have its name."""
    *taken, _ = inspect.signature(call).parameters
    return ConfigError(
        f"{call.__name__} takes {', '.join(taken)}, not {name}; a setting of the run goes into settings: "
        f"settings={{{name!r}: ...}}"
    )


def evaluate(
    run: Path | str,
    *,
    episodes: int = RunConfig.eval_episodes,
    checkpoint: str | None = None,
    seed: int | None = None,
    num_workers: int | None = None,
    env: EnvFactory | None = None,
    wrap: Sequence[Any] | None = None,
    reward: Callable[..., Any] | None = None,
    keep: Path | str | None = None,
    quiet: bool = True,
    processes: Processes | None = None,
) -> Evaluation:
    """Play greedy episodes with a run's last checkpoint, or with the named one. There is no time limit.

    Args:
        run: the run folder.
        episodes: how many to play.
        checkpoint: a checkpoint of the run: its name, its update number, ``best`` or ``latest``.
        seed: seeds the episodes. ``None``: the run's seed, so the first ones are those of its final evaluation.
        num_workers: most processes that play. Episodes depend on their number only where environments reset themselves
            (EnvPool, PettingZoo). ``None``: as many as the run has environment processes, but no more than one for each
            core of this machine.
        env: a callable that makes an environment, if the run's environment has no name.
        wrap: the run's wrappers, if one of them has no name.
        reward: the run's own reward, if it has no name. Returns are the environment's all the same.
        keep: folder for the episodes: ``episode-00000001.npz`` is the first one, with what the policy saw and did.
        quiet: no display.
        processes: as in `train`.

    Raises:
        UsageError: no such run, a checkpoint that cannot be used, an environment that hangs; ``episodes`` or
            ``num_workers`` is no whole number of at least 1; ``keep`` holds episodes already, or cannot be written.
        BadDataError: an episode held NaN or infinity; with ``bad_numbers`` ``skip``: every episode did.
        NodeError: a process failed; also for an error of the environment.
    """
    episodes = count_of(episodes, "episodes of evaluate")
    players = None if num_workers is None else count_of(num_workers, "num_workers of evaluate")
    given, folder = given_of(env, wrap, reward), RunFolder.open(Path(run))
    kept = None if keep is None else expanded(keep).resolve()
    if kept is not None:
        _make_for_episodes(kept)
    with _opened(processes, folder.read_config().run) as opened:
        trained = open_trained(opened, folder, checkpoint, given, "evaluate")
        trained_run = trained.prepared.config.run
        asked = Asked(
            episodes,
            trained_run.seed if seed is None else seed,
            None,
            quiet,
            players_here(trained_run) if players is None else players,
            kept,
        )
        found = judge(opened, trained.prepared, trained.published, asked, folder.deaths)
    return replace(found, checkpoint=trained.checkpoint.name)


def _make_for_episodes(folder: Path) -> None:
    """Make the folder before the first episode is played.

    Raises:
        RunFolderError: it holds episodes already, or cannot be written.
    """
    if list_episodes(folder):
        raise RunFolderError(f"--keep {folder} holds episodes already; give a folder for new ones")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        why = error.strerror or error
        raise RunFolderError(f"--keep {folder} cannot be written: {why}; give another folder") from None


def load_policy(
    run: Path | str,
    *,
    checkpoint: str | None = None,
    precision: str | None = None,
    env: EnvFactory | None = None,
    wrap: Sequence[Any] | None = None,
    reward: Callable[..., Any] | None = None,
) -> Policy:
    """The policy of a run, or of a bundle that `penstock.export` has made of one.

    Args:
        run: a run folder, or the folder of a bundle.
        checkpoint: of a run: its name, its update number, ``best`` or ``latest``; ``None``: the latest.
        precision: of a bundle: ``fp32``, ``int8`` or ``fp16``; ``None``: the one that it was exported for.
        env: of a run: as in `resume`.
        wrap: of a run: as in `resume`.
        reward: of a run: as in `resume`.

    Raises:
        UsageError: no such run or bundle, a checkpoint or a bundle that cannot be used.
    """
    if not isinstance(run, str | Path):
        raise ConfigError(f"run is {run!r}; wanted the folder of a run or of a bundle")
    path = expanded(run)
    if is_bundle(path):
        if checkpoint is not None:
            raise BundleError(f"{path} is a bundle, which holds one checkpoint only; leave out checkpoint")
        bundle = read_bundle(path)
        return BundlePolicy(bundle, bundle.graph(precision))
    if precision is not None:
        raise ConfigError(f"precision {precision} is for bundles, and {path} is none; penstock export makes one")
    given, folder = given_of(env, wrap, reward), RunFolder.open(path)
    with Processes() as processes:
        trained = open_trained(processes, folder, checkpoint, given, "load_policy")
    return policy_of(trained.prepared, trained.arrays)


def draw(config: Config, *, env: EnvFactory | None = None) -> str:
    """The program of a config as text: nodes, edges, placement. Starts nothing."""
    with Processes() as processes:
        prepared = prepare(config, processes, Given(env))
    program = _program_of(plan(prepared, Path(prepared.config.run.log_dir), quiet=True))
    shared = shared_memory(program) / (1 << 20)
    return f"{draw_program(program)}\nmemory\n  {shared:,.1f} MiB shared, besides the memory of each process"
