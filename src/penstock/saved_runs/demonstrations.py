"""Finds the demonstrations of a run: the replay table of another run's latest checkpoint, or a folder of episodes.

Reads no row of a table, and of a folder one episode, to see that it fits.
"""

from dataclasses import dataclass
from pathlib import Path

from penstock.errors import BadDataError, ConfigError
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import TABLE, load_checkpoint
from penstock.saved_runs.episodes import episode_number, list_episodes, read_episode
from penstock.saved_runs.run_folder import RunFolder
from penstock.types import Box, Discrete, Spaces

__all__ = ["Demonstrations", "KeptEpisodes", "KeptTable", "find_demonstrations"]


@dataclass(frozen=True)
class KeptTable:
    """A checkpoint that holds a replay table, and the layout of its slots."""

    checkpoint: Path
    num_envs: int
    """Lanes of a slot."""
    num_steps: int
    """Steps of a slot."""


@dataclass(frozen=True)
class KeptEpisodes:
    """A folder of kept episodes, one file for each."""

    folder: Path
    space: Box | Discrete
    """Of their actions."""
    newest: int
    """Number of the newest one."""
    agent: str
    """Name of the agent that has seen the newest one; empty: it is as a client has sent it."""


Demonstrations = KeptTable | KeptEpisodes


def find_demonstrations(path: Path, spaces: Spaces, reward: str | None) -> Demonstrations:
    """The demonstrations in a run's latest checkpoint, or in a folder of kept episodes.

    Args:
        path: the other run's folder, or a folder that holds ``episode-*.npz``.
        spaces: the spaces that its environment must have.
        reward: name of the own reward that its rows must hold; ``None``: the environment's rewards.

    Raises:
        CheckpointError: there is no checkpoint that can be used.
        ConfigError: its environment has other spaces, its rewards are others, or it keeps no replay table.
        RunFolderError: there is no such run.
    """
    if files := list_episodes(path):
        return _episodes(path, files[-1], spaces, reward)
    return _table(path, spaces, reward)


def _episodes(folder: Path, newest: Path, spaces: Spaces, reward: str | None) -> KeptEpisodes:
    if reward is not None:
        why = f"kept episodes hold the environment's own rewards, this run's are {reward} (--reward)"
        raise ConfigError(f"--demonstrations {folder}: {why}")
    if not isinstance(spaces.action, Box | Discrete):
        why = f"kept episodes hold actions of a Box or a Discrete, and those of this run are {spaces.action!r}"
        raise ConfigError(f"--demonstrations {folder}: {why}")
    try:
        episode = read_episode(newest, spaces)
    except BadDataError as error:
        raise ConfigError(f"--demonstrations {folder}: {error}") from None
    except FileNotFoundError:
        raise ConfigError(f"--demonstrations {folder}: its newest episode was removed just now; try again") from None
    except OSError as error:
        why = f"{newest.name} cannot be read: {error.strerror or error}"
        raise ConfigError(f"--demonstrations {folder}: {why}") from error
    return KeptEpisodes(folder, spaces.action, episode_number(newest), episode.agent)


def _table(run: Path, spaces: Spaces, reward: str | None) -> KeptTable:
    folder = RunFolder.open(run)
    config = folder.read_config()
    checkpoint = find_checkpoint(folder.path).resolve()
    manifest = load_checkpoint(checkpoint).manifest
    if manifest["spaces"] != repr(spaces):
        why = f"it is of {manifest['env']}, whose observations or actions are not of this run's kind"
        raise ConfigError(f"--demonstrations {run}: {why}")
    if manifest.get("reward") != reward:
        kept, wanted = (name or "the environment's own" for name in (manifest.get("reward"), reward))
        raise ConfigError(f"--demonstrations {run}: its rewards are {kept}, this run's are {wanted} (--reward)")
    if not (checkpoint / TABLE).is_file():
        raise ConfigError(
            f"--demonstrations {run}: its checkpoint {checkpoint.name} keeps no {TABLE}; give a run of an algorithm "
            "that learns from a table (penstock algos), whose table had at most 1 GiB"
        )
    return KeptTable(checkpoint, config.run.num_envs, config.algorithm.num_steps)
