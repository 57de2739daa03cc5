"""PlayerNode: takes tickets, plays their episodes, and answers each ticket once its episode has ended.

It hands out no tickets and adds up no results: `JudgeNode` does.
"""

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.envs.deadline import deadline
from penstock.errors import EnvError, RunFolderError
from penstock.metrics.episode_metrics import METRIC_FIELD
from penstock.nodes.contract import STEP_LIMIT_S, Ports
from penstock.nodes.evaluation.episodes import Episode, PlaySettings, play
from penstock.nodes.evaluation.tickets import ALWAYS_PLAYED, Ending
from penstock.saved_runs.episodes import KeptEpisode, write_episode
from penstock.seeding import final_seed
from penstock.types import EnvSource

__all__ = ["PlayerNode", "PlayerSettings"]


@dataclass(frozen=True)
class PlayerSettings:
    """Which environment is played, and how."""

    play: PlaySettings
    index: int
    """Number of this player among those of all machines, from 0."""
    env_timeout: float
    """Seconds that a vector step may take."""
    keep: Path | None = None
    """Folder for the files of the episodes; ``None``: they are not kept."""


class _Answer(NamedTuple):
    """The answer to a ticket."""

    ticket: int
    """The slot of the ticket."""
    ending: Ending
    episode: Episode


class PlayerNode:
    """Reads stream ``tickets`` and board ``policy``; writes stream ``episodes``."""

    def __init__(self, settings: PlayerSettings) -> None:
        self._settings = settings
        self._source: EnvSource | None = None
        self._play: Iterator[Episode | None] | None = None
        self._held: dict[int, int] = {}
        """Episode -> the slot of its ticket, until the answer is sent."""
        self._unsent: deque[_Answer] = deque()

    def open(self, ports: Ports) -> None:
        """Make the policy backend and the environments."""
        self._ports = ports
        self._tickets = ports.stream_reader("tickets")
        self._episodes = ports.stream_writer("episodes")
        self._policy = ports.board_reader("policy")
        played = self._settings.play
        with ports.busy("open the policy", played.work_limit_s):
            self._backend = played.make_backend()
        self._loaded = False
        with ports.busy("open environment", played.work_limit_s):
            self._source = played.open_source(played.lanes, final_seed(played.seed, self._settings.index))
        self._source.watch(ports.sign())

    def ready(self) -> bool:
        """True while it plays, or a ticket is waiting, or an answer can be sent."""
        if self._ports.stopping():
            return bool(self._held) or self._tickets.ready() > 0
        if self._unsent:
            return self._episodes.free() > 0
        return self._play is not None or self._tickets.ready() > 0

    def step(self) -> None:
        """Play for up to ``STEP_LIMIT_S``.

        Raises:
            EnvError: the environment takes too long for a step.
            RunFolderError: an episode cannot be written.
        """
        if self._ports.stopping():
            self._give_back()
            return
        self._send()
        what = f"a step of environment {self._settings.play.name} in its evaluation"
        try:
            # One alarm for all steps of this call: an alarm costs as much as a step of a small environment.
            with deadline(self._settings.env_timeout, what):
                self._play_on()
        except EnvError as error:
            # Raised without its notes: the text says everything.
            raise EnvError(str(error)) from None
        self._send()

    def close(self) -> None:
        """Close the environments."""
        if self._source is not None:
            # The node's work is saved by now. A simulator that cannot close is no failure of the run.
            with contextlib.suppress(Exception):
                self._source.close()
            self._source = None

    def _play_on(self) -> None:
        if self._play is None:
            self._play = self._begin()
        until = time.monotonic() + STEP_LIMIT_S
        while not self._unsent and time.monotonic() < until:
            ended = next(self._play, self)
            if ended is self:
                self._play = None
                return
            if isinstance(ended, Episode):
                ending = Ending.SPOILT if ended.spoilt else Ending.PLAYED
                if ended.kept is not None:
                    self._keep(ended.number, ended.kept)
                self._unsent.append(_Answer(self._held[ended.number], ending, ended))

    def _begin(self) -> Iterator[Episode | None]:
        played = self._settings.play
        if self._source is None:
            raise EnvError(f"environment {played.name} is closed")
        if not self._loaded:
            published = {spec.name: np.empty(spec.shape, spec.dtype) for spec in played.policy.published()}
            # The judge publishes the policy before it hands out tickets, so the policy is there.
            self._policy.read(published)
            self._backend.load(published)
            self._loaded = True
        return play(
            played,
            self._source,
            self._backend,
            seed_of=partial(final_seed, played.seed),
            next_number=self._next_number,
            keeps=self._settings.keep is not None,
        )

    def _keep(self, number: int, episode: KeptEpisode) -> None:
        """Write an episode, before its ticket is answered. If it is played again, its file is replaced.

        Raises:
            RunFolderError: it cannot be written.
        """
        folder = self._settings.keep
        if folder is None:
            return
        try:
            write_episode(folder, number + 1, episode)
        except OSError as error:
            raise RunFolderError(f"{folder} cannot be written: {error.strerror or error}") from None

    def _next_number(self, _lane: int) -> int | None:
        """Take the next ticket that may still begin. Returns its episode's number; ``None`` if no ticket waits."""
        while (index := self._tickets.take()) is not None:
            ticket = self._tickets.slot(index)
            number = int(ticket["number"])
            self._held[number] = index
            if ticket["begun"] or number < ALWAYS_PLAYED or time.monotonic() <= ticket["until"]:
                ticket["begun"][...] = True
                return number
            self._unsent.append(_Answer(index, Ending.TOO_LATE, Episode(number, 0.0, 0)))
        return None

    def _send(self) -> None:
        """Send answers while slots are free. Releases the ticket last, so that a death in between loses no episode."""
        while self._unsent:
            answer = self._unsent[0]
            index = self._episodes.claim(answer.episode.number)
            if index is None:
                return
            slot = self._episodes.slot(index)
            slot["number"][...] = answer.episode.number
            slot["ending"][...] = answer.ending
            slot["episode_return"][...] = answer.episode.episode_return
            slot["length"][...] = answer.episode.length
            # An episode that did not end has none, and does not count.
            for name, number in zip(self._settings.play.episode_metrics, answer.episode.metrics, strict=False):
                slot[f"{METRIC_FIELD}{name}"][...] = number
            self._episodes.push(index)
            self._tickets.release(answer.ticket)
            del self._held[answer.episode.number]
            self._unsent.popleft()

    def _give_back(self) -> None:
        """End the evaluation: play no further, and release all tickets, so that no node waits for them."""
        self._play = None
        self._unsent.clear()
        for index in self._held.values():
            self._tickets.release(index)
        self._held.clear()
        while (left := self._tickets.take()) is not None:
            self._tickets.release(left)
