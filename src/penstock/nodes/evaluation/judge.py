"""JudgeNode: hands out the episodes of an evaluation in order, commits what becomes of them, and shows how far it is.

It plays nothing itself: `PlayerNode` does.

Each ticket is answered: played, spoilt, or too late. Who dies in between leaves either its ticket, which is played
again to the same end, or the answer. So no episode is lost, and of two answers to one ticket the second is ignored.
"""

import math
import time
from collections import deque
from dataclasses import dataclass

import numpy as np

from penstock.errors import EnvError
from penstock.metrics.evaluation import EvaluationDisplay, evaluation_display
from penstock.nodes.contract import Ports
from penstock.nodes.evaluation.tickets import ALWAYS_PLAYED, Ending
from penstock.types import Arrays

__all__ = ["JudgeNode", "JudgeSettings"]

LOOK_S = 0.1
"""So often it looks at the clock where nothing is answered."""


@dataclass(frozen=True)
class JudgeSettings:
    """What is judged, by how many episodes."""

    env: str
    """Name of the environment, for messages."""
    published: Arrays
    """The parameters and statistics that play."""
    episodes: int
    seconds: float | None
    """After so many, no episode begins but the first; ``None``: there is no limit."""
    stall_timeout: float
    """Seconds without an answer after which the evaluation is given up."""
    quiet: bool
    """No display."""


class JudgeNode:
    """Writes stream ``tickets``, board ``policy`` and record ``evaluation``; reads stream ``episodes``."""

    def __init__(self, settings: JudgeSettings) -> None:
        self._settings = settings
        self._display: EvaluationDisplay | None = None

    def open(self, ports: Ports) -> None:
        """Publish the policy, and go on behind what an earlier life has committed."""
        settings = self._settings
        self._ports = ports
        self._tickets = ports.stream_writer("tickets")
        self._answers = ports.stream_reader("episodes")
        self._record = ports.record("evaluation")
        self._begun = self._latest = self._looked = time.monotonic()
        self._finished = self._playing = False
        if not settings.quiet:
            self._display = evaluation_display(settings.episodes)
        ports.board_writer("policy").publish(settings.published, 0)
        committed = self._record.current() if ports.former else None
        if committed is None:
            until = math.inf if settings.seconds is None else self._begun + settings.seconds
            self._commit({"ending": Ending.UNKNOWN, "episode_return": 0.0, "length": 0, "until": until})
        # Before the answers: a ticket that is gone by now was answered before.
        waiting = set(self._tickets.written())
        self._collect()
        unknown = np.flatnonzero(self._found()["ending"] == Ending.UNKNOWN).tolist()
        self._out = waiting & set(unknown)
        """Tickets that were handed out and are not answered yet."""
        self._queue = deque(number for number in unknown if number not in waiting)
        """Episodes that no ticket was handed out for yet."""

    def ready(self) -> bool:
        """True if an answer waits, a ticket can be handed out, or it is time to look at the clock."""
        if self._finished:
            return False
        handing_out = bool(self._queue) and self._tickets.free() > 0
        return handing_out or self._answers.ready() > 0 or time.monotonic() >= self._looked + LOOK_S

    def step(self) -> None:
        """Take the answers there are, and hand out the next tickets.

        Raises:
            EnvError: no episode has ended for too long.
        """
        self._looked = time.monotonic()
        self._collect()
        self._hand_out()
        self._show()
        if self._ports.stopping() or not (self._queue or self._out):
            self._finished = True
            self._ports.finished()
        else:
            self._see_that_it_goes_on()

    def close(self) -> None:
        """Close the display."""
        if self._display is not None:
            self._display.close()
            self._display = None

    def _found(self) -> Arrays:
        committed = self._record.current()
        return {} if committed is None else committed.arrays

    def _commit(self, values: dict[str, object]) -> None:
        new = self._record.begin()
        for name, value in values.items():
            new[name][...] = value
        self._record.commit(self._record.number() + 1)

    def _collect(self) -> None:
        """Commit all answers that wait, then give their slots back."""
        taken = []
        found = {name: values.copy() for name, values in self._found().items()} if self._answers.ready() else {}
        while (index := self._answers.take()) is not None:
            taken.append(index)
            answer = self._answers.slot(index)
            number = int(answer["number"])
            if found["ending"][number] == Ending.UNKNOWN:
                for name in ("ending", "episode_return", "length"):
                    found[name][number] = answer[name]
        if not taken:
            return
        self._latest = time.monotonic()
        self._commit(dict(found))
        for index in taken:
            self._answers.release(index)

    def _hand_out(self) -> None:
        """Hand out tickets in the order of their numbers, as far as there is room.

        Which episodes are begun depends on how long those before them took, and not on themselves. All that are begun
        are counted, however late they end. So a mean over them favours neither short episodes nor long ones.
        """
        found = self._found()
        ending, until = found["ending"], float(found["until"])
        self._out = {number for number in self._out if ending[number] == Ending.UNKNOWN}
        while self._queue and not self._ports.stopping():
            number = self._queue[0]
            if number >= ALWAYS_PLAYED and time.monotonic() > until:
                self._queue.clear()
                return
            index = self._tickets.claim(number)
            if index is None:
                return
            ticket = self._tickets.slot(index)
            ticket["number"][...], ticket["until"][...], ticket["begun"][...] = number, until, False
            self._tickets.push(index)
            self._out.add(number)
            self._queue.popleft()

    def _show(self) -> None:
        if self._display is None:
            return
        found = self._found()
        returns = found["episode_return"][found["ending"] == Ending.PLAYED]
        mean = float(returns.mean()) if len(returns) else None
        self._display.show(len(returns), mean, time.monotonic() - self._begun)

    def _see_that_it_goes_on(self) -> None:
        settings = self._settings
        if not self._playing:
            # Environments may take long to be made.
            self._playing = any(self._tickets.slot(index)["begun"] for index in self._tickets.written().values())
            self._latest = self._looked
        if self._looked - self._latest <= settings.stall_timeout:
            return
        known = int((self._found()["ending"] == Ending.PLAYED).sum())
        waited = f"no episode of {settings.env} has ended for {settings.stall_timeout:g} s (--stall_timeout)"
        raise EnvError(f"the evaluation was given up: {waited}; {known} had before")
