"""Shows a trained policy at work: greedy episodes as an animated picture, or in a window of the environment's own.

The environment is played in a process of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from penstock.config.commands import WatchOptions
from penstock.config.fields import field_table
from penstock.config.values import count_of, from_value
from penstock.envs.given import given_of
from penstock.errors import ConfigError, EnvError, RunFolderError
from penstock.metrics.report import Report
from penstock.metrics.tensorboard import TensorBoard
from penstock.nodes.contract import WORK_LIMIT_S
from penstock.paths import expanded
from penstock.processes.errand import Errand, call_apart
from penstock.processes.starts import Processes
from penstock.saved_runs.run_folder import RunFolder
from penstock.trained import Trained, open_trained, with_opponents
from penstock.types import EnvFactory

__all__ = ["Watched", "watch"]

PLAY_LIMIT_S = 3600.0
"""Longest time to play. A window may be looked at for long."""
NAME = "episodes.gif"
"""The picture of a run, if no other name is given; in its run folder."""
TAG = "episodes"
"""Its name in TensorBoard."""


@dataclass(frozen=True)
class Watched:
    """Episodes that were shown.

    Attributes:
        env: name of the environment.
        checkpoint: name of the checkpoint that played.
        returns: return of each episode that was shown to its end.
        lengths: steps of these episodes.
        picture: the animated picture; ``None``: a window showed them.
        is_cut: the picture was full before all episodes had ended.
    """

    env: str
    checkpoint: str
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    picture: Path | None
    is_cut: bool


def watch(
    run: Path | str,
    out: Path | str | None = None,
    *,
    episodes: int = WatchOptions.episodes,
    seconds: float = WatchOptions.seconds,
    window: bool = WatchOptions.window,
    checkpoint: str | int | None = None,
    seed: int | None = None,
    env: EnvFactory | None = None,
    wrap: Sequence[Any] | None = None,
    reward: Callable[..., Any] | None = None,
    processes: Processes | None = None,
) -> Watched:
    """Let a run's policy play greedy episodes, and show them.

    The picture is what the environment renders as ``rgb_array``, or else the image that it observes.

    Args:
        run: the run folder.
        out: the animated GIF to write; ``None``: ``episodes.gif`` in the run folder, and TensorBoard shows it at the
            step of the checkpoint.
        episodes: how many to play.
        seconds: how many seconds the picture may last. An episode that is longer is cut.
        window: let the environment open its own window (``render_mode`` ``human``) in place of a picture.
        checkpoint: a checkpoint of the run: its name, its update number, ``best`` or ``latest``.
        seed: seeds the episodes; ``None``: the run's seed, so they are the first ones of its final evaluation.
        env: a callable that makes an environment, if the run's environment has no name.
        wrap: the run's wrappers, if one of them has no name.
        reward: the run's own reward, if it has no name. Returns are the environment's all the same.
        processes: as in `penstock.train`.

    Returns:
        What was shown: returns, lengths, and where the picture lies.

    Raises:
        UsageError: an argument is out of range, no such run, a checkpoint that cannot be used, an environment without a
            picture or a window, a file that cannot be written.
        BadDataError: an episode held NaN or infinity.

    Example:
        watched = penstock.watch("logs/pendulum", "three.gif", episodes=3)
        print(watched.returns, watched.picture)
    """
    episodes = count_of(episodes, "episodes of watch")
    if window and out is not None:
        raise ConfigError(f"a window leaves no picture, so nothing would be written to {out}; leave out one of the two")
    table = field_table(WatchOptions)
    seconds = cast("float", from_value(table["seconds"], seconds, "seconds of watch"))
    seed = cast("int | None", from_value(table["seed"], seed, "seed of watch"))
    if out is not None and Path(out).suffix != ".gif":
        raise ConfigError(f"{out} does not end in .gif, which is what an animated picture is written as")
    given, folder = given_of(env, wrap, reward), RunFolder.open(run)
    path = folder.path / NAME if out is None else expanded(out)
    if not window and not path.parent.is_dir():
        raise RunFolderError(f"{path} cannot be written: there is no folder {path.parent}")
    if not window and path.is_dir():
        raise RunFolderError(f"{path} cannot be written: it is a folder")
    with processes or Processes() as opened:
        trained = open_trained(opened, folder, checkpoint, given, "watch")
        prepared = with_opponents(trained.prepared, folder.path)
        name = prepared.profile.name
        if prepared.profile.kind == "game":
            raise ConfigError(f"{name} is a game that connects to its run: serve the policy, and the game shows it")
        settings = trained.play_settings(prepared.env, 1, prepared.config.run.seed if seed is None else seed)
        function = f"penstock.nodes.evaluation.filming:{'show' if window else 'film'}"
        errand = Errand("player", function, f"environment {name}", "played", "playing", EnvError)
        length = () if window else (seconds,)
        asked = (settings, trained.published, episodes, *length, PLAY_LIMIT_S)
        found = call_apart(opened, errand, 2 * WORK_LIMIT_S + PLAY_LIMIT_S, *asked)
    if not window:
        try:
            path.write_bytes(found.gif)
            if out is None:
                _show(folder, trained, found.gif)
        except OSError as error:
            raise RunFolderError(f"{path} cannot be written: {error.strerror or error}") from None
    returns, lengths = (tuple(part) for part in zip(*found.episodes, strict=True)) if found.episodes else ((), ())
    return Watched(name, trained.checkpoint.name, returns, lengths, None if window else path, found.is_cut)


def _show(folder: RunFolder, trained: Trained, gif: bytes) -> None:
    """Let TensorBoard show the picture where its checkpoint was written. Raises OSError."""
    folder.watched.mkdir(exist_ok=True)
    board = TensorBoard(folder.watched, trained.prepared.config.run.tensorboard_axis)
    arrays = trained.arrays
    at = Report(int(arrays["update"]), int(arrays["steps"]), float(arrays["elapsed_s"]), {})
    board.write_animation(TAG, gif, at)
    board.close()
