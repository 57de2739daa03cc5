"""The kept episodes of a folder: which of them are held out, and how far newer ones differ. Learns nothing."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.errors import BadDataError
from penstock.ops.offline import largest_shift
from penstock.replay.episodes import steps_of
from penstock.saved_runs.episodes import KeptEpisode, episode_number, is_held_out, list_episodes, read_episode
from penstock.types import Array, Spaces

__all__ = ["LEAST_HELD_OUT", "Kept", "read_kept"]

LEAST_HELD_OUT = 5
"""So many held-out episodes are needed: fewer tell too little."""
_SHIFT_ROWS, _SHIFT_COLUMNS = 4096, 256


class Kept(NamedTuple):
    """The episodes of a folder, by their numbers."""

    learned: dict[int, KeptEpisode]
    """For gradient steps."""
    held_out: dict[int, KeptEpisode]
    """For the estimate alone."""

    @property
    def newest(self) -> int:
        """Number of the newest episode; 0: there is none."""
        return max((*self.learned, *self.held_out), default=0)

    def since(self, number: int) -> int:
        """How many episodes are newer than the one with this number."""
        return sum(one > number for one in (*self.learned, *self.held_out))

    def suffice(self) -> bool:
        """Whether there are enough to learn from and to judge by."""
        return bool(self.learned) and len(self.held_out) >= LEAST_HELD_OUT

    def shift_since(self, number: int) -> float | None:
        """How far episodes after this number differ from those up to it; ``None``: there are none up to it."""
        sides: tuple[list[Array], list[Array]] = ([], [])
        for own, episode in (*self.learned.items(), *self.held_out.items()):
            sides[own > number].append(_outcomes(episode))
        if not sides[0]:
            return None
        before, after = (_thinned(np.concatenate(side)) for side in sides)
        return largest_shift(before, after)


def read_kept(place: Path, spaces: Spaces, held_out: float) -> Kept:
    """Read the episodes of a folder.

    Args:
        place: the folder.
        spaces: of the run that shall learn from them.
        held_out: share of the episodes for the estimate alone. An episode's number decides whether it is one of them.

    Raises:
        BadDataError: a file is no episode of these spaces, or cannot be read.
    """
    found = Kept({}, {})
    for path in list_episodes(place):
        try:
            episode = read_episode(path, spaces)
        except FileNotFoundError:
            # A server writes into the folder, and has removed this file meanwhile.
            continue
        except OSError as error:
            raise BadDataError(f"{path} cannot be read: {error.strerror or error}") from None
        number = episode_number(path)
        if steps_of(episode):
            (found.held_out if is_held_out(number, held_out) else found.learned)[number] = episode
    return found


def _outcomes(episode: KeptEpisode) -> Array:
    """What is compared to find a drift, ``[n, d]``: each step's reward and observation, evenly thinned if wide."""
    steps = steps_of(episode)
    fields = [episode.reward[:, None], *(values[:steps].reshape(steps, -1) for values in episode.obs.values())]
    found = np.concatenate(fields, axis=1, dtype=np.float64)
    return found[:, :: -(-found.shape[1] // _SHIFT_COLUMNS)]


def _thinned(rows: Array) -> Array:
    """At most `_SHIFT_ROWS` rows, evenly spread."""
    return rows[:: -(-len(rows) // _SHIFT_ROWS)]
