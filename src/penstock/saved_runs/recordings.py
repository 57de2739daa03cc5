"""Writes episodes that other software has recorded as kept episodes. Reads none, and learns nothing from them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import BadDataError, RunFolderError
from penstock.paths import expanded
from penstock.saved_runs.episodes import KeptEpisode, episode_number, list_episodes, write_episode
from penstock.types import Array

__all__ = ["write_episodes"]

_OUTCOME = ("action", "reward", "terminated")
"""What an episode holds besides its observation fields."""


def write_episodes(folder: Path | str, episodes: Iterable[Mapping[str, Any]]) -> Path:
    """Write episodes from any source into a folder, for the setting ``demonstrations`` and for `penstock.retrain`.

    One episode at a time is taken, so ``episodes`` may be an iterator over files, a network or a store of objects.

    Args:
        folder: is made if need be. Its new files are numbered on from those that it has.
        episodes: each holds arrays by name, of n steps:

            - each observation field, ``[n + 1, ...]``: what was seen before each action, and after the last one. Its
              name is ``obs``; of a Dict ``obs.<key>`` for each key.
            - ``action``, ``[n, ...]`` in the environment's units.
            - ``reward``, ``[n]``: the environment's own.
            - ``terminated``: one truth value. False: the episode was cut off, so that its last state keeps its value.

            Observations and actions have the dtype of their space: float32 mostly, int64 for Discrete.

    Returns:
        The folder.

    Raises:
        BadDataError: an episode lacks one of these, or has it in another shape, or it holds NaN or infinity; or there
            is no episode at all. Those before it are written.
        RunFolderError: a file cannot be written.

    Example:
        episode = {"obs": obs, "action": action, "reward": reward, "terminated": True}  # obs: [n + 1, ...]
        folder = penstock.write_episodes("kept/crane", [episode])
        penstock.train({"env": "crane:Crane", "algo": "sac", "demonstrations": folder})
    """
    path, written = expanded(folder), 0
    before = list_episodes(path)
    last = episode_number(before[-1]) if before else 0
    for place, episode in enumerate(episodes, 1):
        kept = _kept(episode, f"episode {place}")
        try:
            write_episode(path, last + place, kept)
        except OSError as error:
            raise RunFolderError(f"{path} cannot be written: {error.strerror or error}") from None
        written = place
    if not written:
        raise BadDataError(f"there was no episode to write into {path}; an iterator can be read only once")
    return path


def _kept(episode: Mapping[str, Any], label: str) -> KeptEpisode:
    """Check an episode, and give it the form of a kept one. ``label`` is its name in error texts."""
    if not isinstance(episode, Mapping):
        raise BadDataError(
            f"{label} is of type {type(episode).__name__}; give a list of dicts of arrays, one an episode"
        )
    fields = [name for name in episode if name not in _OUTCOME]
    missing = [name for name in _OUTCOME if name not in episode] + ([] if fields else ["obs"])
    if missing:
        raise BadDataError(f"{label} has no {missing[0]}; it has {', '.join(map(str, episode)) or 'nothing'}")
    if unknown := [str(name) for name in fields if name != "obs" and not str(name).startswith("obs.")]:
        raise BadDataError(f"{label} has {unknown[0]}: observations are named obs, or obs.<key> for each key of a Dict")
    action, reward, terminated = (_numbers(episode, name, label) for name in _OUTCOME)
    if not action.ndim:
        raise BadDataError(f"{label}: its action is a single number; give one action for each step, [n, ...]")
    if reward.shape != action.shape[:1]:
        raise BadDataError(f"{label}: its reward is {list(reward.shape)}, and there are {len(action)} actions")
    if terminated.ndim:
        raise BadDataError(f"{label}: its terminated is {list(terminated.shape)}; give one truth value for its end")
    obs = {str(name): _numbers(episode, name, label) for name in fields}
    for name, values in obs.items():
        if values.shape[:1] != (len(action) + 1,):
            raise BadDataError(
                f"{label}: its {name} is {list(values.shape)}, and {len(action)} actions have {len(action) + 1} "
                "observations: one before each, and one after the last"
            )
    rewards = reward.astype(np.float32)
    return KeptEpisode("", obs, action, rewards, terminated=bool(terminated), vanished=False)


def _numbers(episode: Mapping[str, Any], name: str, label: str) -> Array:
    """One array of an episode: numbers or truth values, all finite."""
    try:
        found = np.asarray(episode[name])
    except ValueError:  # rows of different lengths
        raise BadDataError(f"{label}: its {name} is no array: its rows have different shapes") from None
    if found.dtype.kind not in "biuf":
        raise BadDataError(f"{label}: its {name} holds {found.dtype}, not numbers")
    if not np.isfinite(found).all():
        raise BadDataError(f"{label}: its {name} holds NaN or infinity")
    return found
