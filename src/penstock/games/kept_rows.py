"""KeptRows: the rows of one session until its episode is written as a file. Does nothing if no episodes are kept."""

import logging
from typing import TypeAlias

import numpy as np

from penstock.saved_runs.episodes import EpisodeFiles, KeptEpisode
from penstock.types import Array, Arrays

__all__ = ["KeptRows", "copied"]

log = logging.getLogger("penstock.games")

_EPISODE_BYTES = 64 << 20
"""An episode with more bytes is written in parts; all but the last look as if their client had vanished."""

_Row: TypeAlias = tuple[Arrays, Array, float]
"""Observation, action, and the reward before."""


class KeptRows:
    """The rows of one episode.

    Args:
        files: where episodes are kept.
        session: name of the session.
        agent: name of its agent.
    """

    def __init__(self, files: EpisodeFiles, session: str, agent: str) -> None:
        self._files = files
        self._session = session
        self._agent = agent
        self._rows: list[_Row] = []
        self._bytes = 0

    def add(self, fields: Arrays, action: Array, reward: float) -> Array:
        """Keep what the policy saw and did. The action stays as it is."""
        if self._files.is_on:
            self._rows.append((copied(fields), action.copy(), reward))
            self._bytes += action.nbytes + sum(values.nbytes for values in fields.values())
            if self._bytes > _EPISODE_BYTES:
                self.vanish()
        return action

    def end(self, fields: Arrays, reward: float, *, terminated: bool) -> None:
        """The episode has ended with this observation ``[1, ...]`` and this reward of its last action."""
        if self._rows:
            self._rows.append((copied(fields), self._rows[-1][1], reward))
            self._write(terminated=terminated, vanished=False)

    def vanish(self) -> None:
        """The last action has no outcome."""
        if self._rows:
            self._write(terminated=False, vanished=True)

    def give_up(self) -> None:
        """Write the rows if there is room: an episode that is still open takes the place of none that has ended."""
        if self._files.has_room:
            self.vanish()

    def _write(self, *, terminated: bool, vanished: bool) -> None:
        """Write the rows as an episode. A full disk is no reason to end the games."""
        rows, self._rows, self._bytes = self._rows, [], 0
        actions = [action for _, action, _ in rows]
        episode = KeptEpisode(
            session=self._session,
            obs={name: np.concatenate([fields[name] for fields, _, _ in rows]) for name in rows[0][0]},
            action=np.concatenate(actions if vanished else actions[:-1]),
            reward=np.array([reward for _, _, reward in rows[1:]], np.float32),
            terminated=terminated,
            vanished=vanished,
            agent=self._agent,
        )
        try:
            self._files.add(episode)
        except OSError as error:
            log.warning("an episode is not kept: %s", error.strerror or error)


def copied(fields: Arrays) -> Arrays:
    """Copies of the arrays: an agent may change its own ones for the next tick."""
    return {name: values.copy() for name, values in fields.items()}
