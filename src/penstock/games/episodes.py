"""EpisodeFiles: keeps the latest episodes of games as files, for replay and analysis. Learns nothing from them."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.experiments.durable import PARTIAL
from penstock.types import Array, Arrays

__all__ = ["EpisodeFiles", "KeptEpisode"]


class KeptEpisode(NamedTuple):
    """One episode of n steps."""

    session: str
    obs: Arrays
    """Field -> ``[n + 1, ...]``; ``[n, ...]`` if the client vanished."""
    action: Array
    """``[n, ...]`` in the game's own units."""
    reward: Array
    """``[n]``; one less if the client vanished."""
    terminated: bool
    vanished: bool


class EpisodeFiles:
    """Writes ``episode-00000001.npz`` and so on, and removes the oldest.

    Args:
        folder: is made with the first episode.
        keep: how many to keep; 0: none.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder = folder
        self._keep = keep
        found = sorted(folder.glob("episode-*.npz")) if keep else []
        self._files = [path for path in found if path.stem.partition("-")[2].isdigit()]

    @property
    def is_on(self) -> bool:
        """Whether episodes are kept at all."""
        return self._keep > 0

    def add(self, episode: KeptEpisode) -> None:
        """Write one episode."""
        number = int(self._files[-1].stem.partition("-")[2]) + 1 if self._files else 1
        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"episode-{number:08d}.npz"
        arrays: dict[str, Any] = {
            **episode.obs,
            "action": episode.action,
            "reward": episode.reward,
            "terminated": np.array(episode.terminated),
            "vanished": np.array(episode.vanished),
            "session": np.array(episode.session),
        }
        # Not synced to the disk: that would keep all games waiting, and an episode is no checkpoint.
        partial = path.with_name(path.name + PARTIAL)
        with partial.open("wb") as file:
            np.savez(file, **arrays)
        partial.replace(path)
        self._files.append(path)
        while len(self._files) > self._keep:
            self._files.pop(0).unlink(missing_ok=True)
