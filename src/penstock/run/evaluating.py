"""Plays greedy episodes with a checkpoint of a run, at any time. Learns nothing, and writes no metrics."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from penstock.config.commands import EvalOptions
from penstock.config.fields import field_table
from penstock.config.opponents import check_versions_readable
from penstock.config.runtimes import check_runtime, runtime_of
from penstock.config.schema import RunConfig
from penstock.config.values import count_of, from_value
from penstock.envs.given import given_of
from penstock.errors import RunFolderError
from penstock.evaluation import Asked, Evaluation, judge, players_here, runtime_here
from penstock.paths import expanded
from penstock.processes.starts import Processes
from penstock.registry import RUNTIMES
from penstock.run.launching import cores_of, opened_processes
from penstock.saved_runs.episodes import list_episodes
from penstock.saved_runs.run_folder import RunFolder
from penstock.trained import open_trained, with_opponents
from penstock.types import EnvFactory

__all__ = ["evaluate"]


def evaluate(
    run: Path | str,
    *,
    episodes: int = RunConfig.eval_episodes,
    checkpoint: str | int | None = None,
    seed: int | None = None,
    num_workers: int | None = None,
    runtime: str | None = None,
    distributed: bool = RunConfig.distributed,
    address: str | None = RunConfig.address,
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
            core of this machine, or of the cluster.
        runtime: plays them. ``ray`` spreads the episodes over all machines of a Ray cluster. ``None``: ``ray`` if
            ``distributed``, else that of the run, or ``local`` if that is ``ray``.
        distributed: the same as ``runtime="ray"``.
        address: of the Ray cluster, as ``--address`` takes it.
        env: a callable that makes an environment, if the run's environment has no name.
        wrap: the run's wrappers, if one of them has no name.
        reward: the run's own reward, if it has no name. Returns are the environment's all the same.
        keep: folder for the episodes: ``episode-00000001.npz`` is the first one, with what the policy saw and did.
        quiet: no display.
        processes: as in `train`.

    Returns:
        Mean and standard deviation of the returns, the mean length, and the return of each episode.

    Raises:
        UsageError: no such run, a checkpoint that cannot be used, an environment that hangs; ``episodes`` or
            ``num_workers`` is no whole number of at least 1, or ``seed`` none of at least 0; ``keep`` holds episodes
            already, or cannot be written; there is no such cluster, or a machine of it cannot take part.
        BadDataError: an episode held NaN or infinity; with ``bad_numbers`` ``skip``: every episode did.
        NodeError: a process failed; also for an error of the environment.
        LostError: the head of the cluster was lost, or machines were lost again and again.

    Example:
        evaluation = penstock.evaluate("logs/pendulum", episodes=100, checkpoint="best")
        print(evaluation.mean_return, evaluation.std_return)
    """
    episodes = count_of(episodes, "episodes of evaluate")
    players = None if num_workers is None else count_of(num_workers, "num_workers of evaluate")
    seed = cast("int | None", from_value(field_table(EvalOptions)["seed"], seed, "seed of evaluate"))
    given, folder = given_of(env, wrap, reward), RunFolder.open(run)
    config = folder.read_config()
    playing = runtime_of(runtime, distributed=distributed, default=runtime_here(config.run))
    check_runtime(playing, distributed=distributed, address=address)
    check_versions_readable(config.run.opponents, playing, "evaluate on one machine")
    kept = None if keep is None else expanded(keep).resolve()
    if kept is not None:
        _make_for_episodes(kept)
    # The run's own runtime looks at the environment first.
    needing = config.run if RUNTIMES[config.run.runtime].processes else replace(config.run, runtime=playing)
    with (
        opened_processes(processes, needing) as opened,
        cores_of(playing, address, config, given) as cores,
    ):
        trained = open_trained(opened, folder, checkpoint, given, "evaluate")
        prepared = with_opponents(trained.prepared, folder.path)
        trained_run = prepared.config.run
        asked = Asked(
            episodes,
            trained_run.seed if seed is None else seed,
            seconds=None,
            quiet=quiet,
            players=players_here(trained_run, cores) if players is None else players,
            runtime=playing,
            keep=kept,
        )
        found = judge(opened, prepared, trained.published, asked, folder)
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
