"""Recorder: keeps the episodes of one served policy as files. Explores in some of their ticks, if that is wanted.

Rows are held in memory until their episode ends. A thread writes them, so no reply waits for the disk. Learns nothing.
"""

import logging
import os
import threading
from pathlib import Path
from queue import Full, Queue
from typing import NamedTuple

import numpy as np

from penstock.envs.fields import one_line
from penstock.kernels.actions import environment_array, generate_actions, to_environment
from penstock.kernels.noise import uniform
from penstock.saved_runs.episodes import EpisodeFiles, KeptEpisode
from penstock.types import Array, Arrays, Spaces

__all__ = ["OpenEpisode", "Recorder"]

log = logging.getLogger("penstock.serve")

EPISODE_BYTES = 16 << 20
"""Bytes of an episode's rows after which it is closed: of a longer episode the first rows are kept."""
_HELD_BYTES = 256 << 20
"""Most bytes of rows in memory; episodes that would need more are lost."""
_WAITING = 1024
"""Episodes that wait for the disk; further ones are lost."""
_ROW_BYTES = 256
"""Bytes that a row takes beside the numbers in its arrays: the objects of Python."""
_ARRAY_BYTES = 160
"""The same for each array of a row."""
_LARGEST = float(np.finfo(np.float32).max)
_CHOOSES, _GENERATES = np.array([0]), np.array([1])
"""Lanes of the noise: whether a tick explores, and by which action."""


class _Row(NamedTuple):
    fields: Arrays
    action: Array
    """``[1, ...]`` as it was sent."""
    reward: float
    """Of the action before."""


class OpenEpisode:
    """The rows of an episode that goes on. It is made by `Recorder.begin`."""

    def __init__(self, recorder: "Recorder", session: str) -> None:
        self.session = session
        self.rows: list[_Row] = []
        self.bytes = 0
        self._recorder = recorder
        self._is_over = False

    def add(self, fields: Arrays, action: Array, reward: object) -> Array:
        """A tick is answered.

        Args:
            fields: what the client saw, ``[1, ...]``.
            action: what the policy answers, ``[1, ...]``.
            reward: of the action before, as the client has sent it; that of the first tick does not count.

        Returns:
            The action to send: the policy's, or another one that explores.
        """
        action = self._recorder.explored(fields, action)
        if self._is_over:
            return action
        number = _number(reward) if self.rows else 0.0
        if number is None:
            self._lose(f"a tick {_why_no_reward(reward)}")
        elif self.bytes > EPISODE_BYTES:
            self.vanish()
        elif not self._recorder.has_room():
            self._lose("too many rows wait for the end of their episode, or for the disk")
        else:
            # The server uses the arrays of a batch again.
            self.rows.append(_Row(fields, action.copy(), number))
            size = _ROW_BYTES + sum(_ARRAY_BYTES + values.nbytes for values in (action, *fields.values()))
            self.bytes += size
            self._recorder.held += size
        return action

    def end(self, fields: Arrays, reward: object, terminated: object) -> None:
        """The client says that the episode ends.

        Args:
            fields: the last observation ``[1, ...]``; empty: the client gives none.
            reward: of the last action, as the client has sent it.
            terminated: whether the episode has ended by itself, as the client has sent it.
        """
        if self._is_over:
            return
        is_terminated = terminated is True
        if not self.rows or (not fields and not is_terminated):
            self.vanish()
            return
        number = _number(reward)
        if number is None:
            self._lose(f"its end {_why_no_reward(reward)}")
            return
        last = _Row(fields or self.rows[-1].fields, self.rows[-1].action, number)
        self._recorder.put(self, (*self._over(), last), terminated=is_terminated, vanished=False)

    def vanish(self) -> None:
        """The episode ends without a word, so its last action has no outcome."""
        if self._is_over:
            return
        rows = self._over()
        # Of a single row nothing can be learned.
        if len(rows) > 1:
            self._recorder.put(self, rows, terminated=False, vanished=True)
        else:
            self._recorder.held -= self.bytes

    def _over(self) -> tuple[_Row, ...]:
        """End the episode and let go of its rows. The session may hold this object for long after that."""
        self._is_over = True
        rows = tuple(self.rows)
        self.rows.clear()
        return rows

    def _lose(self, why: str) -> None:
        self._over()
        self._recorder.lose(self, why)


