"""READ ME FIRST: config -> plan -> program -> runtime.

``train`` is those calls in a row; the rest of this file is what comes before them (where to begin) and after them (the
final evaluation, the exported policy, the card).
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.config.schema import Config, RunConfig
from penstock.config.sources import from_mapping, from_toml, shown, with_changes
from penstock.endings import (
    differences,
    ended_early,
    leave_failed,
    log_final,
    nothing_learned,
    over_already,
    remove_unbegun,
    skipped,
    table_found,
    table_in_file,
    unbegun,
)
from penstock.envs.given import Given, given_of, named
from penstock.errors import EnvError, PenstockError
from penstock.evaluation import Evaluation, judge
from penstock.experiments.best import find_checkpoint
from penstock.experiments.card import write_card
from penstock.experiments.checkpoints import (
    Checkpoint,
    list_checkpoints,
    load_checkpoint,
    load_to_play,
    set_aside_after,
)
from penstock.experiments.run_folder import RunFolder
from penstock.planning import Prepared, check_fits, plan, prepare
from penstock.processes.interrupts import Interrupts
from penstock.processes.machine import check_room, shared_memory
from penstock.program.draw import draw as draw_program
from penstock.program.graph import Program, file_of_table
from penstock.program.plan import Plan
from penstock.registry import RUNTIMES, TOPOLOGIES, load
from penstock.replay.resumed import Found
from penstock.replay.resumed import begin as begin_file
from penstock.replay.table_file import settle
from penstock.scheduler.outcome import Outcome
from penstock.serving.export import export
from penstock.serving.policy import Policy
from penstock.types import Arrays, EnvFactory

__all__ = ["Result", "draw", "evaluate", "load_policy", "resume", "train"]


@dataclass(frozen=True)
class Result:
    """What a training run came to."""

    run_folder: Path
    evaluation: Evaluation | None
    """``None`` if the run was interrupted, or its evaluation given up: then a note says why."""
    policy: Policy
    steps: int
    updates: int
    interrupted: bool
    not_restored: int = 0
    """Lanes whose episode could not be restored by a resume, so that they began a new one."""
    notes: tuple[str, ...] = ()
    """Lines on why the run ended before its timesteps, or what a resume could not keep; mostly none."""


def train(config: Config | Mapping[str, Any], *, env: EnvFactory | None = None, quiet: bool = False) -> Result:
    """Train from the beginning, evaluate, export.

    Args:
        config: what to run, and how; settings by their names will do, and among them ``env``, ``wrap`` and ``reward``
            may hold callables.
        env: makes an environment, where it has no name that the config could say.
        quiet: no display; files only.

    Raises:
        UsageError: something that the user can mend, before any process starts where that is possible.
        NodeError: a part of the run failed while it ran.
        KeyboardInterrupt: it was interrupted before anything was learned; no folder is left of it.
    """
    if not isinstance(config, Config):
        settings, given = named(config, env)
        config = from_mapping(settings)
    else:
        given = Given(env)
    prepared = prepare(config, given)
    _check_room(prepared, Path(prepared.config.run.log_dir))
    folder = None
    try:
        # An interrupt waits until the folder is known here: else nobody would remove it.
        with Interrupts() as interrupts:
            folder = RunFolder.create(prepared.config.run.log_dir, prepared.profile.name, prepared.config.run.algo)
        _raise_if_any(interrupts)
        with folder.claim():
            folder.write_config(prepared.config)
            the_plan, _ = _begin_table(plan(prepared, folder.path, quiet=quiet), None)
            return _finish(prepared, folder, _launch(prepared, folder, the_plan))
    except KeyboardInterrupt:
        if folder is not None:
            remove_unbegun(folder)
        raise


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
) -> Result:
    """Continue a run in its own folder from its last checkpoint, or from the one that is named.

    Args:
        run: the run folder.
        checkpoint: a checkpoint of it: its name, its update number, ``best`` or ``latest``.
        timesteps: train up to so many steps, instead of what the run was told.
        settings: others that change from here on, by their names; the run's config keeps them.
        env: makes an environment, where the run's has no name.
        wrap: its wrappers, where one of them has no name.
        reward: its own reward, where that has no name.
        quiet: no display; files only.

    Raises:
        UsageError: no such run, a checkpoint that cannot be used, a setting that a run keeps; see ``train`` as well.
    """
    folder = RunFolder.open(Path(run))
    more = {} if timesteps is None else {"timesteps": timesteps}
    config = with_changes(from_toml(folder.config_path), {**(settings or {}), **more})
    given = given_of(env, wrap, reward)
    with _asking_for_objects(folder, config.run, given, "resume"):
        prepared = prepare(config, given)
        begin = load_checkpoint(find_checkpoint(folder.path, checkpoint), prepared.identity())
        check_fits(prepared, begin)
        _check_room(prepared, folder.path)
    over = over_already(prepared.config.run, folder.path, begin.arrays)
    with folder.claim():
        the_plan, found = _begin_table(plan(prepared, folder.path, quiet=quiet, begin=begin), begin)
        if not over:
            folder.write_config(prepared.config)
        set_aside_after(folder.path, int(begin.manifest["update"]))
        folder.clear_trace()
        begun_anew = sum(start.position is None for start in the_plan.starts)
        result = _finish(prepared, folder, _launch(prepared, folder, the_plan), begun_anew)
    changed = (*differences(begin.manifest, prepared.manifest()), *table_found(prepared.spec, begin.manifest, found))
    return replace(result, notes=over or (*changed, *result.notes))


def evaluate(
    run: Path | str,
    *,
    episodes: int = 100,
    checkpoint: str | None = None,
    seed: int | None = None,
    env: EnvFactory | None = None,
    wrap: Sequence[Any] | None = None,
) -> Evaluation:
    """Play greedy episodes with a run's last checkpoint, or the one that is named; ``env`` and ``wrap`` as in `resume`.

    Raises:
        UsageError: no such run, a checkpoint that cannot be used.
    """
    prepared, policy, name = _load(run, checkpoint, given_of(env, wrap), "evaluate")
    found = judge(prepared, policy, episodes, prepared.config.run.seed if seed is None else seed)
    return replace(found, checkpoint=name)


def load_policy(
    run: Path | str,
    *,
    checkpoint: str | None = None,
    env: EnvFactory | None = None,
    wrap: Sequence[Any] | None = None,
) -> Policy:
    """The policy of a run's last checkpoint, or of the one that is named; ``env`` and ``wrap`` as in `resume`.

    Raises:
        UsageError: no such run, a checkpoint that cannot be used.
    """
    return _load(run, checkpoint, given_of(env, wrap), "load_policy")[1]


def draw(config: Config, *, env: EnvFactory | None = None) -> str:
    """The program of a config as text: nodes, edges, placement. Starts nothing."""
    prepared = prepare(config, Given(env))
    program = _topology(plan(prepared, Path(prepared.config.run.log_dir), quiet=True))
    shared = shared_memory(program) / (1 << 20)
    return f"{draw_program(program)}\nmemory\n  {shared:,.1f} MiB shared, and what each process takes for itself"


def _check_room(prepared: Prepared, folder: Path) -> None:
    """Return if the machine has room for the run, as far as that can be known beforehand."""
    program = _topology(plan(prepared, folder, quiet=True))
    check_room(program, len(program.groups) if prepared.config.run.runtime == "local" else 0)


def _raise_if_any(interrupts: Interrupts) -> None:
    if interrupts.count:
        raise KeyboardInterrupt


def _begin_table(the_plan: Plan, checkpoint: Checkpoint | None) -> tuple[Plan, Found | None]:
    """See that the file of a table is there, where it has one: the plan with what is said of it, and what was in it."""
    table = file_of_table(_topology(the_plan))
    if table is None:
        return the_plan, None
    found = begin_file(*table, checkpoint)
    return replace(the_plan, told=(table_in_file(*table, found),)), found


@contextlib.contextmanager
def _asking_for_objects(folder: RunFolder, run: RunConfig, given: Given, call: str) -> Iterator[None]:
    """Where something of a run that exists is not found, because it had no name to find it by, say so.

    Args:
        folder: of the run.
        run: its config.
        given: what the caller passed.
        call: the function of this package that was asked, for an error.
    """
    try:
        yield
    except EnvError as error:
        saved = list_checkpoints(folder.path)
        manifest = load_to_play(saved[-1]).manifest if saved else {}
        for name, what, form in (("env", "environment", ""), ("wrap", "wrappers", "[...]"), ("reward", "reward", "")):
            if manifest.get(f"{name}_by_value") and getattr(given, name) is None:
                raise EnvError(
                    f"the {what} of run {folder.name}, {shown(getattr(run, name))}, was given as an object and has no "
                    f"name to find it by; pass it again: penstock.{call}({str(folder.path)!r}, {name}={form or '...'})"
                ) from error
        raise


def _launch(prepared: Prepared, folder: RunFolder, the_plan: Plan) -> Outcome:
    """The three calls: plan to program, program to processes. A run that fails leaves a card that says so."""
    program = _topology(the_plan)
    table = file_of_table(program)
    try:
        outcome: Outcome = load(RUNTIMES[the_plan.run.runtime])(program)
        if table is not None:
            settle(table[0])
    except PenstockError as error:
        error.add_note(leave_failed(folder, prepared.config, error))
        raise
    return outcome


def _topology(the_plan: Plan) -> Program:
    """The program of a plan, by the data pattern that its algorithm and its sync mode ask for."""
    pattern = the_plan.spec.topology
    program: Program = load(TOPOLOGIES[f"async_{pattern}" if the_plan.run.sync_mode == "non_blocking" else pattern])(
        the_plan
    )
    return program


def _finish(prepared: Prepared, folder: RunFolder, outcome: Outcome, begun_anew: int = 0) -> Result:
    """What comes after the last update: export, card, evaluation."""
    record, run = outcome.record, prepared.config.run
    if not record or unbegun(folder):
        raise KeyboardInterrupt
    policy = _policy(prepared, record)
    published = {spec.name: record[spec.name] for spec in prepared.spec.published()}
    export(folder.path, prepared.profile.spaces, prepared.spec.policy, published)
    steps, updates = int(record["steps"]), int(record["update"])
    # Twice: an evaluation may be long, or be interrupted, and the run is of use without it.
    write_card(folder, prepared.config, steps, updates, None)
    evaluation: Evaluation | None = None
    given_up: tuple[str, ...] = ()
    if not outcome.interrupted:
        try:
            evaluation = judge(prepared, policy, run.eval_episodes, run.seed)
        except EnvError as error:
            given_up = (str(error),)
    if evaluation is not None:
        log_final(folder.path, evaluation, updates, steps, float(record["elapsed_s"]))
        write_card(folder, prepared.config, steps, updates, evaluation)
    not_restored = begun_anew + sum(counts["not_restored"] for counts in outcome.counters.values())
    early = () if outcome.interrupted else (*ended_early(run, record), *nothing_learned(prepared.spec, record))
    notes = (*skipped(outcome.counters), *given_up, *early)
    return Result(folder.path, evaluation, policy, steps, updates, outcome.interrupted, not_restored, notes)


def _load(run: Path | str, checkpoint: str | None, given: Given, call: str) -> tuple[Prepared, Policy, str]:
    """What a run was trained on, its policy, and the name of the checkpoint that it is from."""
    folder = RunFolder.open(Path(run))
    config = from_toml(folder.config_path)
    # On the CPU: whoever plays need not have the device that the run was trained on.
    with _asking_for_objects(folder, config.run, given, call):
        prepared = prepare(replace(config, run=replace(config.run, device="cpu")), given)
    path = find_checkpoint(folder.path, checkpoint)
    saved = load_to_play(path, prepared.identity())
    check_fits(prepared, saved)
    return prepared, _policy(prepared, saved.arrays), path.name


def _policy(prepared: Prepared, record: Arrays) -> Policy:
    backend = load(prepared.inference.build)(*prepared.inference.arguments)
    return Policy(prepared.profile.spaces, prepared.spec.policy, backend, record)
