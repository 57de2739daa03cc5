"""Finds the demonstrations of a run: the replay table in the latest checkpoint of another run. Reads no row."""

from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ConfigError
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import TABLE, load_checkpoint
from penstock.saved_runs.run_folder import RunFolder
from penstock.types import Spaces

__all__ = ["Demonstrations", "find_demonstrations"]


@dataclass(frozen=True)
class Demonstrations:
    """The checkpoint that holds the demonstrations, and the layout of its slots."""

    checkpoint: Path
    num_envs: int
    """Lanes of a slot."""
    num_steps: int
    """Steps of a slot."""


def find_demonstrations(run: Path, spaces: Spaces, reward: str | None) -> Demonstrations:
    """The demonstrations in a run's latest checkpoint.

    Args:
        run: the other run's folder.
        spaces: the spaces that its environment must have.
        reward: name of the own reward that its rows must hold; ``None``: the environment's rewards.

    Raises:
        CheckpointError: there is no checkpoint that can be used.
        ConfigError: its environment has other spaces, its rewards are others, or it keeps no replay table.
        RunFolderError: there is no such run.
    """
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
    return Demonstrations(checkpoint, config.run.num_envs, config.algorithm.num_steps)