class Recorder:
    """The episodes of one policy. All methods are called in the server's thread; only `_write` runs in one of its own.

    Args:
        name: of the policy.
        folder: for the files.
        keep_bytes: how many bytes of files to keep.
        spaces: of the policy.
        explore: share of ticks whose action is uniformly random instead of the policy's.
        agent: name of the agent that gives observations and rewards; empty: clients send them as they are.

    Attributes:
        held: bytes of rows that are in memory.
        kept: how many episodes were written.
    """

    def __init__(
        self, name: str, folder: Path, keep_bytes: float, spaces: Spaces, explore: float, *, agent: str = ""
    ) -> None:
        self.name = name
        self._agent = agent
        self.held = 0
        self.kept = 0
        self._files = EpisodeFiles(folder, np.inf, keep_bytes)
        self._spaces = spaces
        self._explore = explore
        self._seed = int.from_bytes(os.urandom(8), "little")
        self._ticks = 0
        self._action = np.zeros((1, *spaces.action_spec().shape), spaces.action_spec().dtype)
        self._lost = 0
        self._unwritten = 0
        self._written_bytes = 0
        self._queue: Queue[tuple[OpenEpisode, tuple[_Row, ...], bool, bool] | None] = Queue(_WAITING)
        self._thread = threading.Thread(target=self._write, name="record")
        self._thread.start()

    @property
    def lost(self) -> int:
        """How many episodes were not kept."""
        return self._lost + self._unwritten

    def begin(self, session: str) -> OpenEpisode:
        """An episode begins."""
        return OpenEpisode(self, session)

    def has_room(self) -> bool:
        """Whether another row may be held."""
        # Each of the two counts has one thread that changes it.
        return self.held - self._written_bytes < _HELD_BYTES

    def explored(self, fields: Arrays, action: Array) -> Array:
        """The action to send for one that the policy answers, ``[1, ...]``."""
        if not self._explore:
            return action
        self._ticks += 1
        if uniform(self._seed, _CHOOSES, self._ticks, 1)[0, 0] >= self._explore:
            return action
        mask = None if self._spaces.mask is None else fields[self._spaces.mask]
        space = self._spaces.action
        generate_actions(space, self._seed, _GENERATES, self._ticks, self._action, mask=mask)
        return to_environment(self._action, space, environment_array(space, 1))

    def put(self, episode: OpenEpisode, rows: tuple[_Row, ...], *, terminated: bool, vanished: bool) -> None:
        """Let an episode be written. One that finds the queue full is lost."""
        try:
            self._queue.put_nowait((episode, rows, terminated, vanished))
        except Full:
            self.lose(episode, "too many episodes wait for the disk")

    def lose(self, episode: OpenEpisode, why: str) -> None:
        """Do not keep an episode."""
        self._lost += 1
        self.held -= episode.bytes
        log.warning("%s: an episode of session %r is not kept: %s", self.name, episode.session, why)

    def close(self) -> None:
        """Write what waits, and end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _write(self) -> None:
        while (found := self._queue.get()) is not None:
            episode, rows, terminated, vanished = found
            try:
                kept = _kept(episode.session, rows, terminated=terminated, vanished=vanished)
                self._files.add(kept._replace(agent=self._agent))
                self.kept += 1
            except OSError as error:
                self._unwritten += 1
                log.warning("%s: an episode is not kept: %s", self.name, error.strerror or error)
            except Exception:  # else no later episode would be kept, and nobody would end this thread
                self._unwritten += 1
                log.exception("%s: an episode is not kept", self.name)
            self._written_bytes += episode.bytes


def _number(reward: object) -> float | None:
    """A reward as a number; ``None``: it is none, or too large for float32."""
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        return None
    return float(reward) if abs(reward) <= _LARGEST else None


def _why_no_reward(reward: object) -> str:
    """Why there is no reward in what a client has sent."""
    if reward is None:
        return "holds no reward"
    return f"holds the reward {one_line(repr(reward), 40)}, which is no number of float32"


def _kept(session: str, rows: tuple[_Row, ...], *, terminated: bool, vanished: bool) -> KeptEpisode:
    acted = rows if vanished else rows[:-1]
    return KeptEpisode(
        session=session,
        obs={name: np.concatenate([row.fields[name] for row in rows]) for name in rows[0].fields},
        action=np.concatenate([row.action for row in acted]),
        reward=np.array([row.reward for row in rows[1:]], np.float32),
        terminated=terminated,
        vanished=vanished,
    )
